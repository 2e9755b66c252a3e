//! Open firmware on the whole chip, from the reset vector: `ASMPATCH_OPEN_IMAGE` says where it lies.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;

use asmpatch::chip::{Outcome, Speed};
use chip_images::{open, powered_on};

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn it_boots_and_enumerates() {
    let mut unit = powered_on(&open(), Speed::Super);
    let outcome = unit.settle();
    eprintln!("{outcome:?} at {:05X} after {} instructions, now {}", unit.chip.pc(), unit.chip.instructions(), unit.chip.now());
    eprintln!("{}", String::from_utf8_lossy(&unit.chip.take_uart()));
    assert_eq!(outcome, Outcome::Parked);
    let device = unit.descriptor(1, 0, 18).unwrap();
    eprintln!("{device:02X?}");
    let bos = unit.descriptor(15, 0, 255).unwrap();
    eprintln!("{bos:02X?}");
    eprintln!("{:02X?}", unit.descriptor(2, 0, 255).unwrap());
    let product = unit.descriptor(3, 2, 255).unwrap();
    eprintln!("{}", String::from_utf8_lossy(&product));
    unit.enumerate().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&unit.chip.take_uart()));
    eprintln!("{:?}", unit.chip.unknown_registers().len());
}
