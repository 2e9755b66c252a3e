//! The integrity check, before anything else: bytes written by WRITE(16) must read back the same through the E4 window.

use std::time::Duration;

use super::error::BenchError;
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::{Integrity, Outcome};
use crate::bridge::{Bridge, CommandError, Completion, DataPhase, Transport};
use crate::scsi::{BLOCK_LEN, Command, ScsiStatus, XdataAddress};

/// Bytes that one E4 reads on any firmware.
const E4_STEP: usize = 255;

/// Result of one exchange.
pub(super) enum PieceResult {
    /// GOOD, with this many bytes moved.
    Moved(usize),
    /// No answer; the unit has been recovered.
    NoAnswer,
    /// Another status, in words.
    Refused(String),
}

/// Runs one command, and recovers the unit if it gets no answer.
pub(super) fn exchange<T: Transport>(
    bridge: &mut Bridge<T>,
    path: Path,
    command: Command,
    data: DataPhase<'_>,
    timeout: Duration,
) -> Result<PieceResult, BenchError> {
    match bridge.execute(command, data, timeout) {
        Ok(completion) if completion.status == ScsiStatus::Good => Ok(PieceResult::Moved(completion.transferred)),
        Ok(completion) => Ok(PieceResult::Refused(refusal(&completion))),
        Err(error) if error.is_timeout() => {
            recover(bridge, path)?;
            Ok(PieceResult::NoAnswer)
        }
        Err(error) => Err(error.into()),
    }
}

/// Says how a command ended that was not GOOD.
pub(super) fn refusal(completion: &Completion) -> String {
    match completion.sense {
        Some(sense) => format!("sense {sense}"),
        None => format!("status {:#04x}", u8::from(completion.status)),
    }
}

/// Recovers the unit after a path that gave no answer.
pub(super) fn recover<T: Transport>(bridge: &mut Bridge<T>, path: Path) -> Result<(), BenchError> {
    let mut recovered = bridge.recover();
    if recovered.is_ok() {
        // A unit is recovered only when it answers again.
        recovered = match bridge.is_ready() {
            Ok(_) => Ok(()),
            Err(CommandError::Transport(error)) => Err(error.into()),
            Err(_) => Ok(()),
        };
    }
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
    let mut integrity = Integrity::default();
    let pieces = pattern.bytes().chunks(WINDOW_LEN);
    let again = pattern.bytes().chunks(WINDOW_LEN).take(1);
    for (index, piece) in pieces.enumerate().chain(again.map(|piece| (0, piece))) {
        let command = Command::Write16 { lba: 0, blocks: (piece.len() / BLOCK_LEN) as u32 };
        match exchange(bridge, Path::Write16, command, DataPhase::Out(piece), timeout)? {
            PieceResult::Moved(moved) if moved == piece.len() => {}
            other => {
                integrity.write16 = Some(outcome(other, piece.len(), timeout));
                return Ok(integrity);
            }
        }
        integrity.write16 = Some(Outcome::Same);
        let found = read_back(bridge, piece, index * WINDOW_LEN, timeout)?;
        let goes_on = found == Outcome::Same;
        integrity.e4 = Some(found);
        bridge.free_slots(piece.len())?;
        if !goes_on {
            break;
        }
    }
    Ok(integrity)
}

/// Reads the window and compares it with `piece`, which is at `offset` of the pattern.
fn read_back<T: Transport>(
    bridge: &mut Bridge<T>,
    piece: &[u8],
    offset: usize,
    timeout: Duration,
) -> Result<Outcome, BenchError> {
    let mut buffer = [0; E4_STEP];
    for (step, expected) in piece.chunks(E4_STEP).enumerate() {
        let at = step * E4_STEP;
        let found = &mut buffer[..expected.len()];
        let from = XdataAddress::SRAM_WINDOW.plus(at as u16);
        let command = Command::XdataRead { from, len: expected.len() as u16 };
        match exchange(bridge, Path::E4Stock, command, DataPhase::In(found), timeout)? {
            PieceResult::Moved(moved) if moved == expected.len() => {}
            other => return Ok(outcome(other, expected.len(), timeout)),
        }
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

fn outcome(result: PieceResult, expected: usize, timeout: Duration) -> Outcome {
    match result {
        PieceResult::Moved(found) => Outcome::Short { expected, found },
        PieceResult::NoAnswer => Outcome::NoAnswer { timeout_s: timeout.as_secs_f64() },
        PieceResult::Refused(reason) => Outcome::Refused { reason },
    }
}
