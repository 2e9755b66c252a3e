//! An opened unit with its access to the flash, by commands or by registers.

use asm2464::firmware::{BlockIndex, BridgeState, CONFIG_BLOCK_LEN, ConfigBlock, FirmwareVersion, FlashAddress, Part};
use asm2464::flash::{BlockBytes, FIRST_SLOT, RegisterFlash, SECTOR_LEN, Slot};
use asm2464::scsi::SenseKey;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_host::bridge::{Bridge, CommandError, OpenBridge, Port, UnitInfo};

use super::error::FlashError;
use crate::unit::Live;

/// Configuration blocks 0 and 1 as read by E0; `None` for a block that the unit did not return.
pub type UnitBlocks = [Option<BlockBytes>; 2];

/// Whether a unit's flash can be read in this state: by E0 and E2, or through registers. The boot loader takes only the
/// commands that write. Source: cyrozap's notes; openpilot's flasher.
pub const fn is_readable(state: BridgeState) -> bool {
    matches!(state, BridgeState::Vendor | BridgeState::OpenFirmware)
}

/// Returns a unit's blocks, after checking their frames.
///
/// # Errors
/// Fails if the unit doesn't return a block, or returns none that is valid.
pub fn parsed(blocks: &UnitBlocks, unit: &UnitInfo) -> Result<[ConfigBlock; 2], AnyFailure> {
    let device = unit.location.to_string();
    let one = |index: BlockIndex| {
        let Some(bytes) = index.of(blocks) else {
            let label = Kind::Refused.code("asmpatch::config::no_block");
            let (number, state) = (index.number(), unit.state);
            let message = format!("{device}: can't read configuration block {number}: the unit runs its {state}");
            return Err(AnyFailure::from(Failure::new(label, message)));
        };
        ConfigBlock::parse(index, bytes).map_err(|damage| AnyFailure::from(damage).about(&device))
    };
    Ok([one(BlockIndex::Zero)?, one(BlockIndex::One)?])
}

/// Reads a unit's flash.
pub trait FlashReader {
    /// Reads a configuration block.
    ///
    /// # Errors
    /// [`FlashError::NoBlock`] if the unit refuses it for good; [`FlashError::Command`], [`FlashError::Registers`].
    fn block(&mut self, index: BlockIndex) -> Result<BlockBytes, FlashError>;

    /// Reads the first `len` bytes of a part.
    ///
    /// # Errors
    /// [`FlashError::Command`], [`FlashError::Registers`].
    fn part(&mut self, part: Part, len: usize) -> Result<Vec<u8>, FlashError>;
}

/// Reads through E0 and E2.
impl FlashReader for Bridge {
    fn block(&mut self, index: BlockIndex) -> Result<BlockBytes, FlashError> {
        self.read_config(index).map_err(|error| match gives_none(&error) {
            true => FlashError::NoBlock { index, why: error.to_string() },
            false => error.into(),
        })
    }

    fn part(&mut self, part: Part, len: usize) -> Result<Vec<u8>, FlashError> {
        let mut bytes = vec![0; len];
        self.read_flash(part, &mut bytes)?;
        Ok(bytes)
    }
}

impl FlashReader for RegisterFlash<OpenBridge> {
    fn block(&mut self, index: BlockIndex) -> Result<BlockBytes, FlashError> {
        let mut block = [0; CONFIG_BLOCK_LEN];
        read(self, index.flash_address(), &mut block)?;
        Ok(block)
    }

    fn part(&mut self, part: Part, len: usize) -> Result<Vec<u8>, FlashError> {
        let mut bytes = vec![0; len];
        read(self, part.flash_address(), &mut bytes)?;
        Ok(bytes)
    }
}

/// An opened unit. Dropping it gives the unit back to the system.
#[expect(clippy::large_enum_variant, reason = "a flash has one, and moves it a few times")]
pub enum Access {
    /// Vendor commands: E0 and E2 read, E1 and E3 write. The boot loader has only those that write.
    Commands(Bridge),
    /// The registers of the flash controller, which open firmware lets a host reach.
    Registers(RegisterFlash<OpenBridge>),
}

impl Access {
    /// Opens the unit at a port.
    ///
    /// # Errors
    /// [`FlashError`]; [`FlashError::Registers`] if no flash answers.
    pub fn open(port: &mut dyn Port) -> Result<Self, FlashError> {
        let state = port.attached()?.state;
        Self::of(Live::at(port, state)?)
    }

    /// Takes a unit that is open.
    ///
    /// # Errors
    /// [`FlashError::Registers`] if no flash answers.
    pub fn of(live: Live) -> Result<Self, FlashError> {
        match live {
            Live::Vendor(bridge) => Ok(Self::Commands(bridge)),
            Live::Open(bridge) => Ok(Self::Registers(RegisterFlash::new(bridge)?)),
        }
    }

    /// What carries vendor commands, if the unit takes them.
    pub const fn bridge(&mut self) -> Option<&mut Bridge> {
        match self {
            Self::Commands(bridge) => Some(bridge),
            Self::Registers(_) => None,
        }
    }

    /// The reader of the unit's flash.
    pub fn reader(&mut self) -> &mut dyn FlashReader {
        match self {
            Self::Commands(bridge) => bridge,
            Self::Registers(flash) => flash,
        }
    }

    /// Reads both configuration blocks. Returns none in a state that can't be read, and skips a block whose flash does
    /// not answer (3/11/00).
    ///
    /// # Errors
    /// As for [`FlashReader::block`], except for a skipped block.
    pub fn blocks(&mut self, state: BridgeState) -> Result<UnitBlocks, FlashError> {
        if !is_readable(state) {
            return Ok([None, None]);
        }
        if let Self::Registers(flash) = self {
            let sector = flash.read_sector(FIRST_SLOT)?;
            return Ok(Slot::at(FIRST_SLOT, &*sector).blocks().map(Some));
        }
        let reader = self.reader();
        let mut block = |index| match reader.block(index) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(FlashError::NoBlock { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        Ok([block(BlockIndex::Zero)?, block(BlockIndex::One)?])
    }

    /// Reads the running version by E4; `None` if it can't be read.
    pub fn version(&mut self) -> Option<FirmwareVersion> {
        match self {
            Self::Commands(bridge) => bridge.firmware_version().ok(),
            // Open firmware has no version.
            Self::Registers(_) => None,
        }
    }
}

/// Reads any range, sector by sector.
fn read(flash: &mut RegisterFlash<OpenBridge>, from: FlashAddress, into: &mut [u8]) -> Result<(), FlashError> {
    let mut done = 0;
    while done < into.len() {
        let at = from.0 as usize + done;
        let offset = at % SECTOR_LEN;
        let sector = flash.read_sector(FlashAddress((at - offset) as u32))?;
        flash.progressed();
        let len = (SECTOR_LEN - offset).min(into.len() - done);
        into[done..done + len].copy_from_slice(&sector[offset..offset + len]);
        done += len;
    }
    Ok(())
}

/// Whether the unit refuses the read for good, as opposed to a failure that a retry may not meet.
fn gives_none(error: &CommandError) -> bool {
    error.sense().is_some_and(|sense| matches!(sense.key, SenseKey::ILLEGAL_REQUEST | SenseKey::MEDIUM_ERROR))
}
