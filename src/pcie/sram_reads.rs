//! Reads of the bridge's SRAM by its DMA, which a device behind the bridge completes: by F2 on open firmware, and on the
//! vendor's with nothing but the status patch.
//!
//! READ(16) sets the SRAM's DMA up as the open firmware's F2 does, and so does a handful of E5. Either way the data go to
//! the host once something on PCIe writes an NVMe completion entry to 0x00828000. Source: executed on 240417 on the chip
//! model; the open firmware's README and `test_sram_verify.py`, where F2 waits for the same. Neither way was ever run on
//! silicon: a good bet, not a fact.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::error::PcieError;
use super::tiny_gpu::{Entry, TinyGpuError};
use crate::bridge::open::SramTransfer;
use crate::bridge::{
    Bridge, CommandError, ControlError, DataPhase, OpenBridge, Transport, TransportError, TransportErrorKind,
    TransportKind,
};
use crate::scsi::runtime::{COUNTERS, freeing};
use crate::scsi::{Command, ScsiStatus, XdataAddress};

/// Bytes of a sector, of a slot of the SRAM, and of all of it.
const SECTOR: usize = 512;
const SLOT: usize = 0x4000;
const SRAM: usize = 0x8_0000;
/// The most bytes of one READ(16): what a GPU runtime moves with one WRITE(16).
const READ_MAX: usize = 0x1_0000;

/// The submission queue in XDATA and on PCIe, 64 bytes a command; the completion queue on PCIe, 16 bytes an entry. Source:
/// c:0x1BF6; c:0x2465.
const COMMANDS: u16 = 0xA000;
const COMMANDS_ADDRESS: u64 = 0x0082_0000;
const COMMAND_LEN: u16 = 0x40;
const ENTRIES_ADDRESS: u64 = 0x0082_8000;
const ENTRY_LEN: u64 = 0x10;
/// Where open firmware's F2 waits for an entry, whichever it is. Source: the open firmware's README and
/// `test_sram_verify.py`.
const OPEN_ENTRY_ADDRESS: u64 = 0x0082_2000;
/// Places in either queue of the vendor's firmware.
const PLACES: u8 = 32;
/// The firmware's variables of the queues: where its next command goes (0x0456), where it looks for the next entry
/// (0x045A), the phase that it has seen there (0x0466). Source: c:0x5359, c:0x2608.
const QUEUES: XdataAddress = XdataAddress::main(0x0456);
const QUEUES_LEN: usize = 0x11;
/// The SRAM's first free slot, which the next READ(16) takes. Source: c:0x129E.
const FIRST_FREE: XdataAddress = XdataAddress::main(0xCE60);
/// What a GPU runtime's initialisation leaves, without which READ(16) is refused.
const INITIALISED: [(u16, u8); 3] = [(0x054B, 0x20), (0x05A8, 0x02), (0x05F8, 0x04)];
/// The queue slot that a DMA of ours has: the last, which commands reach last.
const QUEUE_SLOT: u8 = 0x1F;
/// What the firmware counts for that slot. Unless both are 0, every 256th read sends a status that nobody asked for.
const SLOT_COUNTERS: [u16; 2] = [0x0536, 0x00E1];

/// Why data did not come.
#[derive(Debug, Error, Diagnostic)]
pub enum SramReadError {
    /// The transport can't carry it.
    #[error("{way} needs UAS with streams; the unit is on {kind}")]
    #[diagnostic(code(asmpatch::sram::transport))]
    Transport {
        /// The way, in words.
        way: &'static str,
        /// What it is on.
        kind: TransportKind,
    },
    /// READ(16) would be refused.
    #[error("the unit is not initialised for READ(16): XDATA {at:#06x} is {found:#04x}, expected {expected:#04x}")]
    #[diagnostic(code(asmpatch::sram::not_initialised))]
    NotInitialised {
        /// The variable.
        at: u16,
        /// What it holds.
        found: u8,
        /// What it should.
        expected: u8,
    },
    /// Something that this way does not move.
    #[error("{way} moves {limit}; {found} bytes were asked for")]
    #[diagnostic(code(asmpatch::sram::length))]
    Length {
        /// The way, in words.
        way: &'static str,
        /// What it moves, in words.
        limit: &'static str,
        /// Bytes asked for.
        found: usize,
    },
    /// The firmware's variables are not what its code keeps in them.
    #[error("the firmware's queues look strange: {what}")]
    #[diagnostic(code(asmpatch::sram::queues))]
    Queues {
        /// What was found.
        what: String,
    },
    /// Nobody wrote the completion entry.
    #[error("no device completed {way} within {deadline:?}")]
    #[diagnostic(code(asmpatch::sram::no_completion))]
    NoCompletion {
        /// The way, in words.
        way: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// Nobody wrote it, and the unit stays silent.
    #[error("no device completed {way}, and the unit does not come back: {source}")]
    #[diagnostic(code(asmpatch::sram::power))]
    Power {
        /// The way, in words.
        way: &'static str,
        /// What it met.
        source: CommandError,
    },
    /// It brought another number of bytes.
    #[error("{way} brought {found} bytes, expected {expected}")]
    #[diagnostic(code(asmpatch::sram::short))]
    Short {
        /// The way, in words.
        way: &'static str,
        /// Bytes asked for.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// A command failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Command(#[from] CommandError),
    /// A request of the open firmware failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Control(#[from] ControlError),
    /// The device could not be told.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pcie(#[from] PcieError),
    /// The device could not be told, or has failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(#[from] TinyGpuError),
}

impl From<TransportError> for SramReadError {
    fn from(error: TransportError) -> Self {
        Self::Command(error.into())
    }
}

const READ16: &str = "READ(16)";
const DMA: &str = "a DMA started by E5";
const F2: &str = "F2";

/// The queues as the firmware has them.
struct Queues {
    tail: u8,
    head: u8,
    phase: u8,
}

impl Queues {
    /// Where the next completion entry goes.
    fn entry(&self, command_id: [u8; 2], command_at: Option<u64>) -> Entry {
        let mut bytes = [0; 16];
        bytes[12..14].copy_from_slice(&command_id);
        bytes[14] = !self.phase & 1;
        Entry { to: ENTRIES_ADDRESS + ENTRY_LEN * u64::from(self.head), bytes, command_at }
    }
}

impl<T: Transport> Bridge<T> {
    /// READ(16) from the SRAM's start: 1 to 128 sectors, over UAS with streams, on a unit that is
    /// [initialised](Bridge::initialise). While it is under way no E4 and no E5 is answered, so the device is told
    /// beforehand: `tell` gets the entry that it has to write once the command stands in the submission queue.
    ///
    /// Slots and counters that a WRITE(16) left are cleared first; its own the firmware clears when it ends.
    ///
    /// # Errors
    /// [`SramReadError`]. Without a device that completes it, [`SramReadError::NoCompletion`] after `timeout`: the unit is
    /// then free again, and no longer initialised.
    pub fn read_sram_by_read16<E: Into<SramReadError>>(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        whole_sectors(READ16, "1 to 128 sectors of 512 bytes", buffer.len(), READ_MAX)?;
        self.require_streams(READ16)?;
        for (at, expected) in INITIALISED {
            let found = self.xdata_byte(XdataAddress::main(at))?;
            if found != expected {
                return Err(SramReadError::NotInitialised { at, found, expected });
            }
        }
        self.write_all(freeing(READ_MAX).chain(COUNTERS))?;
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
        let command = Command::Read16 { lba: 0, blocks: (buffer.len() / SECTOR) as u32 };
        let expected = buffer.len();
        match self.execute(command, DataPhase::In(buffer), timeout) {
            Ok(ended) if ended.status != ScsiStatus::Good => {
                Err(CommandError::of_status(&command.cdb(), ended.status, ended.sense).into())
            }
            Ok(ended) => came(READ16, expected, ended.transferred),
            Err(error) => Err(self.not_completed(READ16, error)),
        }
    }

    /// Lets the SRAM's DMA send from a slot of 16 KiB on, by E5 alone, over UAS with streams: 1 to 1,024 sectors, as far as
    /// the SRAM goes. There is no command and no status. E4, E5 and TLPs go on meanwhile, so `tell` tells the device once the
    /// DMA is armed: it gets the entry that it has to write at once.
    ///
    /// # Errors
    /// [`SramReadError`]. Without a device that completes it, [`SramReadError::NoCompletion`] after `timeout`. Whatever goes
    /// wrong once the DMA is armed, the port is reset, so that the DMA forgets it; the initialisation may be gone then.
    pub fn read_sram_by_dma<E: Into<SramReadError>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        timeout: Duration,
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        let most = SRAM.saturating_sub(SLOT * usize::from(first_slot));
        whole_sectors(DMA, "1 to 1,024 sectors of 512 bytes within the SRAM's 512 KiB", buffer.len(), most)?;
        let stream = self.require_streams(DMA)?;
        let queues = self.queues()?;
        let ([stream_high, stream_low], sectors) = (stream.to_be_bytes(), (buffer.len() / SECTOR) as u16);
        let [sectors_high, sectors_low] = sectors.to_be_bytes();
        let end = first_slot + buffer.len().div_ceil(SLOT) as u8;
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
            // To the host, and started by 0xC429.
            (0xC412, 0x02),
            (0xC429, first_slot),
        ];
        self.write_all(SLOT_COUNTERS.map(|at| (at, 0)).into_iter().chain(setup))?;
        if let Err(error) = tell(self, queues.entry([first_slot, QUEUE_SLOT], None)) {
            // Nobody will complete it: only a reset of the port makes the DMA forget it.
            let _ = self.transport_mut().read_spare_stream(buffer, Duration::ZERO);
            return Err(error.into());
        }
        let expected = buffer.len();
        match self.transport_mut().read_spare_stream(buffer, timeout) {
            Ok(found) => came(DMA, expected, found),
            Err(error) => Err(self.not_completed(DMA, error)),
        }
    }

    /// What a time-out means, which the transport has already recovered from.
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
    /// F2 towards the host, from a slot of 16 KiB on: arms the SRAM's DMA, lets the device be told by `tell`, and takes the
    /// data. `tell` gets the entry that the device has to write once the data are in the SRAM.
    ///
    /// # Errors
    /// [`SramReadError`]. Without a device that completes it, [`ControlError::BulkTimeout`]: the DMA stays armed then.
    pub fn sram_read<E: Into<SramReadError>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        tell: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), SramReadError> {
        let most = SRAM.saturating_sub(SLOT * usize::from(first_slot));
        whole_sectors(F2, "1 to 1,024 sectors of 512 bytes within the SRAM's 512 KiB", buffer.len(), most)?;
        let sectors = (buffer.len() / SECTOR) as u16;
        self.arm_sram(SramTransfer { to_host: true, first_slot, sectors })?;
        let mut bytes = [0; 16];
        bytes[14] = 1;
        tell(self, Entry { to: OPEN_ENTRY_ADDRESS, bytes, command_at: None }).map_err(Into::into)?;
        Ok(self.bulk_in(buffer)?)
    }
}

const fn whole_sectors(way: &'static str, limit: &'static str, found: usize, most: usize) -> Result<(), SramReadError> {
    if found == 0 || !found.is_multiple_of(SECTOR) || found > most {
        Err(SramReadError::Length { way, limit, found })
    } else {
        Ok(())
    }
}

const fn came(way: &'static str, expected: usize, found: usize) -> Result<(), SramReadError> {
    if found == expected { Ok(()) } else { Err(SramReadError::Short { way, expected, found }) }
}
