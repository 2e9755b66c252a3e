//! The boot loader's commands: one in progress, with its data as far as it has moved and how it will end; and what each
//! does to the flash.

use std::time::Instant;

use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, FlashAddress, Part};
use asm2464::flash::{FIRST_SLOT, SECOND_SLOT, SECTOR_LEN};
use asm2464::scsi::bot::Direction;
use asm2464::scsi::{ResetMode, Sense, SenseKey, opcode};
use asm2464_chip::spi_flash::{FlashGone, SpiFlash};

use crate::virtual_unit::descriptors::Identity;

/// How a command ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandEnding {
    /// Known only when all of the host's data has arrived.
    AfterData,
    #[default]
    Good,
    Check(Sense),
    Reset(ResetMode),
}

/// A command in progress.
#[derive(Debug, Default)]
pub(super) struct CommandExchange {
    pub(super) cdb: [u8; 16],
    /// The data's direction; `None` without data.
    pub(super) direction: Option<Direction>,
    pub(super) ending: CommandEnding,
    /// Number of bytes that will move; fewer than the command has if the host expects fewer.
    pub(super) limit: usize,
    pub(super) moved: usize,
    pub(super) data: Vec<u8>,
    /// Time at which the status is due; `None` for at once.
    pub(super) ready_at: Option<Instant>,
}

impl CommandExchange {
    /// A command without data.
    pub(super) fn ending(ending: CommandEnding) -> Self {
        Self { ending, ..Self::default() }
    }

    /// A command with data for the host.
    fn to_host(data: Vec<u8>) -> Self {
        let direction = (!data.is_empty()).then_some(Direction::In);
        Self { direction, limit: data.len(), data, ..Self::default() }
    }

    /// A command that takes `len` bytes from the host.
    fn from_host(len: usize) -> Self {
        let direction = (len > 0).then_some(Direction::Out);
        Self { direction, limit: len, ending: CommandEnding::AfterData, ..Self::default() }
    }

    /// Whether all data that will move has moved.
    pub(super) const fn data_is_done(&self) -> bool {
        self.moved >= self.limit
    }

    /// Takes the next packet for the host, of at most `most` bytes.
    pub(super) fn give(&mut self, most: usize) -> Vec<u8> {
        let packet = self.data[self.moved..self.limit.min(self.moved + most)].to_vec();
        self.moved += packet.len();
        packet
    }

    /// Whether the status is due.
    pub(super) fn is_ready(&self) -> bool {
        self.ending != CommandEnding::AfterData
            && self.data_is_done()
            && self.ready_at.is_none_or(|at| at <= Instant::now())
    }
}

const WRITE_FAULT: Sense = Sense::new(SenseKey::MEDIUM_ERROR, 0x03, 0x00);
const LUN_NOT_SUPPORTED: Sense = Sense::new(SenseKey::ILLEGAL_REQUEST, 0x25, 0x00);

/// The SCSI target.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) flash: SpiFlash,
    identity: Identity,
    /// The next REQUEST SENSE's answer.
    pub(super) sense: Sense,
}

impl CommandExchange {
    /// Takes as much of the host's data as the command expects, and ends the command when it is complete.
    pub(super) fn take(&mut self, target: &mut Target, data: &[u8]) {
        let count = data.len().min(self.limit - self.moved);
        self.data.extend_from_slice(&data[..count]);
        self.moved += count;
        if self.data_is_done() {
            self.finish(target);
        }
    }

    /// Ends a command whose data is complete.
    pub(super) fn finish(&mut self, target: &mut Target) {
        if self.ending == CommandEnding::AfterData {
            self.ending = target.finish(&self.cdb, &self.data);
            self.ready_at = target.ready_at();
        }
    }
}

impl Target {
    pub(super) fn new(flash: SpiFlash) -> Self {
        Self { flash, identity: Identity::boot_loader(), sense: Sense::NONE }
    }

    pub(super) fn power_on(&mut self, identity: &Identity) {
        self.identity = identity.clone();
        self.sense = Sense::NONE;
    }

    /// Starts a command.
    pub(super) fn start(&mut self, cdb: &[u8; 16], lun: u8) -> CommandExchange {
        let started =
            self.command(cdb, lun).unwrap_or_else(|sense| CommandExchange::ending(CommandEnding::Check(sense)));
        let mut exchange = CommandExchange { cdb: *cdb, ready_at: self.ready_at(), ..started };
        if exchange.direction.is_none() {
            exchange.finish(self);
        }
        exchange
    }

    /// Time at which the status of a command that has just been executed is due.
    pub(super) fn ready_at(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let takes = self.flash.take_busy(now);
        (!takes.is_zero()).then(|| now + takes)
    }

    /// The commands that the boot loader answers. Source: cyrozap's notes, openpilot's flasher.
    fn command(&mut self, cdb: &[u8; 16], lun: u8) -> Result<CommandExchange, Sense> {
        let sense = std::mem::replace(&mut self.sense, Sense::NONE);
        let answered = |mut data: Vec<u8>, most: usize| {
            data.truncate(most);
            Ok(CommandExchange::to_host(data))
        };
        match cdb[0] {
            opcode::REQUEST_SENSE => answered(sense.to_fixed().to_vec(), cdb[4].into()),
            opcode::INQUIRY if cdb[1] & 1 != 0 || cdb[2] != 0 => Err(Sense::INVALID_FIELD_IN_CDB),
            opcode::INQUIRY => answered(inquiry(&self.identity, lun), u16::from_be_bytes([cdb[3], cdb[4]]).into()),
            _ if lun != 0 => Err(LUN_NOT_SUPPORTED),
            opcode::TEST_UNIT_READY => Err(Sense::MEDIUM_NOT_PRESENT),
            opcode::CONFIG_WRITE => {
                config_block(cdb).ok_or(Sense::INVALID_FIELD_IN_CDB)?;
                Ok(CommandExchange::from_host(CONFIG_BLOCK_LEN))
            }
            opcode::FLASH_WRITE => {
                let len = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]) as usize;
                part(cdb).filter(|(part, _)| len <= part.max_len()).ok_or(Sense::INVALID_FIELD_IN_CDB)?;
                Ok(CommandExchange::from_host(len))
            }
            opcode::RESET if cdb[1] == 0x50 => Ok(CommandExchange::ending(CommandEnding::Reset(ResetMode::CpuReset))),
            opcode::RESET if cdb[1] == 0x51 => Ok(CommandExchange::ending(CommandEnding::Reset(ResetMode::Halt))),
            _ => Err(Sense::INVALID_OPCODE),
        }
    }

    /// Executes a command whose data from the host is complete. The boot loader erases the sectors that it writes.
    pub(super) fn finish(&mut self, cdb: &[u8; 16], data: &[u8]) -> CommandEnding {
        let written = match cdb[0] {
            opcode::CONFIG_WRITE => config_block(cdb).map(|at| rewrite_sector(&mut self.flash, at, data)),
            _ => part(cdb).map(|(_, at)| write_part(&mut self.flash, at, data)),
        };
        match written {
            Some(Ok(())) => CommandEnding::Good,
            Some(Err(_)) => CommandEnding::Check(WRITE_FAULT),
            None => CommandEnding::Check(Sense::INVALID_FIELD_IN_CDB),
        }
    }
}

/// Standard INQUIRY data. Source: SPC-4, 6.4.2.
fn inquiry(identity: &Identity, lun: u8) -> Vec<u8> {
    // Peripheral qualifier 3, type 0x1F: no such LUN.
    let peripheral = if lun == 0 { 0x00 } else { 0x7F };
    let release = format!("{:04X}", identity.release);
    let mut data = vec![peripheral, 0x00, 0x06, 0x02, 31, 0x00, 0x00, 0x02];
    for (text, len) in [(&identity.t10_vendor, 8), (&identity.t10_product, 16), (&release, 4)] {
        let bytes = text.bytes().map(|byte| if matches!(byte, 0x20..=0x7E) { byte } else { b' ' });
        data.extend(bytes.chain(std::iter::repeat(b' ')).take(len));
    }
    data
}

fn config_block(cdb: &[u8; 16]) -> Option<FlashAddress> {
    let slot = slot(cdb[1])?;
    let index = BlockIndex::ALL.into_iter().find(|index| index.number() == cdb[2])?;
    Some(FlashAddress(slot.0 + index.flash_address().0))
}

fn part(cdb: &[u8; 16]) -> Option<(Part, FlashAddress)> {
    let slot = slot(cdb[1] & 0x7F)?;
    let part = if cdb[1] & 0x80 == 0 { Part::One } else { Part::Two };
    Some((part, FlashAddress(slot.0 + part.flash_address().0)))
}

fn slot(mode: u8) -> Option<FlashAddress> {
    match mode {
        0x50 => Some(FIRST_SLOT),
        0x51 => Some(SECOND_SLOT),
        _ => None,
    }
}

/// Start of the sector around an address.
fn sector_of(at: FlashAddress) -> FlashAddress {
    FlashAddress(at.0 / SECTOR_LEN as u32 * SECTOR_LEN as u32)
}

/// Erases a part's sectors and programs the part. The first sector of a slot also holds the configuration blocks, which
/// stay.
fn write_part(flash: &mut SpiFlash, at: FlashAddress, data: &[u8]) -> Result<(), FlashGone> {
    let sector = sector_of(at);
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
fn rewrite_sector(flash: &mut SpiFlash, at: FlashAddress, data: &[u8]) -> Result<(), FlashGone> {
    let sector = sector_of(at);
    let mut cells = flash.get(sector, SECTOR_LEN).unwrap_or_default().to_vec();
    let offset = (at.0 - sector.0) as usize;
    cells.get_mut(offset..offset + data.len()).ok_or(FlashGone)?.copy_from_slice(data);
    flash.erase_sector(sector)?;
    flash.program(sector, &cells)
}
