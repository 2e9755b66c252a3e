//! The integrity check, before anything else: bytes written by WRITE(16) must read back the same through the E4 window.

use std::time::Duration;

use asm2464::scsi::{BLOCK_LEN, Command, ScsiStatus, XdataAddress};
use asm2464_host::bridge::{Bridge, CommandEnd, CommandError, DataPhase, Transport};

use super::error::{BenchError, Halt};
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::{Integrity, Outcome};

/// Bytes that one E4 reads on any firmware.
const E4_STEP: usize = 255;

/// Runs one command that moves `len` bytes, and recovers the unit if it gets no answer.
fn exchange<T: Transport>(
    bridge: &mut Bridge<T>,
    path: Path,
    command: Command,
    data: DataPhase<'_>,
    len: usize,
    timeout: Duration,
) -> Result<(), Halt> {
    match bridge.execute(command, data, timeout) {
        Ok(ended) if ended.status != ScsiStatus::Good => Err(Outcome::Refused { reason: refusal(&ended) }.into()),
        Ok(ended) if ended.transferred != len => Err(Outcome::Short { expected: len, found: ended.transferred }.into()),
        Ok(_) => Ok(()),
        Err(error) if error.is_timeout() => {
            recover(bridge, path)?;
            Err(Outcome::no_answer(timeout).into())
        }
        Err(error) => Err(BenchError::from(error).into()),
    }
}

/// Says how a command ended that was not GOOD.
pub(super) fn refusal(completion: &CommandEnd) -> String {
    match completion.sense {
        Some(sense) => format!("sense {sense}"),
        None => format!("status {:#04x}", u8::from(completion.status)),
    }
}

/// Recovers the unit after a path that gave no answer.
pub(super) fn recover<T: Transport>(bridge: &mut Bridge<T>, path: Path) -> Result<(), BenchError> {
    // A unit is recovered only when it answers again.
    let recovered = bridge.recover().and_then(|()| match bridge.is_ready() {
        Err(CommandError::Transport(error)) => Err(error.into()),
        _ => Ok(()),
    });
    recovered.map_err(|source| BenchError::NotRecovered { path: path.to_string(), source })
}

/// Writes the pattern through WRITE(16), 4 KiB at a time, and reads each piece back through E4 before it sends the
/// next. Leaves the pattern's first 4 KiB in the window.
///
/// The LBA does not matter: each WRITE(16) takes the SRAM's next free slot, and the slots are freed after it as a GPU
/// runtime does. So every piece lands where XDATA 0xF000 shows it.
///
/// # Errors
/// If the wire failed. A path that does not answer, refuses or returns other bytes is a result.
pub fn check<T: Transport>(
    bridge: &mut Bridge<T>,
    pattern: &Pattern,
    timeout: Duration,
) -> Result<Integrity, BenchError> {
    let write = |bridge: &mut Bridge<T>, piece: &[u8]| {
        let command = Command::Write16 { lba: 0, blocks: (piece.len() / BLOCK_LEN) as u32 };
        exchange(bridge, Path::Write16, command, DataPhase::Out(piece), piece.len(), timeout)
    };
    let read_back = |bridge: &mut Bridge<T>, piece: &[u8], offset| {
        let found = read_back(bridge, piece, offset, timeout).or_else(Halt::outcome)?;
        bridge.free_slots(piece.len()).map_err(BenchError::from)?;
        Ok(found)
    };
    let [write16, e4] = check_pieces(bridge, pattern, write, read_back)?;
    Ok(Integrity { write16, e4, ..Integrity::default() })
}

/// Writes the pattern into the SRAM by `write`, 4 KiB at a time, and reads each piece back by `read_back` before it
/// writes the next. Leaves the first piece in the window. Returns the results of writing and of reading.
///
/// # Errors
/// If the wire failed.
pub(super) fn check_pieces<B>(
    bridge: &mut B,
    pattern: &Pattern,
    write: impl Fn(&mut B, &[u8]) -> Result<(), Halt>,
    read_back: impl Fn(&mut B, &[u8], usize) -> Result<Outcome, Halt>,
) -> Result<[Option<Outcome>; 2], BenchError> {
    let (mut written, mut found) = (None, None);
    let pieces = pattern.bytes().chunks(WINDOW_LEN).enumerate();
    for (index, piece) in pieces.chain([(0, &pattern.bytes()[..WINDOW_LEN])]) {
        written = Some(write(bridge, piece).map(|()| Outcome::Same).or_else(Halt::outcome)?);
        if written != Some(Outcome::Same) {
            break;
        }
        found = Some(read_back(bridge, piece, index * WINDOW_LEN).or_else(Halt::outcome)?);
        if found != Some(Outcome::Same) {
            break;
        }
    }
    Ok([written, found])
}

/// Reads the window and compares it with `piece`, which is at `offset` of the pattern.
fn read_back<T: Transport>(
    bridge: &mut Bridge<T>,
    piece: &[u8],
    offset: usize,
    timeout: Duration,
) -> Result<Outcome, Halt> {
    let mut buffer = [0; E4_STEP];
    for (step, expected) in piece.chunks(E4_STEP).enumerate() {
        let at = step * E4_STEP;
        let found = &mut buffer[..expected.len()];
        let from = XdataAddress::SRAM_WINDOW.plus(at as u16);
        let command = Command::XdataRead { from, len: expected.len() as u16 };
        exchange(bridge, Path::E4Stock, command, DataPhase::In(found), expected.len(), timeout)?;
        let outcome = compare(expected, found, offset + at);
        if outcome != Outcome::Same {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Same)
}

/// Compares the received bytes with those written at `offset` of the pattern.
pub(super) fn compare(expected: &[u8], found: &[u8], offset: usize) -> Outcome {
    if found.len() != expected.len() {
        return Outcome::Short { expected: expected.len(), found: found.len() };
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Outcome::Differs { offset: offset + at, expected: expected[at], found: found[at] },
        None => Outcome::Same,
    }
}
