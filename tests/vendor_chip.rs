//! The vendor's image on the whole chip, from the reset vector: `ASMPATCH_VENDOR_IMAGE` says where it lies.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;

use asmpatch::chip::{Data, Driver, Outcome, Speed};
use asmpatch::mcu::MemoryFlash;
use chip_images::{patched, powered_on, vendor};

fn unit() -> Driver<MemoryFlash> {
    let mut unit = powered_on(&vendor(), Speed::Super);
    unit.enumerate().unwrap();
    unit
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_boots_to_its_main_loop_and_waits_there() {
    for image in [vendor(), patched()] {
        let mut unit = powered_on(&image, Speed::Super);
        assert_eq!(unit.settle(), Outcome::Parked);
        eprintln!("parked at {:05X} after {} instructions, now {}", unit.chip.pc(), unit.chip.instructions(), unit.chip.now());
        let list = unit.chip.unknown_registers().to_vec();
        eprintln!("unknown {} {:04X?}", list.len(), list.iter().find(|x| x.at.addr == 0x92C2));
        assert!((60_000..200_000).contains(&unit.chip.instructions()));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_enumerates() {
    let mut unit = powered_on(&vendor(), Speed::Super);
    unit.settle();
    let device = unit.descriptor(1, 0, 18).unwrap();
    eprintln!("{device:02X?}");
    assert_eq!((device.len(), &device[8..12]), (18, &[0xD1, 0xAD, 0x01, 0x00][..]), "the configuration block's ID");
    let bos = unit.descriptor(15, 0, 255).unwrap();
    eprintln!("{bos:02X?}");
    let configuration = unit.descriptor(2, 0, 255).unwrap();
    eprintln!("{configuration:02X?}");
    let product = unit.descriptor(3, 3, 255).unwrap();
    eprintln!("{product:02X?}");
    unit.enumerate().unwrap();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_answers_inquiry_over_bulk_only() {
    let mut unit = unit();
    let reply = unit.bulk_only(&[0x12, 0, 0, 0, 36, 0], Data::In(36)).unwrap();
    eprintln!("{reply:02X?}");
    assert_eq!((reply.data.len(), reply.status, reply.residue), (36, 0, 0));
}
