//! The practice image: the project's own 8051 program in the vendor's container and banking.
//!
//! asmpatch can do to this image everything that it does to the vendor's, so that nothing but this source tree is
//! needed to try, test and demonstrate it. `practice.md` in this folder says what the program does. It is written
//! in assembly (`common.asm` and `bank1.asm` name the parts), assembled by SDCC into the Intel HEX files beside it, and
//! those are put into their container here.

use asm2464::firmware::{BANK_LEN, BANK1_BODY_START, CodeAddress, Image};
use ihex::{Reader, Record};

const COMMON_HEX: &str = include_str!("common.ihx");
const BANK1_HEX: &str = include_str!("bank1.ihx");
const OPEN_HEX: &str = include_str!("open.ihx");

/// The practice image.
///
/// # Panics
/// Never: its bytes are part of the program, and a test reads them.
pub fn image() -> Image {
    let mut body = vec![0; (BANK1_BODY_START + BANK_LEN) as usize];
    for (selected, hex) in [(0, COMMON_HEX), (1, BANK1_HEX)] {
        for record in Reader::new(hex) {
            if let Record::Data { offset, value } = record.expect("the assembler writes valid Intel HEX") {
                let at = CodeAddress::fetched(selected, offset).expect("the program stays inside its banks");
                let start = at.body_offset().0 as usize;
                body[start..start + value.len()].copy_from_slice(&value);
            }
        }
    }
    Image::from_body(body).expect("the body has a full image's length")
}

/// The practice image that stands in for open firmware: to a flasher, a unit that runs it looks like one with
/// tinygrad's.
///
/// # Panics
/// Never: its bytes are part of the program, and a test reads them.
pub fn open_image() -> Image {
    let mut body = Vec::new();
    for record in Reader::new(OPEN_HEX) {
        if let Record::Data { offset, value } = record.expect("the assembler writes valid Intel HEX") {
            let start = usize::from(offset);
            body.resize(body.len().max(start + value.len()), 0);
            body[start..start + value.len()].copy_from_slice(&value);
        }
    }
    Image::from_body(body).expect("the body has room for a version")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use asm2464::firmware::Bank;
    use asm2464::scsi::runtime::INITIALISATION;
    use asm2464::scsi::{Sense, XdataAddress};

    use super::*;
    use crate::chip::{Chip, Data, Driver, Ending, Speed};
    use crate::mcu::CodeSpace;
    use crate::spi_flash::SpiFlash;

    /// The digest that `patches/*.toml` names in its sections for the practice image.
    const SHA256: &str = "7b667c690895e2a4e09a94e9354089101ac4034f8c783bb369c37689116f5d27";

    #[test]
    fn its_digest_is_the_one_that_the_patch_files_name() {
        let digest = image().sha256().to_string();
        assert_eq!(
            digest, SHA256,
            "the practice image has changed: put its new SHA-256 into this test and into every patches/*.toml that \
             has a section for it, and check that section's expected bytes"
        );
    }

    #[test]
    fn the_open_image_passes_the_checks_of_open_firmware() {
        let report = crate::chip::boot::check(&open_image());
        assert_eq!(report.failure(), None);
        assert_eq!(report.state(), Some(asm2464::firmware::BridgeState::OpenFirmware));
    }

    #[test]
    fn it_has_the_vendors_length_banks_and_room_for_new_code() {
        let image = image();
        assert_eq!(image.body().len(), 98_006);
        assert_eq!(Image::parse(&image.to_file()).unwrap(), image);
        assert_eq!(image.version().to_string(), "261121.00.00.01");
        for cave in [CodeAddress::new(Bank::Bank1, 0xF840).unwrap(), CodeAddress::new(Bank::Common, 0x6800).unwrap()] {
            assert!((0..1024).all(|i| image.body()[cave.body_offset().0 as usize + i] == 0));
        }
    }

    #[test]
    fn the_patched_places_have_the_vendors_shapes() {
        let image = image();
        let bytes = |bank, addr, len: usize| {
            let start = CodeAddress::new(bank, addr).unwrap().body_offset().0 as usize;
            image.body()[start..start + len].to_vec()
        };
        assert_eq!(bytes(Bank::Common, 0x29AD, 3), [0x7F, 0x09, 0x22]);
        assert_eq!(bytes(Bank::Common, 0x2A0D, 3), [0x7F, 0x0A, 0x22]);
        assert_eq!(bytes(Bank::Common, 0x3912, 3), [0x12, 0x0D, 0xEF]);
        assert_eq!(bytes(Bank::Common, 0x4D4E, 3), [0x12, 0x40, 0x13]);
    }

    #[test]
    fn no_two_parts_of_the_source_claim_the_same_byte() {
        for hex in [COMMON_HEX, BANK1_HEX, OPEN_HEX] {
            let mut claimed = vec![false; 0x1_0000];
            for record in Reader::new(hex) {
                let Ok(Record::Data { offset, value }) = record else { continue };
                let bytes = &mut claimed[usize::from(offset)..usize::from(offset) + value.len()];
                assert!(bytes.iter().all(|claimed| !claimed), "{offset:#06x}");
                bytes.fill(true);
            }
        }
    }

    /// A unit with `image` and an erased flash.
    fn unit(image: &Image, alternate: u8) -> Driver {
        let mut unit = Driver::new(Chip::power_on(CodeSpace::new(image), SpiFlash::erased(), Speed::Super));
        unit.enumerate().unwrap();
        unit.set_alternate(alternate).unwrap();
        unit
    }

    #[test]
    fn inquiry_names_the_practice_image() {
        let answer = unit(&image(), 0).command(&[0x12, 0, 0, 0, 36, 0], Data::In(36)).unwrap();
        assert_eq!(&answer.data[8..], b"asmpatchpractice image  0100");
    }

    #[test]
    fn a_wrong_mode_byte_leaves_sense_that_request_sense_reports() {
        let mut unit = unit(&image(), 0);
        for (cdb, sense) in [
            (&[0xE4, 1, 0x52, 0, 0, 0][..], Sense::INVALID_FIELD_IN_CDB),
            (&[0xE0, 0x52, 0, 0, 0, 0], Sense::INVALID_FIELD_IN_CDB),
            (&[0xE8, 0x52, 0, 0, 0, 0], Sense::INVALID_OPCODE),
            (&[0xC1, 0, 0, 0, 0, 0], Sense::INVALID_OPCODE),
        ] {
            assert_eq!(unit.command(cdb, Data::None).unwrap().ending, Ending::Check(Some(sense)), "{cdb:02x?}");
        }
    }

    #[test]
    fn queued_transfers_leave_the_statuses_that_the_status_patch_changes() {
        let mut patched = image();
        assert!(patched.replace(CodeAddress::new(Bank::Common, 0x2A0E).unwrap().body_offset(), &[5]));
        for (image, opcode, status) in
            [(image(), 0x88, 9), (image(), 0x8A, 0x0A), (patched.clone(), 0x88, 9), (patched, 0x8A, 5)]
        {
            let mut unit = unit(&image, 1);
            let transfer = [opcode, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
            let data = if opcode == 0x8A { Data::Out(&[0x5A; 512]) } else { Data::None };
            let no_medium = Ending::Check(Some(Sense::MEDIUM_NOT_PRESENT));
            assert_eq!(unit.command(&transfer, data).unwrap().ending, no_medium, "until a runtime says otherwise");
            for (at, value) in INITIALISATION {
                unit.chip.poke(XdataAddress::main(at), &[value]);
            }
            let answer = unit.command(&transfer, data);
            assert_eq!(unit.chip.cpu().internal_ram[0x6A], status);
            assert_eq!(answer.is_ok(), status == 5, "the host is answered at once, or never");
        }
    }

    #[test]
    #[ignore = "needs SDCC"]
    fn the_committed_hex_is_what_the_assembler_makes_of_the_source() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/practice");
        let out = tempfile::tempdir().unwrap();
        for (name, committed) in [("common", COMMON_HEX), ("bank1", BANK1_HEX), ("open", OPEN_HEX)] {
            let object = out.path().join(name).with_extension("rel");
            let assembled = Command::new("sdas8051")
                .current_dir(&source)
                .args(["-o", &object.to_string_lossy(), &format!("{name}.asm")])
                .output()
                .expect("sdas8051 of Debian's package sdcc");
            assert!(assembled.status.success(), "{}", String::from_utf8_lossy(&assembled.stderr));
            let linked = Command::new("sdld")
                .current_dir(out.path())
                .args(["-n", "-i", &format!("{name}.ihx"), &format!("{name}.rel")])
                .output()
                .expect("sdld of Debian's package sdcc");
            // Of a jump out of range sdld only warns, on stdout or stderr: any output is a failure here.
            assert!(
                linked.stderr.is_empty() && linked.stdout.is_empty(),
                "{}",
                String::from_utf8_lossy(&linked.stderr)
            );
            let fresh = fs::read_to_string(out.path().join(name).with_extension("ihx")).unwrap();
            assert_eq!(fresh, committed, "src/practice/{name}.ihx is not what the assembler makes of {name}.asm");
        }
    }
}
