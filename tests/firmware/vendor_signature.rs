//! The status patch by signature and on 231204, on images of the vendor. `ASMPATCH_VENDOR_IMAGE` and
//! `ASMPATCH_VENDOR_231204_IMAGE` name them.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, Image};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::scsi::runtime::Variables;
use asm2464_chip::chip::{Data, Ending, ProofBudget, boot};
use asmpatch::patch::{
    EarlyAnswer, Hunk, Library, NotProven, PatchError, PatchSet, Readiness, Selection, early_answer, identify,
};

use crate::chip_images::{cdb16, file};

const IMAGES: [&str; 2] = ["ASMPATCH_VENDOR_IMAGE", "ASMPATCH_VENDOR_231204_IMAGE"];

fn image(variable: &str) -> Image {
    Image::parse(&file(variable)).unwrap()
}

/// The status patch with its signature alone.
fn by_signature() -> Library {
    let text = include_str!("../../patches/status-0x2a12.toml");
    let (head, images) = text.split_once("[[images]]").unwrap();
    let (_, signature) = images.split_once("[[signatures]]").unwrap();
    Library::of(&[("signature.toml", &format!("{head}[[signatures]]{signature}"))]).unwrap()
}

fn located(library: &Library, image: &Image) -> (Image, Hunk) {
    let set = PatchSet::resolve(library, &Selection::default(), image, Sha256Digest(image.sha256())).unwrap();
    let (_, hunk) = set.located().next().unwrap();
    (set.apply().unwrap().image, hunk.clone())
}

fn prove(stock: &Image, patched: &Image, hunk: &Hunk) -> Result<EarlyAnswer, NotProven> {
    early_answer(stock, patched, hunk, ProofBudget::default, Interrupt::never())
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn by_signature_the_patch_is_the_same_image_as_by_its_hunks() {
    let (known, unknown) = (asmpatch::embedded::patches().unwrap(), by_signature());
    for stock in IMAGES.map(image) {
        let digest = Sha256Digest(stock.sha256());
        let by_hunks = PatchSet::resolve(&known, &Selection::default(), &stock, digest).unwrap();
        assert_eq!(by_hunks.located().count(), 0, "hunks take precedence");
        let (patched, _) = located(&unknown, &stock);
        assert_eq!(by_hunks.apply().unwrap().image, patched);
        let again = identify(&unknown, &patched, Sha256Digest(patched.sha256())).unwrap();
        assert_eq!((again.base, again.original), (digest, stock));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn the_effect_is_proven_on_both_images_and_the_variables_of_231204_are_found() {
    let readiness = IMAGES.map(image).map(|stock| {
        let (patched, hunk) = located(&by_signature(), &stock);
        prove(&stock, &patched, &hunk).unwrap().readiness
    });
    assert_eq!(readiness, [Readiness::Runtime, Readiness::Variables { state: 0x05B1, sectors: 0x054C }]);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_signature_at_a_place_with_another_effect_is_not_proven() {
    let stock = image(IMAGES[0]);
    let (patched, hunk) = located(&by_signature(), &stock);
    // Nothing changes.
    assert!(matches!(prove(&stock, &stock, &hunk), Err(NotProven::NotAnswered(_))));
    assert!(matches!(prove(&patched, &patched, &hunk), Err(NotProven::AnsweredBefore(_))));
    // The read twin's status, 9, at c:0x29AE: no write executes it.
    let read = BodyOffset(0x29AE);
    assert_eq!(stock.body()[0x29AE], 9);
    let mut wrong = stock.clone();
    assert!(wrong.replace(read, &[5]));
    let elsewhere = Hunk { at: read.into(), expect: vec![9], new: vec![5], instruction: None, note: None };
    assert!(
        matches!(prove(&stock, &wrong, &elsewhere), Err(NotProven::NotReached(at)) if at == read.code_address().unwrap())
    );
    // The right place, and a read that is answered without its data as well.
    let mut both = patched.clone();
    assert!(both.replace(read, &[5]));
    assert!(matches!(prove(&stock, &both, &hunk), Err(NotProven::Differs { what, .. }) if what.contains("READ(16)")));
    // An image that can't be written again.
    let mut dead = patched;
    assert!(dead.replace(BodyOffset(0xFF6B + 0xE89B - 0x8000), &[0x22]));
    assert!(matches!(prove(&stock, &dead, &hunk), Err(NotProven::Differs { what, .. }) if what.contains("E1")));
    assert!(matches!(prove(&dead, &dead, &hunk), Err(NotProven::Boot(_))));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn two_places_and_none_are_refused_with_what_was_found() {
    let library = by_signature();
    let stock = image(IMAGES[0]);
    let refused = |image: &Image| {
        let set = PatchSet::resolve(&library, &Selection::default(), image, Sha256Digest(image.sha256()));
        let error = set.unwrap_err();
        assert!(matches!(error, PatchError::NotLocated { .. }), "{error}");
        error.to_string()
    };
    let code = stock.body()[0x2A05..0x2A10].to_vec();
    let mut twice = stock.clone();
    assert!(twice.replace(BodyOffset(0x6000), &code));
    assert!(refused(&twice).contains(": c:0x2A05 (file 0x02a09), c:0x6000 (file 0x06004). "), "{}", refused(&twice));
    let mut none = stock;
    assert!(none.replace(BodyOffset(0x2A05), &[0x00]));
    assert!(refused(&none).contains("its code is not in the image"));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn patched_231204_takes_each_write_into_the_next_slot_after_its_own_initialisation() {
    let stock = image(IMAGES[1]);
    let library = asmpatch::embedded::patches().unwrap();
    let set = PatchSet::resolve(&library, &Selection::default(), &stock, Sha256Digest(stock.sha256())).unwrap();
    let patched = set.apply().unwrap().image;
    assert!(boot::check(&patched).passes());
    let mut unit = boot::booted(&patched, 1).unwrap();
    for (at, value) in Variables::of(patched.version()).unwrap().initialisation() {
        unit.chip.poke(XdataAddress::main(at), &[value]);
    }
    for slot in 0..3usize {
        let data: Vec<u8> = (0..4096).map(|at| (at * 7 + slot) as u8).collect();
        let answer = unit.command(&cdb16(0x8A, 0, 8), Data::Out(&data)).unwrap();
        assert_eq!(answer.ending, Ending::Good);
        unit.settle();
        assert!(unit.chip.sram()[slot * 0x4000..][..data.len()] == data[..], "{slot}");
    }
}
