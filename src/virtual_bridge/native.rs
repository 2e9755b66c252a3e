//! The vendor commands, natively: what the reference page's table says of the handlers in image 240417.

use super::chip::Chip;
use super::firmware::{Firmware, Reply, TransferStatus};
use super::nor::{FlashFault, SECTOR_LEN};
use crate::firmware::{Bank, BlockIndex, CONFIG_BLOCK_LEN, CodeAddress, FlashAddress, Image, Part};
use crate::scsi::bot::Direction;
use crate::scsi::{ResetMode, Sense, SenseKey, XdataAddress, XdataPage};

/// The most that E2 reads in one command.
const MAX_FLASH_READ: u32 = 0x1_0000;
/// How far the second slot stands behind the first.
const SECOND_SLOT: u32 = 0x02_0000;
/// Where MOV R7,#status; RET stands, the end of the routine that queues a write. Source: image 240417, whose address the
/// practice image keeps.
const WRITE_STATUS: u16 = 0x2A0D;
const WRITE_FAULT: Sense = Sense::new(SenseKey::MEDIUM_ERROR, 0x03, 0x00);

/// The vendor's handlers, rewritten; E4 takes its length from CDB byte 1 alone.
#[derive(Debug)]
pub struct NativeFirmware {
    write_status: TransferStatus,
}

impl NativeFirmware {
    /// Behaves as `image` would: its status byte decides how a write with no SSD behind the bridge ends.
    pub fn new(image: &Image) -> Self {
        let code = |addr| CodeAddress::new(Bank::Common, addr).and_then(|at| image.code(at));
        let byte = match [code(WRITE_STATUS), code(WRITE_STATUS + 1), code(WRITE_STATUS + 2)] {
            [Some(0x7F), Some(status), Some(0x22)] => status,
            _ => 0x0A,
        };
        Self { write_status: TransferStatus::from_status_byte(byte) }
    }
}

impl Firmware for NativeFirmware {
    fn begin(&mut self, chip: &mut Chip, cdb: &[u8; 16], _host_len: Option<u32>, data: &mut Vec<u8>) -> Reply {
        match cdb[0] {
            0xE0 => match config_address(cdb) {
                Some(at) => read_flash(chip, at, CONFIG_BLOCK_LEN, data),
                None => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE1 => match config_address(cdb) {
                Some(_) => Reply::DataOut(CONFIG_BLOCK_LEN as u32),
                None => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE2 => match part_address(cdb) {
                Some((_, at, len)) if len <= MAX_FLASH_READ => read_flash(chip, at, len as usize, data),
                _ => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE3 => match part_address(cdb) {
                Some((part, _, len)) if len as usize <= part.max_len() => Reply::DataOut(len),
                _ => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE4 => match xdata_page(cdb) {
                Some(page) => {
                    let first = u16::from_be_bytes([cdb[3], cdb[4]]);
                    let place = |at: u16| XdataAddress { page, addr: first.wrapping_add(at) };
                    data.extend((0..u16::from(cdb[1])).map(|at| chip.xdata_at(place(at))));
                    Reply::DataIn
                }
                None => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE5 => match xdata_page(cdb) {
                Some(page) => {
                    let addr = u16::from_be_bytes([cdb[3], cdb[4]]);
                    chip.set_xdata(XdataAddress { page, addr }, cdb[1]);
                    Reply::Good
                }
                None => Reply::Check(Sense::INVALID_FIELD_IN_CDB),
            },
            0xE8 => match cdb[1] {
                0x50 => Reply::Reset(ResetMode::CpuReset),
                0x51 => Reply::Reset(ResetMode::Halt),
                _ => Reply::Check(Sense::INVALID_OPCODE),
            },
            _ => Reply::Check(Sense::INVALID_OPCODE),
        }
    }

    fn finish(&mut self, chip: &mut Chip, cdb: &[u8; 16], data: &[u8]) -> Reply {
        let written = match cdb[0] {
            0xE1 => config_address(cdb).map(|at| rewrite_sector(chip, at, data)),
            0xE3 => part_address(cdb).map(|(_, at, _)| write_part(chip, at, data)),
            _ => None,
        };
        match written {
            Some(Ok(())) => Reply::Good,
            // Without power nothing answers any more.
            Some(Err(FlashFault::PowerLost)) => Reply::Silent,
            Some(Err(_)) => Reply::Check(WRITE_FAULT),
            None => Reply::Check(Sense::INVALID_OPCODE),
        }
    }

    fn queue_transfer(&mut self, _chip: &mut Chip, direction: Direction) -> TransferStatus {
        match direction {
            Direction::In => TransferStatus::Queued,
            Direction::Out => self.write_status,
        }
    }
}

/// The boot loader in ROM: of the vendor commands it takes the ones that flash a unit.
#[derive(Debug)]
pub(super) struct BootLoader;

impl Firmware for BootLoader {
    fn begin(&mut self, chip: &mut Chip, cdb: &[u8; 16], host_len: Option<u32>, data: &mut Vec<u8>) -> Reply {
        // The target lets only E1, E3 and E8 through.
        NativeFirmware { write_status: TransferStatus::Queued }.begin(chip, cdb, host_len, data)
    }

    fn finish(&mut self, chip: &mut Chip, cdb: &[u8; 16], data: &[u8]) -> Reply {
        NativeFirmware { write_status: TransferStatus::Queued }.finish(chip, cdb, data)
    }

    fn queue_transfer(&mut self, _chip: &mut Chip, _direction: Direction) -> TransferStatus {
        TransferStatus::Queued
    }
}

fn config_address(cdb: &[u8; 16]) -> Option<FlashAddress> {
    let slot = slot(cdb[1])?;
    let block = match cdb[2] {
        0 => BlockIndex::Zero,
        1 => BlockIndex::One,
        _ => return None,
    };
    Some(FlashAddress(slot + u32::from(block.number()) * CONFIG_BLOCK_LEN as u32))
}

fn part_address(cdb: &[u8; 16]) -> Option<(Part, FlashAddress, u32)> {
    let slot = slot(cdb[1] & 0x7F)?;
    let part = if cdb[1] & 0x80 == 0 { Part::One } else { Part::Two };
    let len = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]);
    Some((part, FlashAddress(slot + part.flash_address().0), len))
}

fn slot(mode: u8) -> Option<u32> {
    match mode {
        0x50 => Some(0),
        0x51 => Some(SECOND_SLOT),
        _ => None,
    }
}

fn xdata_page(cdb: &[u8; 16]) -> Option<XdataPage> {
    match cdb[2] {
        0x50 => Some(XdataPage::Main),
        0x51 => Some(XdataPage::Other),
        _ => None,
    }
}

fn read_flash(chip: &Chip, at: FlashAddress, len: usize, data: &mut Vec<u8>) -> Reply {
    match chip.flash.get(at, len) {
        Some(cells) => {
            data.extend_from_slice(cells);
            Reply::DataIn
        }
        None => Reply::Check(Sense::UNRECOVERED_READ_ERROR),
    }
}

/// Erases what a part covers and programs it. The first sector of a slot also holds the configuration blocks, which
/// stay.
fn write_part(chip: &mut Chip, at: FlashAddress, data: &[u8]) -> Result<(), FlashFault> {
    let sector = FlashAddress(at.0 / SECTOR_LEN as u32 * SECTOR_LEN as u32);
    let before = (at.0 - sector.0) as usize;
    let kept = chip.flash.get(sector, before).unwrap_or_default().to_vec();
    for offset in (0..before + data.len()).step_by(SECTOR_LEN) {
        chip.flash.erase_sector(FlashAddress(sector.0 + offset as u32))?;
        if offset == 0 {
            chip.flash.program(sector, &kept)?;
        }
    }
    chip.flash.program(at, data)
}

/// Changes a few bytes of a sector and keeps the rest.
fn rewrite_sector(chip: &mut Chip, at: FlashAddress, data: &[u8]) -> Result<(), FlashFault> {
    let sector = FlashAddress(at.0 / SECTOR_LEN as u32 * SECTOR_LEN as u32);
    let mut cells = chip.flash.get(sector, SECTOR_LEN).unwrap_or_default().to_vec();
    let offset = (at.0 - sector.0) as usize;
    let outside = FlashFault::Outside { address: at, len: data.len() };
    cells.get_mut(offset..offset + data.len()).ok_or(outside)?.copy_from_slice(data);
    chip.flash.erase_sector(sector)?;
    chip.flash.program(sector, &cells)
}
