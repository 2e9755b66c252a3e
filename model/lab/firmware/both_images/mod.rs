//! The practice image and the vendor's on the whole chip model, from the reset vector: a unit enumerates, answers,
//! flashes itself and restarts. Behaviour of one image alone has a separate test.

mod bulk_only;
mod commands;
mod control;
mod drive;
mod transfers;
mod uas;
use std::collections::HashSet;

use asm2464::firmware::{BodyOffset, Image, known_blocks};
use asm2464::scsi::bot::Direction;
use asm2464::scsi::runtime::INITIALISATION;
use asm2464_chip::chip::{
    BulkOnlyReply, COMMAND_OUT, DATA_IN, DATA_OUT, Data, Driver, PacketIn, PacketOut, RunEnd, STATUS_IN, Speed,
    UasReply, Unanswered,
};
use asm2464_chip::mcu::CodeSpace;
use asm2464_chip::practice;

use crate::chip_images::{cdb16, pattern, powered_on, reset_recovery};

const SPEEDS: [Speed; 2] = [Speed::Super, Speed::High];
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
/// E4 that reads the running version.
const READ_VERSION: [u8; 6] = [0xE4, 6, 0x50, 0x07, 0xF0, 0];
/// PCIe address of the I/O completion queue.
const COMPLETION_QUEUE: u64 = 0x0082_2000;

fn stock() -> Image {
    practice::image()
}

/// The image with the status patch.
fn patched(image: &Image) -> Image {
    let mut image = image.clone();
    assert!(image.replace(BodyOffset(0x2A0E), &[0x05]));
    image
}

fn on_bulk_only(image: &Image, speed: Speed) -> Driver {
    let mut unit = powered_on(image, speed);
    unit.enumerate().unwrap();
    unit
}

fn on_uas(image: &Image, speed: Speed) -> Driver {
    let mut unit = on_bulk_only(image, speed);
    unit.set_alternate(1).unwrap();
    unit
}

fn initialise(unit: &mut Driver) {
    for (addr, value) in INITIALISATION {
        let [high, low] = addr.to_be_bytes();
        assert!(is_good(&unit.uas(1, &[0xE5, value, 0x50, high, low, 0], &[]).unwrap(), 1));
    }
}

fn is_inquiry(data: &[u8]) -> bool {
    data.len() == 36 && data.starts_with(&[0x00, 0x80]) && data[8..].starts_with(b"tiny    TinyEnclosure")
}

fn is_good(reply: &UasReply, tag: u8) -> bool {
    reply.status.starts_with(&[0x03, 0, 0, tag, 0, 0, 0])
}

/// Sense key, ASC and ASCQ of a sense IU.
fn sense(reply: &UasReply) -> [u8; 3] {
    assert_eq!((reply.status.len(), reply.status[6]), (34, 0x02), "check condition");
    [reply.status[18], reply.status[28], reply.status[29]]
}

/// Sense key, ASC and ASCQ after a CHECK CONDITION over Bulk-Only.
fn requested_sense(unit: &mut Driver) -> [u8; 3] {
    let data = unit.bulk_only(&[3, 0, 0, 0, 18, 0], Data::In(18)).unwrap().data;
    [data[2], data[12], data[13]]
}

fn text(descriptor: &[u8]) -> String {
    let units: Vec<u16> = descriptor[2..].chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    String::from_utf16(&units).unwrap()
}
