//! Reads of the bridge's SRAM by its DMA, which a device behind the bridge completes: with F2 on open firmware, and
//! with READ(16) on vendor firmware that has only the status patch.
//!
//! READ(16) sets up the SRAM's DMA as the open firmware's F2 does. Either way the data goes to the host once a PCIe
//! device writes an NVMe completion entry to the I/O completion queue. Source: executed on 240417 on the chip model;
//! the open firmware's README and `test_sram_verify.py`, where F2 waits for the same. This project has run neither on
//! silicon: expect it to work, but don't rely on it.

use std::time::Duration;

use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{BLOCK_LEN, Command, ScsiStatus, XdataAddress};
use asm2464::sram::{SRAM_LEN, SRAM_SECTOR_LEN, SRAM_SLOT_LEN, VENDOR_COMPLETIONS_PAGE, page_address};
use asm2464::{AnyFailure, Failure, Kind};

use crate::bridge::open::SramTransfer;
use crate::bridge::{Bridge, CommandError, DataPhase, OpenBridge, TransportError, TransportErrorKind, TransportKind};

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

impl Bridge {
    /// Reads from the SRAM's start with READ(16): 1 to 128 sectors, over UAS with streams, on a unit that is
    /// [initialised](Bridge::initialise). During the command the unit answers no E4 and no E5, so the device is set up
    /// beforehand: `set_up` gets the entry that the device has to write once the command is in the submission queue.
    ///
    /// First clears slots and counters that a WRITE(16) left. The firmware clears the READ(16)'s own when it ends.
    ///
    /// # Errors
    /// If the transport, the unit or the length does not allow READ(16); [`CommandError`]; any error of `set_up`. Without
    /// a device that completes the read, `asm2464::sram::no_completion` after `timeout`. The unit then takes commands
    /// again, and is no longer initialised.
    pub fn read_sram_by_read16<E: Into<AnyFailure>>(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
        set_up: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), AnyFailure> {
        whole_sectors("READ(16)", "1 to 128 sectors of 512 bytes", buffer.len(), READ_MAX)?;
        let kind = self.transport_mut().kind();
        if kind != TransportKind::UasStreams {
            let message = format!("READ(16) needs bulk streams; the unit is on {kind} without them");
            return Err(Failure::new(Kind::Refused.code("asm2464::sram::transport"), message).into());
        }
        // Without them the firmware refuses READ(16).
        let variables = self.variables()?;
        for (at, expected) in variables.initialised() {
            let found = self.xdata_byte(XdataAddress::main(at))?;
            if found != expected {
                let message = format!(
                    "the unit is not initialised for READ(16): XDATA {at:#06x} is {found:#04x}, expected {expected:#04x}"
                );
                return Err(Failure::new(Kind::Device.code("asm2464::sram::not_initialised"), message).into());
            }
        }
        self.write_all(freeing(READ_MAX).chain(variables.counters()))?;
        let first = self.xdata_byte(FIRST_FREE)?;
        if first != 0 {
            return Err(unexpected(&format!("slot {first:#04x} of the SRAM is its first free one, expected 0")).into());
        }
        let queues = self.queues()?;
        let offset = COMMAND_LEN * u16::from(queues.tail);
        // A device that waits for the command must not take an old one for it.
        self.write_all([(COMMANDS + offset, 0)].into_iter())?;
        set_up(self, queues.entry([0; 2], Some(COMMANDS_ADDRESS + u64::from(offset)))).map_err(Into::into)?;
        let command = Command::Read16 { lba: 0, blocks: (buffer.len() / BLOCK_LEN) as u32 };
        let expected = buffer.len();
        let ended = match self.execute(command, DataPhase::In(buffer), timeout) {
            Err(TransportError { kind: TransportErrorKind::Timeout { deadline }, .. }) => {
                return Err(self.not_completed(deadline).into());
            }
            ended => ended?,
        };
        if ended.status != ScsiStatus::Good {
            return Err(CommandError::of_status(&command.cdb(), ended.status, ended.sense).into());
        }
        if ended.transferred != expected {
            let message = format!("READ(16) brought {} bytes, expected {expected}", ended.transferred);
            return Err(Failure::new(Kind::Short.code("asm2464::sram::short"), message).into());
        }
        Ok(())
    }

    /// Builds the error of a READ(16) that no device completed in time. The transport has already recovered the unit.
    fn not_completed(&mut self, deadline: Duration) -> Failure {
        if let Err(error @ CommandError::Transport(_)) = self.is_ready() {
            let message = format!("no device completed READ(16), and the unit does not come back: {error}");
            return Failure::new(Kind::Device.code("asm2464::sram::power"), message);
        }
        let message = format!("no device completed READ(16) within {deadline:?}");
        Failure::new(Kind::Device.code("asm2464::sram::no_completion"), message)
    }

    fn queues(&mut self) -> Result<Queues, AnyFailure> {
        let mut bytes = [0; QUEUES_LEN];
        self.xdata_read(QUEUES, &mut bytes)?;
        let queues = Queues { tail: bytes[0], head: bytes[4], phase: bytes[QUEUES_LEN - 1] };
        if queues.tail >= PLACES || queues.head >= PLACES {
            let what = format!("their ends are at {:#04x} and {:#04x} of {PLACES:#04x}", queues.tail, queues.head);
            return Err(unexpected(&what).into());
        }
        Ok(queues)
    }

    fn write_all(&mut self, writes: impl Iterator<Item = (u16, u8)>) -> Result<(), CommandError> {
        self.xdata_write_all(writes.map(|(at, value)| (XdataAddress::main(at), value)))
    }
}

impl OpenBridge {
    /// Reads the SRAM with F2 from a slot of 16 KiB on: arms the DMA, calls `set_up` for the device, and receives the
    /// data. `set_up` gets the entry that the device has to write, in the unit's
    /// [completions page](OpenBridge::completions_page), once the data is in the SRAM.
    ///
    /// Read from slot 0: on silicon an entry releases the data from there on, so a runtime whose data begins at a later
    /// slot has to discard what comes first. Source: tinygrad's pull request 17369; both runtimes arm only slot 0.
    ///
    /// # Errors
    /// If the length is not possible; [`ControlError`](crate::bridge::ControlError); any error of `set_up`. Without a
    /// device that completes the read, `asm2464::control::bulk_timeout`; the DMA stays armed then.
    pub fn sram_read<E: Into<AnyFailure>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        set_up: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), AnyFailure> {
        let most = SRAM_LEN.saturating_sub(SRAM_SLOT_LEN * usize::from(first_slot));
        whole_sectors("F2", "1 to 1,024 sectors of 512 bytes within the SRAM's 512 KiB", buffer.len(), most)?;
        let sectors = (buffer.len() / SRAM_SECTOR_LEN) as u16;
        let to = page_address(self.completions_page()?);
        self.arm_sram(SramTransfer { to_host: true, first_slot, sectors })?;
        let mut bytes = [0; 16];
        bytes[14] = 1;
        set_up(self, Entry { to, bytes, command_at: None }).map_err(Into::into)?;
        Ok(self.bulk_in(buffer)?)
    }
}

/// The error of the firmware's variables with values that its code never writes.
fn unexpected(what: &str) -> Failure {
    let message = format!("the firmware's queues are in an unexpected state: {what}");
    Failure::new(Kind::Device.code("asm2464::sram::queues"), message)
}

/// Checks that a read has whole sectors, and at most this many bytes.
fn whole_sectors(way: &str, limit: &str, found: usize, most: usize) -> Result<(), Failure> {
    if found != 0 && found.is_multiple_of(SRAM_SECTOR_LEN) && found <= most {
        return Ok(());
    }
    let message = format!("{way} moves {limit}, not {found} bytes");
    Err(Failure::new(Kind::Usage.code("asm2464::sram::length"), message))
}
