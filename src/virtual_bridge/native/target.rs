//! The SCSI target: what each command does to the unit, whatever transport brought it.

use std::time::{Duration, Instant};

use super::exchange::{CommandEnding, CommandExchange, DataPlan};
use super::pages;
use super::vendor::Vendor;
use crate::firmware::BridgeState;
use crate::scsi::bot::Direction;
use crate::scsi::{BLOCK_LEN, Sense, SenseKey, opcode};
use crate::virtual_bridge::descriptors::Identity;

pub(super) const WRITE_FAULT: Sense = Sense::new(SenseKey::MEDIUM_ERROR, 0x03, 0x00);
/// The plain responder's blocks: 32 MiB.
const BLOCKS: u64 = 0x1_0000;
const LBA_OUT_OF_RANGE: Sense = Sense::new(SenseKey::ILLEGAL_REQUEST, 0x21, 0x00);
const LUN_NOT_SUPPORTED: Sense = Sense::new(SenseKey::ILLEGAL_REQUEST, 0x25, 0x00);

/// What the boot loader answers: TEST UNIT READY, REQUEST SENSE, INQUIRY, and the vendor commands that flash a unit.
/// Source: cyrozap's notes, openpilot's flasher.
const BOOT_LOADER_COMMANDS: [u8; 6] = [
    opcode::TEST_UNIT_READY,
    opcode::REQUEST_SENSE,
    opcode::INQUIRY,
    opcode::CONFIG_WRITE,
    opcode::FLASH_WRITE,
    opcode::RESET,
];

/// The unit behind its transports.
#[derive(Debug)]
pub(super) struct Target {
    /// Who answers the vendor commands.
    pub(super) vendor: Vendor,
    pub(super) identity: Identity,
    pub(super) state: BridgeState,
    pub(super) command_time: Duration,
    /// What the next REQUEST SENSE answers.
    pub(super) sense: Sense,
}

impl Target {
    /// Starts a command in `exchange`, which is idle.
    pub(super) fn start(&mut self, cdb: &[u8; 16], lun: u8, exchange: &mut CommandExchange) {
        exchange.cdb = *cdb;
        let (plan, ending) = self.command(cdb, lun, &mut exchange.data);
        exchange.plan = plan;
        exchange.ending = ending;
        exchange.limit = exchange.intent().map_or(0, |(_, len)| len);
        if exchange.limit == 0 && ending == CommandEnding::AfterData {
            exchange.ending = self.finish(cdb, &[]);
        }
        exchange.ready_at = self.ready_at();
    }

    /// Ends a command whose data is there.
    pub(super) fn finish(&mut self, cdb: &[u8; 16], data: &[u8]) -> CommandEnding {
        self.vendor.finish(self.state, cdb, data)
    }

    /// When the status of a command that has been worked off just now can be fetched.
    pub(super) fn ready_at(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let takes = self.command_time + self.vendor.flash.take_busy(now);
        (!takes.is_zero()).then(|| now + takes)
    }

    fn command(&mut self, cdb: &[u8; 16], lun: u8, data: &mut Vec<u8>) -> (DataPlan, CommandEnding) {
        let sense = std::mem::replace(&mut self.sense, Sense::NONE);
        let opcode = cdb[0];
        if lun != 0 && !matches!(opcode, opcode::REQUEST_SENSE | opcode::INQUIRY | opcode::REPORT_LUNS) {
            return check(LUN_NOT_SUPPORTED);
        }
        if self.state == BridgeState::BootLoader && !BOOT_LOADER_COMMANDS.contains(&opcode) {
            return check(Sense::INVALID_OPCODE);
        }
        match opcode {
            opcode::REQUEST_SENSE => give(data, &sense.to_fixed(), usize::from(cdb[4])),
            opcode::INQUIRY => match pages::inquiry(cdb, lun, &self.identity, data) {
                true => cut(data, usize::from(u16::from_be_bytes([cdb[3], cdb[4]]))),
                false => check(Sense::INVALID_FIELD_IN_CDB),
            },
            opcode::REPORT_LUNS => {
                give(data, &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], big_endian(&cdb[6..10]) as usize)
            }
            opcode::MODE_SENSE_6 => match pages::mode(cdb[2], data, false) {
                true => cut(data, usize::from(cdb[4])),
                false => check(Sense::INVALID_FIELD_IN_CDB),
            },
            0x5A => match pages::mode(cdb[2], data, true) {
                true => cut(data, usize::from(u16::from_be_bytes([cdb[7], cdb[8]]))),
                false => check(Sense::INVALID_FIELD_IN_CDB),
            },
            0x1B | 0x1E => (DataPlan::None, CommandEnding::Good),
            opcode::TEST_UNIT_READY if self.state == BridgeState::BootLoader => check(Sense::MEDIUM_NOT_PRESENT),
            opcode::TEST_UNIT_READY | opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                (DataPlan::None, CommandEnding::Good)
            }
            opcode::READ_CAPACITY_10 | opcode::SERVICE_ACTION_IN_16 => capacity(cdb, data),
            // RDPROTECT and WRPROTECT: the unit is formatted without protection information (SBC-4, READ and WRITE).
            opcode::READ_10 | opcode::WRITE_10 | opcode::READ_16 | opcode::WRITE_16 if cdb[1] & 0xE0 != 0 => {
                check(Sense::INVALID_FIELD_IN_CDB)
            }
            opcode::READ_10 => transfer(Direction::In, big_endian(&cdb[2..6]), big_endian(&cdb[7..9])),
            opcode::WRITE_10 => transfer(Direction::Out, big_endian(&cdb[2..6]), big_endian(&cdb[7..9])),
            opcode::READ_16 => transfer(Direction::In, big_endian(&cdb[2..10]), big_endian(&cdb[10..14])),
            opcode::WRITE_16 => transfer(Direction::Out, big_endian(&cdb[2..10]), big_endian(&cdb[10..14])),
            opcode::CONFIG_READ..=opcode::RESET => self.vendor.begin(cdb, data),
            _ => check(Sense::INVALID_OPCODE),
        }
    }
}

fn capacity(cdb: &[u8; 16], data: &mut Vec<u8>) -> (DataPlan, CommandEnding) {
    if cdb[0] == opcode::SERVICE_ACTION_IN_16 && cdb[1] & 0x1F != 0x10 {
        return check(Sense::INVALID_FIELD_IN_CDB);
    }
    let last = BLOCKS - 1;
    if cdb[0] == opcode::READ_CAPACITY_10 {
        data.extend((last as u32).to_be_bytes());
        data.extend((BLOCK_LEN as u32).to_be_bytes());
        (DataPlan::In, CommandEnding::Good)
    } else {
        data.extend(last.to_be_bytes());
        data.extend((BLOCK_LEN as u32).to_be_bytes());
        data.resize(32, 0);
        cut(data, big_endian(&cdb[10..14]) as usize)
    }
}

/// READ brings zeros; what WRITE takes nobody keeps.
fn transfer(direction: Direction, lba: u64, blocks: u64) -> (DataPlan, CommandEnding) {
    if lba.checked_add(blocks).is_none_or(|end| end > BLOCKS) {
        return check(LBA_OUT_OF_RANGE);
    }
    let len = blocks * BLOCK_LEN as u64;
    let plan = match direction {
        Direction::In => DataPlan::InZeros { len },
        Direction::Out => DataPlan::OutDropped { len },
    };
    (plan, CommandEnding::Good)
}

pub(super) const fn check(sense: Sense) -> (DataPlan, CommandEnding) {
    (DataPlan::None, CommandEnding::Check(sense))
}

fn give(data: &mut Vec<u8>, bytes: &[u8], allocation: usize) -> (DataPlan, CommandEnding) {
    data.extend_from_slice(bytes);
    cut(data, allocation)
}

fn cut(data: &mut Vec<u8>, allocation: usize) -> (DataPlan, CommandEnding) {
    data.truncate(allocation);
    (DataPlan::In, CommandEnding::Good)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
