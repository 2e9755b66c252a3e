//! Reads of the bridge's SRAM with READ(16) on vendor firmware that has only the status patch: a device behind the bridge
//! completes them.
//!
//! READ(16) sets up the SRAM's DMA as the open firmware's F2 does. Either way the data goes to the host once a PCIe
//! device writes an NVMe completion entry to the I/O completion queue. Source: executed on 240417 on the chip model;
//! the open firmware's README and `test_sram_verify.py`, where F2 waits for the same. This project has run neither on
//! silicon: expect it to work, but don't rely on it.

use std::time::Duration;

use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{BLOCK_LEN, Command, ScsiStatus, XdataAddress};
use asm2464::sram::{VENDOR_COMPLETIONS_PAGE, page_address};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_host::bridge::{Bridge, CommandError, DataPhase, TransportError, TransportErrorKind, TransportKind};
use asm2464_host::pcie::Entry;

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

/// Reads from the SRAM's start with READ(16): 1 to 128 sectors, over UAS with streams, on a unit that is
/// [initialised](Bridge::initialise). During the command the unit answers no E4 and no E5, so the device is set up
/// beforehand: `set_up` gets the entry that the device has to write once the command is in the submission queue.
///
/// First clears slots and counters that a WRITE(16) left. The firmware clears the READ(16)'s own when it ends.
///
/// # Errors
/// If the transport, the unit or the length does not allow READ(16); [`CommandError`]; any error of `set_up`. Without
/// a device that completes the read, `lab::read16::no_completion` after `timeout`. The unit then takes commands again,
/// and is no longer initialised.
pub fn read_sram<E: Into<AnyFailure>>(
    bridge: &mut Bridge,
    buffer: &mut [u8],
    timeout: Duration,
    set_up: impl FnOnce(&mut Bridge, Entry) -> Result<(), E>,
) -> Result<(), AnyFailure> {
    let expected = buffer.len();
    if expected == 0 || !expected.is_multiple_of(BLOCK_LEN) || expected > READ_MAX {
        let message = format!("READ(16) moves 1 to 128 sectors of 512 bytes, not {expected} bytes");
        return Err(Failure::new(Kind::Usage.code("lab::read16::length"), message).into());
    }
    let kind = bridge.transport_mut().kind();
    if kind != TransportKind::UasStreams {
        let message = format!("READ(16) needs bulk streams; the unit is on {kind} without them");
        return Err(Failure::new(Kind::Refused.code("lab::read16::transport"), message).into());
    }
    // Without them the firmware refuses READ(16).
    let variables = bridge.variables()?;
    for (at, expected) in variables.initialised() {
        let found = bridge.xdata_byte(XdataAddress::main(at))?;
        if found != expected {
            let message = format!(
                "the unit is not initialised for READ(16): XDATA {at:#06x} is {found:#04x}, expected {expected:#04x}"
            );
            return Err(Failure::new(Kind::Device.code("lab::read16::not_initialised"), message).into());
        }
    }
    let freed = freeing(READ_MAX).chain(variables.counters());
    bridge.xdata_write_all(freed.map(|(at, value)| (XdataAddress::main(at), value)))?;
    let first = bridge.xdata_byte(FIRST_FREE)?;
    if first != 0 {
        return Err(unexpected(&format!("slot {first:#04x} of the SRAM is its first free one, expected 0")).into());
    }
    let mut queues = [0; QUEUES_LEN];
    bridge.xdata_read(QUEUES, &mut queues)?;
    let (tail, head, phase) = (queues[0], queues[4], queues[QUEUES_LEN - 1]);
    if tail >= PLACES || head >= PLACES {
        return Err(unexpected(&format!("their ends are at {tail:#04x} and {head:#04x} of {PLACES:#04x}")).into());
    }
    let offset = COMMAND_LEN * u16::from(tail);
    // A device that waits for the command must not take an old one for it.
    bridge.xdata_write(XdataAddress::main(COMMANDS + offset), 0)?;
    let mut bytes = [0; 16];
    bytes[14] = !phase & 1;
    let to = ENTRIES_ADDRESS + ENTRY_LEN * u64::from(head);
    let command_at = Some(COMMANDS_ADDRESS + u64::from(offset));
    set_up(bridge, Entry { to, bytes, command_at }).map_err(Into::into)?;
    let command = Command::Read16 { lba: 0, blocks: (expected / BLOCK_LEN) as u32 };
    let ended = match bridge.execute(command, DataPhase::In(buffer), timeout) {
        Err(TransportError { kind: TransportErrorKind::Timeout { deadline }, .. }) => {
            return Err(not_completed(bridge, deadline).into());
        }
        ended => ended?,
    };
    if ended.status != ScsiStatus::Good || ended.transferred != expected {
        let message = format!("READ(16) of {expected} bytes ended so: {ended:?}");
        return Err(Failure::new(Kind::Device.code("lab::read16::ended"), message).into());
    }
    Ok(())
}

/// The error of a READ(16) that no device completed in time. The transport has already recovered the unit.
fn not_completed(bridge: &mut Bridge, deadline: Duration) -> Failure {
    if let Err(error @ CommandError::Transport(_)) = bridge.is_ready() {
        let message = format!("no device completed READ(16), and the unit does not come back: {error}");
        return Failure::new(Kind::Device.code("lab::read16::power"), message);
    }
    let message = format!("no device completed READ(16) within {deadline:?}");
    Failure::new(Kind::Device.code("lab::read16::no_completion"), message)
}

/// The error of the firmware's variables with values that its code never writes.
fn unexpected(what: &str) -> Failure {
    let message = format!("the firmware's queues are in an unexpected state: {what}");
    Failure::new(Kind::Device.code("lab::read16::queues"), message)
}
