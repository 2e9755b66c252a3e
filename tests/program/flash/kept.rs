//! Units in which the flash's status and ID overwrite the bytes that the next program writes: the first bytes of a
//! configuration block then come back changed, and no other byte does. See docs/lab/firmware.md, "What is assumed".

use asm2464::firmware::{BodyOffset, Image};
use asm2464::interrupt::Interrupt;
use asm2464_chip::chip::boot;
use asm2464_chip::practice;
use asm2464_chip::spi_flash::FlashFaults;
use asmpatch::flash::backup_folder;
use asmpatch::flash::run::{FlashReport, run};

use crate::program::flash::rig::{Rig, asmpatch, plan};
use crate::program::process::good;

const DEFECT: &str = "[flash]\nstatus-in-buffer = true\n";

/// The practice image, but its status goes where the vendor's image puts it: into the first byte of the host's data.
fn image_with_its_status_first() -> Image {
    let mut image = practice::image();
    // mov r2, #>STATUS_AT; mov r3, #<STATUS_AT; mov dptr, #FLASH_BUFFER + STATUS_AT
    for (code, new) in
        [(&[0x7A, 0x0F, 0x7B, 0xFF][..], &[0x7A, 0, 0x7B, 0][..]), (&[0x90, 0x7F, 0xFF], &[0x90, 0x70, 0])]
    {
        let found: Vec<_> = image.body().windows(code.len()).enumerate().filter(|(_, bytes)| *bytes == code).collect();
        let [(at, _)] = found[..] else { panic!("{code:02x?}: {} times", found.len()) };
        assert!(image.replace(BodyOffset(at as u32), new));
    }
    image
}

fn flash(rig: &Rig, image: &Image) -> FlashReport {
    let mut port = rig.port();
    let plan = plan(&mut port, image);
    run(&mut port, &plan, &rig.options(true), &mut (), Interrupt::never()).unwrap()
}

fn assert_untroubled(report: &FlashReport) {
    let trouble: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
    assert!(trouble.is_empty(), "{trouble:?}");
}

#[test]
fn a_block_whose_first_bytes_come_back_changed_is_written_once_verified_and_left_alone() {
    let rig = Rig::new("");
    let stock = rig.cells();
    let stock_backup = flash(&rig, &image_with_its_status_first()).backup.unwrap();
    rig.tell(DEFECT);
    let report = flash(&rig, &practice::image());
    assert_untroubled(&report);
    let read_back = report.steps.iter().find(|step| step.step == "read back configuration block 0").unwrap();
    assert!(read_back.result.starts_with("the same from byte 4 on; bytes 0 to 3 came back changed"), "{read_back:?}");
    let cells = rig.cells();
    assert_ne!(cells[0], stock[0], "the defect shows");
    assert!(cells[4..0x80] == stock[4..0x80] && cells[0x84..] == stock[0x84..]);

    // The earlier backup has other first bytes, but a restore still finds nothing to change.
    let home = rig.home.path();
    let restored = asmpatch(home, &["restore", stock_backup.to_str().unwrap(), "--device", "virtual:unit"]);
    let printed = String::from_utf8_lossy(&restored.stdout);
    assert!(restored.status.success() && printed.contains(r#""changed": false"#), "{printed}");
    assert!(rig.cells() == cells);
    std::fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    good(home, &["verify", "practice.bin", "--device", "virtual:unit"]);

    // A backup of such a unit can be restored, and brings back what it has.
    let saved = flash(&rig, &image_with_its_status_first()).backup.unwrap();
    assert_eq!(backup_folder::load(&saved).unwrap().blocks[0], cells[..0x80]);
    assert_untroubled(&rig.restore(&saved, true).unwrap());
    assert!(rig.cells()[4..] == cells[4..]);
}

#[test]
fn an_image_that_changes_the_first_bytes_of_a_block_passes_the_boot_check() {
    let defects = FlashFaults { status_in_buffer: true, ..FlashFaults::default() };
    let report = boot::check_with(&image_with_its_status_first(), defects);
    assert!(report.passes(), "{report:#?}");
}
