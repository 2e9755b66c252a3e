//! Tests of what verification accepts and finds.

use std::slice;

use asm2464_chip::practice;

use super::super::Selection;
use super::*;

fn patched() -> (Library, Vec<u8>, Receipt) {
    let mut library = Library::of_repository().unwrap();
    let image = practice::image();
    let digest = image.sha256();
    library.know(digest, "practice", image.version());
    let patched = PatchSet::resolve(&library, &Selection::default(), &image, digest).unwrap().apply().unwrap();
    (library, patched.image.to_file(), patched.receipt)
}

/// The codes of findings, without their first parts.
fn codes(findings: &[AnyFailure]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code().rsplit_once(':').unwrap().1).collect()
}

fn practice_original(sha256: &Sha256Digest) -> Option<Image> {
    let image = practice::image();
    (image.sha256() == *sha256).then_some(image)
}

#[test]
fn a_patched_image_matches_its_receipt_and_its_base() {
    let (library, file, receipt) = patched();
    let base = practice::image().sha256();
    let expect = Expectations { receipt: Some(&receipt), image: Some(base), originals: None };
    let verification = verify_file(&library, &file, &expect);
    assert!(verification.is_valid(), "{:?}", verification.findings);
    assert_eq!(verification.base, Some(base));
    assert_eq!(verification.patches.iter().map(|patch| patch.id.as_str()).collect::<Vec<_>>(), ["status-0x2a12"]);
    assert!(verify_file(&library, &practice::image().to_file(), &Expectations::default()).is_valid());
}

#[test]
fn every_byte_that_differs_is_named_if_the_original_is_available() {
    let (library, file, receipt) = patched();
    let mut image = Image::parse(&file).unwrap();
    assert!(image.replace(BodyOffset(0x1_0000), &[0x77, 0x88]));
    let foreign = image.to_file();
    let expect = Expectations { receipt: Some(&receipt), originals: Some(&practice_original), ..Default::default() };
    let verification = verify_file(&library, &foreign, &expect);
    assert_eq!(codes(&verification.findings), ["unknown_base", "receipt_digest"]);
    assert!(verification.findings[1].to_string().starts_with("the receipt's output"));
    let body: Vec<_> = verification.differences.iter().filter(|d| d.file_offset.0 < image.trailer_offset().0).collect();
    assert_eq!(body.len(), 2);
    assert_eq!((body[0].file_offset, body[0].found), (FileOffset(0x1_0004), Some(0x77)));
    // Without a receipt, the version tells which image it most likely was.
    let expect = Expectations { originals: Some(&practice_original), ..Default::default() };
    assert_eq!(verify_file(&library, &foreign, &expect).differences, verification.differences);
}

#[test]
fn an_unknown_image_is_described_by_the_known_one_its_patches_and_its_other_bytes() {
    let (library, file, _) = patched();
    let words = |image: &Image, originals| {
        let expect = Expectations { originals, ..Default::default() };
        verify(&library, image, &expect).changed_words(&library)
    };
    let available: Option<Originals<'_>> = Some(&practice_original);
    let patched = Image::parse(&file).unwrap();
    assert_eq!([words(&patched, available), words(&practice::image(), available)], [None, None]);
    let mut other = patched;
    assert!(other.replace(BodyOffset(0x5878), &[0x77]));
    assert_eq!(words(&other, available).unwrap(), "practice with status-0x2a12, and 1 other byte (c:0x5878)");
    assert_eq!(
        words(&other, None).unwrap(),
        "practice with status-0x2a12, and other bytes, which asmpatch can't name without the original"
    );
    let mut unpatched = practice::image();
    for at in [0x100, 0x101, 0x280, 0x300, 0x1_0000, 0x1_1000] {
        assert!(unpatched.replace(BodyOffset(at), &[unpatched.body()[at as usize] ^ 1]));
    }
    assert_eq!(
        words(&unpatched, available).unwrap(),
        "practice with 6 other bytes (c:0x0100, c:0x0280, c:0x0300, b1:0x8095 and elsewhere)"
    );
    let unknown = Image::from_body(vec![0x22; 0x400]).unwrap();
    assert_eq!(words(&unknown, available), None);
}

#[test]
fn bytes_that_are_shown_are_not_asked_for_again() {
    let (library, ..) = patched();
    let mut other = practice::image();
    assert!(other.replace(BodyOffset(0x5878), &[0x77]));
    let available: Option<Originals<'_>> = Some(&practice_original);
    for (originals, code) in [(available, "other_bytes"), (None, "unknown_base")] {
        let expect = Expectations { originals, ..Default::default() };
        let found = verify(&library, &other, &expect);
        assert_eq!((codes(&found.findings), found.differences.is_empty()), (vec![code], originals.is_none()));
    }
}

#[test]
fn open_firmware_is_the_known_build_by_its_digest_alone() {
    let mut library = Library::of_repository().unwrap();
    let known = practice::open_image();
    library.know_open(known.sha256(), "ours", "custom practice");
    let mut other = known.clone();
    assert!(other.replace(BodyOffset(known.body().len() as u32 - 1), &[0x5A]));
    let original = |_: &Sha256Digest| Some(practice::open_image());
    let expect = Expectations { image: library.image_named("ours"), originals: Some(&original), ..Default::default() };
    assert!(verify(&library, &known, &expect).is_unknown_alone());
    let found = verify(&library, &other, &expect);
    assert_eq!(codes(&found.findings), ["other_base"]);
    let message = found.findings[0].to_string();
    assert!(message.starts_with("it is not the known image ours: its SHA-256 is "), "{message}");
    assert!(!found.differences.is_empty());
}

#[test]
fn half_an_image_in_a_valid_container_is_named_as_such() {
    let (library, ..) = patched();
    let words = |body: &[u8], originals| {
        let image = Image::from_body(body.to_vec()).unwrap();
        let expect = Expectations { originals, ..Default::default() };
        verify(&library, &image, &expect).changed_words(&library)
    };
    let available: Option<Originals<'_>> = Some(&practice_original);
    let mut body = practice::image().body().to_vec();
    let len = body.len();
    for cut in [0x4000, 0x8000, 0xC000, 0x1_4000] {
        let missing = len - cut;
        let expected = format!("practice without the last {missing} of {len} bytes of code");
        assert_eq!(words(&body[..cut], available), Some(expected), "{cut:#x}");
    }
    assert_eq!(words(&body[..0xC000], None).unwrap(), "practice without bank 1");
    body[0x300] ^= 1;
    let changed = words(&body[..0xC000], available).unwrap();
    assert!(changed.ends_with(" bytes of code, and with 1 other byte (c:0x0300)"), "{changed}");
    // A version that nobody knows.
    body[0x200..0x206].copy_from_slice(&[0x23, 0x12, 0x18, 0x85, 0x00, 0x00]);
    assert_eq!(words(&body[..0xC000], available).unwrap(), "version 231218.85.00.00 without bank 1");
    assert_eq!(words(&body, available), None);
}

#[test]
fn a_broken_container_is_a_finding_and_its_bytes_are_still_compared() {
    let (library, file, _) = patched();
    let mut broken = file.clone();
    broken[0x100] ^= 0xFF;
    let base = practice::image().sha256();
    let expect = Expectations { image: Some(base), originals: Some(&practice_original), ..Default::default() };
    let verification = verify_file(&library, &broken, &expect);
    assert_eq!(codes(&verification.findings), ["checksum"]);
    let only = Difference::at(FileOffset(0x100), Some(file[0x100]), Some(broken[0x100]));
    assert_eq!(verification.differences, [only]);
    let cut = verify_file(&library, &file[..file.len() - 1], &expect);
    assert_eq!(cut.differences.last().map(|d| d.found), Some(None));
}

#[test]
fn a_receipt_of_other_bytes_and_an_edited_one_have_different_findings() {
    let (library, file, receipt) = patched();
    let findings = |file: &[u8], receipt: &Receipt| {
        let found =
            verify_file(&library, file, &Expectations { receipt: Some(receipt), ..Default::default() }).findings;
        found.iter().map(|finding| format!("{}: {finding}", codes(slice::from_ref(finding))[0])).collect::<Vec<_>>()
    };
    let unpatched = findings(&practice::image().to_file(), &receipt);
    assert!(
        matches!(&unpatched[..], [only] if only.starts_with("other_receipt: this is the receipt of another image")),
        "{unpatched:?}"
    );
    let mut edited = receipt.clone();
    edited.config = toml::from_str("vendor-id = 0x1234").unwrap();
    assert_eq!(findings(&file, &edited), ["receipt_config: the receipt's [config] does not match its patches"]);
    edited = receipt.clone();
    edited.patches.retain(|patch| patch.id != "status-0x2a12");
    let unlisted = "patch_unlisted: the patch `status-0x2a12` is in the file, but not in the receipt";
    assert_eq!(findings(&file, &edited), [unlisted]);
    edited = receipt.clone();
    edited.patches[0].digest = Sha256Digest([0; 32]);
    assert!(matches!(&findings(&file, &edited)[..], [only] if only.starts_with("patch_digest: ")));
    edited.patches[0].id = "gone".to_owned();
    let unknown = "unknown_patch: the receipt names the patch `gone`, which is not known";
    assert_eq!(findings(&file, &edited), [unknown]);
}

#[test]
fn foreign_bytes_in_place_of_a_patch_are_found_without_the_original() {
    let (library, file, _) = patched();
    let mut image = Image::parse(&file).unwrap();
    assert!(image.replace(BodyOffset(0x2A0E), &[0x99]));
    let base = practice::image().sha256();
    let expect = Expectations { image: Some(base), ..Default::default() };
    let findings = verify_file(&library, &image.to_file(), &expect).findings;
    assert_eq!(codes(&findings), ["unknown_base", "hunk"]);
    assert!(findings[1].to_string().ends_with("those of the patch `status-0x2a12`"));
}

proptest::proptest! {
    // Each case compares three whole images.
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    #[test]
    fn any_bytes_are_verified_without_a_panic(mut bytes: Vec<u8>, at in 0usize..98_016, cut in 0usize..98_016) {
        let (library, mut file, receipt) = patched();
        let expect = Expectations {
            receipt: Some(&receipt),
            image: Some(receipt.input.sha256),
            originals: Some(&practice_original),
        };
        proptest::prop_assert!(!verify_file(&library, &bytes, &expect).is_valid());
        bytes.truncate(file.len() - at);
        let changed = file[at..at + bytes.len()] != bytes[..];
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        proptest::prop_assert_eq!(verify_file(&library, &file, &expect).is_valid(), !changed);
        proptest::prop_assert!(!verify_file(&library, &file[..cut], &expect).is_valid());
    }
}

#[test]
fn a_patch_that_came_with_an_image_explains_the_change_but_is_not_trusted() {
    let image = practice::image();
    let mark = format!(
        "id = 'mark'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = true\n[[images]]\nsha256 = '{}'\nname = 'practice'\n\
         [[images.hunks]]\nat = 'file:0x16ebe'\nexpect = '0000'\nnew = '2222'\n",
        image.sha256()
    );
    let setting =
        "id = 'setting'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = true\n[config]\nflags = 'ffffffff'\n";
    let library = |is_vouched: bool| {
        let mut library = Library::of_repository().unwrap();
        for (origin, text) in [("mark.toml", mark.as_str()), ("setting.toml", setting)] {
            if is_vouched { library.add(origin, text) } else { library.add_unvouched(origin, text) }.unwrap();
        }
        library.know(image.sha256(), "practice", image.version());
        library
    };
    let own = library(true);
    let digest = image.sha256();
    let patched = PatchSet::resolve(&own, &Selection::default(), &image, digest).unwrap().apply().unwrap();
    let file = patched.image.to_file();
    let expect = Expectations { receipt: Some(&patched.receipt), ..Default::default() };
    assert!(verify_file(&own, &file, &expect).is_valid());

    let beside = library(false);
    let found = verify_file(&beside, &file, &expect);
    // One patch changes code, the other only the configuration, which the receipt names.
    assert_eq!((codes(&found.findings), found.base), (vec!["patch_unvouched"; 2], Some(digest)));
    assert!(found.findings[0].to_string().contains("`mark`") && found.findings[1].to_string().contains("`setting`"));
    assert!(!found.is_valid() && !found.is_unknown_alone());
    assert_eq!(codes(&verify_file(&beside, &file, &Expectations::default()).findings), ["patch_unvouched"]);
    assert!(verify_file(&beside, &image.to_file(), &Expectations::default()).is_valid());
}
