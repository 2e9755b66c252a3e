//! The vendor commands, natively: what the reference page's table says of the handlers in image 240417, and of the boot
//! loader's.

use super::exchange::{CommandEnding, DataPlan};
use super::target::{WRITE_FAULT, check};
use crate::firmware::{BlockIndex, BridgeState, CONFIG_BLOCK_LEN, FirmwareVersion, FlashAddress, Part};
use crate::mcu::XdataMemory;
use crate::scsi::{ResetMode, Sense, XdataPage, opcode};
use crate::virtual_bridge::nor::{FlashFault, NorFlash, SECTOR_LEN};

/// The most that E2 reads in one command.
const MAX_FLASH_READ: u32 = 0x1_0000;
/// How far the second slot stands behind the first.
const SECOND_SLOT: u32 = 0x02_0000;
/// Where running firmware keeps its version. Source: cyrozap's notes.
const RUNNING_VERSION: usize = 0x07F0;

/// What the vendor commands reach. E4 takes its length from CDB byte 1 alone.
#[derive(Debug)]
pub(super) struct Vendor {
    /// The SPI flash.
    pub(super) flash: NorFlash,
    xdata: XdataMemory,
}

impl Vendor {
    pub(super) fn new(flash: NorFlash) -> Self {
        Self { flash, xdata: XdataMemory::new() }
    }

    /// Clears the memory that loses its content without power, and leaves the version where firmware puts it.
    pub(super) fn power_on(&mut self, version: Option<FirmwareVersion>) {
        self.xdata.clear();
        if let Some(version) = version {
            self.xdata.main_mut()[RUNNING_VERSION..RUNNING_VERSION + 6].copy_from_slice(&version.0);
        }
    }

    /// Starts a vendor command (E0 and up). `cdb` is padded with zeros. Data in goes into `data`, which is empty.
    pub(super) fn begin(&mut self, cdb: &[u8; 16], data: &mut Vec<u8>) -> (DataPlan, CommandEnding) {
        self.begun(cdb, data).unwrap_or(check(Sense::INVALID_FIELD_IN_CDB))
    }

    /// `None` where a field of the CDB means nothing.
    fn begun(&mut self, cdb: &[u8; 16], data: &mut Vec<u8>) -> Option<(DataPlan, CommandEnding)> {
        Some(match cdb[0] {
            opcode::CONFIG_READ => {
                let (_, at) = config_block(cdb)?;
                read_flash(&self.flash, at, CONFIG_BLOCK_LEN, data)
            }
            opcode::CONFIG_WRITE => {
                config_block(cdb)?;
                data_out(CONFIG_BLOCK_LEN as u32)
            }
            opcode::FLASH_READ => {
                let (_, at, len) = part_address(cdb).filter(|(.., len)| *len <= MAX_FLASH_READ)?;
                read_flash(&self.flash, at, len as usize, data)
            }
            opcode::FLASH_WRITE => {
                let (.., len) = part_address(cdb).filter(|(part, _, len)| *len as usize <= part.max_len())?;
                data_out(len)
            }
            opcode::XDATA_READ => {
                let page = self.xdata.page(xdata_page(cdb)?);
                let first = u16::from_be_bytes([cdb[3], cdb[4]]);
                data.extend((0..u16::from(cdb[1])).map(|at| page[usize::from(first.wrapping_add(at))]));
                (DataPlan::In, CommandEnding::Good)
            }
            opcode::XDATA_WRITE => {
                let page = self.xdata.page_mut(xdata_page(cdb)?);
                page[usize::from(u16::from_be_bytes([cdb[3], cdb[4]]))] = cdb[1];
                (DataPlan::None, CommandEnding::Good)
            }
            opcode::RESET => match cdb[1] {
                0x50 => (DataPlan::None, CommandEnding::Reset(ResetMode::CpuReset)),
                0x51 => (DataPlan::None, CommandEnding::Reset(ResetMode::Halt)),
                _ => check(Sense::INVALID_OPCODE),
            },
            _ => check(Sense::INVALID_OPCODE),
        })
    }

    /// Ends a vendor command whose data from the host is there.
    ///
    /// The boot loader erases what it writes. Running firmware erases with E1 of block 0, and then all of the slot;
    /// otherwise it only programs. Source: 240417's handlers of E1 and E3.
    pub(super) fn finish(&mut self, state: BridgeState, cdb: &[u8; 16], data: &[u8]) -> CommandEnding {
        let flash = &mut self.flash;
        let erases = state == BridgeState::BootLoader;
        let written = match cdb[0] {
            opcode::CONFIG_WRITE => config_block(cdb).map(|(index, at)| match index {
                _ if erases => rewrite_sector(flash, at, data),
                BlockIndex::Zero => erase_slot(flash, at).and_then(|()| flash.program(at, data)),
                BlockIndex::One => flash.program(at, data),
            }),
            opcode::FLASH_WRITE => part_address(cdb).map(|(_, at, _)| match erases {
                true => write_part(flash, at, data),
                false => flash.program(at, data),
            }),
            _ => None,
        };
        match written {
            Some(Ok(())) => CommandEnding::Good,
            // Without power nothing answers any more.
            Some(Err(FlashFault::PowerLost)) => CommandEnding::Silent,
            Some(Err(_)) => CommandEnding::Check(WRITE_FAULT),
            None => CommandEnding::Check(Sense::INVALID_OPCODE),
        }
    }
}

fn config_block(cdb: &[u8; 16]) -> Option<(BlockIndex, FlashAddress)> {
    let slot = slot(cdb[1])?;
    let index = match cdb[2] {
        0 => BlockIndex::Zero,
        1 => BlockIndex::One,
        _ => return None,
    };
    Some((index, FlashAddress(slot + u32::from(index.number()) * CONFIG_BLOCK_LEN as u32)))
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

/// So many bytes are wanted from the host; then [`Vendor::finish`].
fn data_out(len: u32) -> (DataPlan, CommandEnding) {
    (DataPlan::Out { len: len.into() }, CommandEnding::AfterData)
}

fn read_flash(flash: &NorFlash, at: FlashAddress, len: usize, data: &mut Vec<u8>) -> (DataPlan, CommandEnding) {
    match flash.get(at, len) {
        Some(cells) => {
            data.extend_from_slice(cells);
            (DataPlan::In, CommandEnding::Good)
        }
        None => check(Sense::UNRECOVERED_READ_ERROR),
    }
}

/// Erases all of a slot, which begins at `at`.
fn erase_slot(flash: &mut NorFlash, at: FlashAddress) -> Result<(), FlashFault> {
    for sector in (at.0..at.0 + SECOND_SLOT).step_by(SECTOR_LEN) {
        flash.erase_sector(FlashAddress(sector))?;
    }
    Ok(())
}

/// Erases what a part covers and programs it. The first sector of a slot also holds the configuration blocks, which
/// stay.
fn write_part(flash: &mut NorFlash, at: FlashAddress, data: &[u8]) -> Result<(), FlashFault> {
    let sector = FlashAddress(at.0 / SECTOR_LEN as u32 * SECTOR_LEN as u32);
    let before = (at.0 - sector.0) as usize;
    let kept = flash.get(sector, before).unwrap_or_default().to_vec();
    for offset in (0..before + data.len()).step_by(SECTOR_LEN) {
        flash.erase_sector(FlashAddress(sector.0 + offset as u32))?;
        if offset == 0 {
            flash.program(sector, &kept)?;
        }
    }
    flash.program(at, data)
}

/// Changes a few bytes of a sector and keeps the rest.
fn rewrite_sector(flash: &mut NorFlash, at: FlashAddress, data: &[u8]) -> Result<(), FlashFault> {
    let sector = FlashAddress(at.0 / SECTOR_LEN as u32 * SECTOR_LEN as u32);
    let mut cells = flash.get(sector, SECTOR_LEN).unwrap_or_default().to_vec();
    let offset = (at.0 - sector.0) as usize;
    let outside = FlashFault::Outside { address: at, len: data.len() };
    cells.get_mut(offset..offset + data.len()).ok_or(outside)?.copy_from_slice(data);
    flash.erase_sector(sector)?;
    flash.program(sector, &cells)
}
