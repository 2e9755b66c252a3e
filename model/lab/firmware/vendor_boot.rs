//! The power-on checks of `verify --boot` on the chip model: the vendor's image, the open firmware, and images that
//! fail.

use asm2464::TransportKind;
use asm2464::firmware::{BodyOffset, BridgeState, FileOffset, Image};
use asm2464_chip::chip::boot::{self, BootFault, BootReport, Effects};
use asm2464_chip::chip::{Board, PartRevision, ProofBudget, Speed};
use asm2464_chip::spi_flash::FlashFaults;

use crate::chip_images::{file, open, patched_231204, powered_on, vendor, vendor_231204, with};

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_does_all_that_it_must_over_both_transports() {
    let report = boot::check(&vendor());
    assert!(report.passes(), "{report:#?}");
    assert_eq!(report.state(), Some(BridgeState::Vendor));
    assert!(report.checks.iter().any(|check| check.wire == TransportKind::Uas));
}

#[test]
#[ignore = "needs all three ASMPATCH_VENDOR images and all three ASMPATCH_OPEN images"]
fn every_image_boots_and_enumerates_on_a_newer_part() {
    for name in ["VENDOR", "VENDOR_231204", "VENDOR_250123", "OPEN", "OPEN_NEW", "OPEN_USB4"] {
        for speed in [Speed::Super, Speed::High] {
            let mut unit = powered_on(&Image::parse(&file(&format!("ASMPATCH_{name}_IMAGE"))).unwrap(), speed);
            unit.chip.set_board(Board { part_revision: PartRevision::R07, ..Board::default() });
            assert!(unit.enumerate().is_ok(), "{name} {speed:?}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_250123_IMAGE"]
fn the_image_250123_is_known_and_passes_every_check() {
    let image = Image::parse(&file("ASMPATCH_VENDOR_250123_IMAGE")).unwrap();
    let manifests = asmpatch::embedded::manifests(&[]).unwrap();
    let known = manifests.by_sha256(&image.sha256()).unwrap();
    assert_eq!((known.id.as_str(), known.version.to_string()), ("250123", image.version().to_string()));
    let report = boot::check(&image);
    assert!(report.passes(), "{report:#?}");
    assert_eq!(report.state(), Some(BridgeState::Vendor));
}

fn effects(image: &Image, effects: Effects) -> BootReport {
    boot::check_effects(image, effects, &ProofBudget::default()).unwrap()
}

const STATUS: Effects = Effects { answers_writes: true, e4_extension: false, read16_sram: false };
const ALL: Effects = Effects { e4_extension: true, read16_sram: true, ..STATUS };

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_shows_the_effects_of_the_patches_in_it() {
    let all = with(&["e4-length-16", "read16-sram"]);
    for (image, expected) in [(vendor(), Effects::default()), (with(&[]), STATUS), (all, ALL)] {
        let report = effects(&image, expected);
        assert!(report.passes(), "{report:#?}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn patched_231204_answers_writes_after_its_own_initialisation() {
    let stock = vendor_231204();
    let report = effects(&patched_231204(), STATUS);
    assert!(report.passes(), "{report:#?}");
    let (check, _) = effects(&stock, STATUS).failure().map(|(check, fault)| (check.what, fault.clone())).unwrap();
    assert_eq!(check, "answers WRITE(16) without an SSD", "without the patch it does not");
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn a_patch_whose_effect_is_missing_fails() {
    for (patch, what) in [
        ("read16-sram", "reads more than 255 bytes of the SRAM (E4)"),
        ("e4-length-16", "reads the SRAM with READ(16)"),
    ] {
        let report = effects(&with(&[patch]), ALL);
        assert_eq!(report.failure().map(|(check, _)| check.what), Some(what), "{report:#?}");
    }
}

/// docs/lab/firmware.md, "What is assumed": then the first bytes of a configuration block are not those that were sent.
#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_passes_even_if_status_and_id_pass_through_the_flash_buffer() {
    let report = boot::check_with(&vendor(), FlashFaults { status_in_buffer: true, ..FlashFaults::default() });
    assert!(report.passes(), "{report:#?}");
}

#[test]
#[ignore = "needs the open firmware's image in ASMPATCH_OPEN_IMAGE"]
fn the_open_firmware_does_all_that_it_must() {
    let report = boot::check(&open());
    assert!(report.passes(), "{report:#?}");
    assert_eq!(report.state(), Some(BridgeState::OpenFirmware));
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn an_image_whose_configuration_write_hangs_fails_there() {
    let mut image = vendor();
    // E1's handler, b1:0xE89B, jumps to itself.
    assert!(image.replace(BodyOffset(0xFF6B + 0xE89B - 0x8000), &[0x80, 0xFE]));
    let report = boot::check(&image);
    assert!(!report.passes());
    let (check, fault) = report.failure().unwrap();
    assert_eq!(check.what, "takes a configuration block (E1)", "{report:#?}");
    assert!(matches!(fault, BootFault::Hung { at: Some(at), .. } if at.to_string() == "b1:0xE89B"), "{fault}");
}

/// A wrong patch: the firmware enumerates, but halts its data endpoint whatever the host does.
#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn an_image_that_never_ends_a_command_fails_at_its_first_dead_answer() {
    let mut image = vendor();
    assert!(image.replace(FileOffset(0x16841).body_offset().unwrap(), &[0xAE; 256]));
    let report = boot::check(&image);
    let (check, fault) = report.failure().unwrap();
    let dead = report.checks.iter().filter(|check| check.outcome.is_err()).count();
    assert!(report.state().is_some() && dead == 1 && check.instructions < 50_000_000, "{report:#?}");
    let said = fault.to_string();
    assert!(said.starts_with("no answer: ") && said.contains(":0x"), "{said}");
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn an_image_that_does_not_start_fails_before_anything_else() {
    let mut image = vendor();
    assert!(image.replace(BodyOffset(0), &[0x80, 0xFE]));
    let report = boot::check(&image);
    assert_eq!((report.state(), report.checks.len()), (None, 1));
    assert!(report.failure().unwrap().1.to_string().contains("c:0x0000"));
}
