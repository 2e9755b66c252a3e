//! Reads of the bridge's SRAM by its DMA, which a device behind the bridge completes: with F2 on open firmware, and on
//! the vendor's with only the status patch.
//!
//! READ(16) sets up the SRAM's DMA as the open firmware's F2 does, and so do a few E5. Either way the data goes to the
//! host once a PCIe device writes an NVMe completion entry to 0x00828000. Source: executed on 240417 on the chip model;
//! the open firmware's README and `test_sram_verify.py`, where F2 waits for the same. Neither was ever run on silicon:
//! expect it to work, but don't rely on it.

use std::time::Duration;

use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{BLOCK_LEN, Command, ScsiStatus, XdataAddress};
use asm2464::sram::{SECTOR_LEN, SLOT_LEN, SRAM_LEN, VENDOR_COMPLETIONS_PAGE, page_address};
use thiserror::Error;

use super::error::PcieError;
use crate::bridge::open::SramTransfer;
use crate::bridge::{
    Bridge, CommandError, ControlError, DataPhase, OpenBridge, PortError, Transport, TransportError,
    TransportErrorKind, TransportKind,
};

/// Maximum number of bytes of one READ(16): what a GPU runtime moves with one WRITE(16).
const READ_MAX: usize = 0x1_0000;

/// The submission queue in XDATA and on PCIe, 64 bytes a command, and the completion queue on PCIe, 16 bytes an entry.
/// Source: c:0x1BF6; c:0x2465.
const COMMANDS: u16 = 0xA000;
const COMMANDS_ADDRESS: u64 = 0x0082_0000;
const COMMAND_LEN: u16 = 0x40;
const ENTRIES_ADDRESS: u64 = page_address(VENDOR_COMPLETIONS_PAGE);
const ENTRY_LEN: u64 = 0x10;
/// Number of entries in either queue of the vendor's firmware.
const PLACES: u8 = 32;
/// The firmware's queue variables: the index of its next command (0x0456), the index of the next entry (0x045A), and
/// the phase it has seen there (0x0466). Source: c:0x5359, c:0x2608.
const QUEUES: XdataAddress = XdataAddress::main(0x0456);
const QUEUES_LEN: usize = 0x11;
/// The SRAM's first free slot, which the next READ(16) uses. Source: c:0x129E.
const FIRST_FREE: XdataAddress = XdataAddress::main(0xCE60);
/// The queue slot for our DMA: the last one, which commands reach last.
const QUEUE_SLOT: u8 = 0x1F;

/// A completion entry: 16 bytes that a device writes after the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// PCIe address of the entry in a completion queue.
    pub to: u64,
    /// Contents of the entry.
    pub bytes: [u8; 16],
    /// PCIe address of the command in a submission queue that the entry completes. The device waits for the command and
    /// puts its ID into the entry. With `None` the entry is written at once.
    pub command_at: Option<u64>,
}

/// Reasons a read failed.
#[derive(Debug, Error)]
pub enum SramReadError {
    /// The transport does not support this method.
    #[error("{way} needs bulk streams; the unit is on {kind} without them")]
    Transport {
        /// The method, in words.
        way: &'static str,
        /// The transport.
        kind: TransportKind,
    },
    /// READ(16) would be refused.
    #[error("the unit is not initialised for READ(16): XDATA {at:#06x} is {found:#04x}, expected {expected:#04x}")]
    NotInitialised {
        /// The variable.
        at: u16,
        /// Its value.
        found: u8,
        /// The expected value.
        expected: u8,
    },
    /// The method can't read this length.
    #[error("{way} moves {limit}, not {found} bytes")]
    Length {
        /// The method, in words.
        way: &'static str,
        /// Its limit, in words.
        limit: &'static str,
        /// Bytes requested.
        found: usize,
    },
    /// The firmware's variables have values that its code never writes.
    #[error("the firmware's queues are in an unexpected state: {what}")]
    Queues {
        /// What was found.
        what: String,
    },
    /// No device wrote the completion entry.
    #[error("no device completed {way} within {deadline:?}")]
    NoCompletion {
        /// The method, in words.
        way: &'static str,
        /// Time waited.
        deadline: Duration,
    },
    /// No device wrote the completion entry, and the unit stays silent.
    #[error("no device completed {way}, and the unit does not come back: {source}")]
    Power {
        /// The method, in words.
        way: &'static str,
        /// The error of the recovery.
        source: CommandError,
    },
    /// The read returned another number of bytes.
    #[error("{way} brought {found} bytes, expected {expected}")]
    Short {
        /// The method, in words.
        way: &'static str,
        /// Bytes requested.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A request of the open firmware failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The device could not be set up.
    #[error(transparent)]
    Pcie(#[from] PcieError),
    /// The device could not be set up, or has failed.
    #[error(transparent)]
    Device(PortError),
}

asm2464::coded!(SramReadError {
    Transport => Refused "asm2464::sram::transport",
    NotInitialised => Device "asm2464::sram::not_initialised",
    Length => Usage "asm2464::sram::length",
    Queues => Device "asm2464::sram::queues",
    NoCompletion => Device "asm2464::sram::no_completion",
    Power => Device "asm2464::sram::power",
    Short => Short "asm2464::sram::short",
    Command(cause) => cause,
    Control(cause) => cause,
    Pcie(cause) => cause,
    Device(cause) => cause,
});

impl From<TransportError> for SramReadError {
    fn from(error: TransportError) -> Self {
        Self::Command(error.into())
    }
}

const READ16: &str = "READ(16)";
const DMA: &str = "a DMA started by E5";
const F2: &str = "F2";

/// The queues' positions in the firmware.
struct Queues {
    tail: u8,
    head: u8,
    phase: u8,
}

impl Queues {
    /// The next completion entry.
    fn entry(&self, command_id: [u8; 2], command_at: Option<u64>) -> Entry {
        let mut bytes = [0; 16];
        bytes[12..14].copy_from_slice(&command_id);
        bytes[14] = !self.phase & 1;
        Entry { to: ENTRIES_ADDRESS + ENTRY_LEN * u64::from(self.head), bytes, command_at }
    }
}

impl<T: Transport> Bridge<T> {
    /// Reads from the SRAM's start with READ(16): 1 to 128 sectors, over UAS with streams, on a unit that is
    /// [initialised](Bridge::initialise). During the command the unit answers no E4 and no E5, so the device is set up
    /// beforehand: `tell` gets the entry that the device has to write once the command is in the submission queue.
    ///
    /// Clears slots and counters that a WRITE(16) left first. The firmware clears the READ(16)'s own when it ends.
    ///
    /// # Errors
    /// [`SramReadError`]. Without a device that completes the read, [`SramReadError::NoCompletion`] after `timeout`.
    /// The unit is then free again, and no longer initialised.
    pub fn read_sram_by_read16<E: Into<SramReadError>>(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        whole_sectors(READ16, "1 to 128 sectors of 512 bytes", buffer.len(), READ_MAX)?;
        self.require_streams(READ16)?;
        // Without them the firmware refuses READ(16).
        let variables = self.variables()?;
        for (at, expected) in variables.initialised() {
            let found = self.xdata_byte(XdataAddress::main(at))?;
            if found != expected {
                return Err(SramReadError::NotInitialised { at, found, expected });
            }
        }
        self.write_all(freeing(READ_MAX).chain(variables.counters()))?;
        let first = self.xdata_byte(FIRST_FREE)?;
        if first != 0 {
            let what = format!("slot {first:#04x} of the SRAM is its first free one, expected 0");
            return Err(SramReadError::Queues { what });
        }
        let queues = self.queues()?;
        let offset = COMMAND_LEN * u16::from(queues.tail);
        // A device that waits for the command must not take an old one for it.
        self.write_all([(COMMANDS + offset, 0)].into_iter())?;
        tell(self, queues.entry([0; 2], Some(COMMANDS_ADDRESS + u64::from(offset)))).map_err(Into::into)?;
        let command = Command::Read16 { lba: 0, blocks: (buffer.len() / BLOCK_LEN) as u32 };
        let expected = buffer.len();
        match self.execute(command, DataPhase::In(buffer), timeout) {
            Ok(ended) if ended.status != ScsiStatus::Good => {
                Err(CommandError::of_status(&command.cdb(), ended.status, ended.sense).into())
            }
            Ok(ended) => came(READ16, expected, ended.transferred),
            Err(error) => Err(self.not_completed(READ16, error)),
        }
    }

    /// Makes the SRAM's DMA send from a slot of 16 KiB on, with E5 only, over UAS with streams: 1 to 1,024 sectors, up
    /// to the SRAM's end. There is no command and no status. E4, E5 and TLPs work meanwhile, so `tell` sets up the
    /// device once the DMA is armed: it gets the entry that the device has to write at once.
    ///
    /// # Errors
    /// [`SramReadError`]; [`CommandError::UnknownVariables`] for a version of which nobody knows where it keeps its
    /// counters. Without a device that completes the read, [`SramReadError::NoCompletion`] after `timeout`. After any error of an armed DMA the port is reset, which disarms the DMA and may clear the initialisation.
    pub fn read_sram_by_dma<E: Into<SramReadError>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        timeout: Duration,
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        let sectors = sectors_from(DMA, first_slot, buffer.len())?;
        let stream = self.require_streams(DMA)?;
        // Unless both are 0, every 256th read sends an unexpected status.
        let counters = self.variables()?.slot_counters(QUEUE_SLOT);
        let queues = self.queues()?;
        let ([stream_high, stream_low], [sectors_high, sectors_low]) = (stream.to_be_bytes(), sectors.to_be_bytes());
        let end = first_slot + buffer.len().div_ceil(SLOT_LEN) as u8;
        let setup = [
            (0xC420, stream_high),
            (0xC421, stream_low),
            (0xC422, 0x02),
            (0xC423, 0x00),
            (0xC413, QUEUE_SLOT),
            (0xC414, 0x80 | first_slot),
            (0xC415, end),
            (0xC426, sectors_high),
            (0xC427, sectors_low),
            // Direction to the host, started by 0xC429.
            (0xC412, 0x02),
            (0xC429, first_slot),
        ];
        self.write_all(counters.map(|at| (at, 0)).into_iter().chain(setup))?;
        if let Err(error) = tell(self, queues.entry([first_slot, QUEUE_SLOT], None)) {
            // No device will complete the transfer. Only a port reset disarms the DMA.
            let _ = self.transport_mut().read_spare_stream(buffer, Duration::ZERO);
            return Err(error.into());
        }
        let expected = buffer.len();
        match self.transport_mut().read_spare_stream(buffer, timeout) {
            Ok(found) => came(DMA, expected, found),
            Err(error) => Err(self.not_completed(DMA, error)),
        }
    }

    /// Finds the error for a time-out that the transport has already recovered from.
    fn not_completed(&mut self, way: &'static str, error: TransportError) -> SramReadError {
        let TransportErrorKind::Timeout { deadline } = error.kind else { return error.into() };
        match self.is_ready() {
            Err(source @ CommandError::Transport(_)) => SramReadError::Power { way, source },
            _ => SramReadError::NoCompletion { way, deadline },
        }
    }

    fn require_streams(&mut self, way: &'static str) -> Result<u16, SramReadError> {
        let transport = self.transport_mut();
        transport.spare_stream().ok_or_else(|| SramReadError::Transport { way, kind: transport.kind() })
    }

    fn queues(&mut self) -> Result<Queues, SramReadError> {
        let mut bytes = [0; QUEUES_LEN];
        self.xdata_read(QUEUES, &mut bytes)?;
        let queues = Queues { tail: bytes[0], head: bytes[4], phase: bytes[QUEUES_LEN - 1] };
        if queues.tail >= PLACES || queues.head >= PLACES {
            let what = format!("their ends are at {:#04x} and {:#04x} of {PLACES:#04x}", queues.tail, queues.head);
            return Err(SramReadError::Queues { what });
        }
        Ok(queues)
    }

    fn write_all(&mut self, writes: impl Iterator<Item = (u16, u8)>) -> Result<(), SramReadError> {
        Ok(self.xdata_write_all(writes.map(|(at, value)| (XdataAddress::main(at), value)))?)
    }
}

impl OpenBridge {
    /// Reads the SRAM with F2 from a slot of 16 KiB on: arms the DMA, lets `tell` set up the device, and receives the
    /// data. `tell` gets the entry that the device has to write, in the unit's
    /// [completions page](OpenBridge::completions_page), once the data is in the SRAM.
    ///
    /// Read from slot 0: on silicon an entry releases the data from there on, and whoever stages its data at a later slot
    /// throws the first slots' data away. Source: tinygrad's pull request 17369; either runtime arms slot 0 alone.
    ///
    /// # Errors
    /// [`SramReadError`]. Without a device that completes the read, [`ControlError::BulkTimeout`]; the DMA stays armed
    /// then.
    pub fn sram_read<E: Into<SramReadError>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        let sectors = sectors_from(F2, first_slot, buffer.len())?;
        let to = page_address(self.completions_page()?);
        self.arm_sram(SramTransfer { to_host: true, first_slot, sectors })?;
        let mut bytes = [0; 16];
        bytes[14] = 1;
        tell(self, Entry { to, bytes, command_at: None }).map_err(Into::into)?;
        Ok(self.bulk_in(buffer)?)
    }
}

const fn whole_sectors(way: &'static str, limit: &'static str, found: usize, most: usize) -> Result<(), SramReadError> {
    if found == 0 || !found.is_multiple_of(SECTOR_LEN) || found > most {
        Err(SramReadError::Length { way, limit, found })
    } else {
        Ok(())
    }
}

/// Checks the length of a read from a slot on. Returns its sectors.
fn sectors_from(way: &'static str, first_slot: u8, len: usize) -> Result<u16, SramReadError> {
    let most = SRAM_LEN.saturating_sub(SLOT_LEN * usize::from(first_slot));
    whole_sectors(way, "1 to 1,024 sectors of 512 bytes within the SRAM's 512 KiB", len, most)?;
    Ok((len / SECTOR_LEN) as u16)
}

const fn came(way: &'static str, expected: usize, found: usize) -> Result<(), SramReadError> {
    if found == expected { Ok(()) } else { Err(SramReadError::Short { way, expected, found }) }
}
