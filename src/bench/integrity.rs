//! The integrity check, before any row: bytes written into the SRAM must read back the same through the E4 window.

use std::time::Duration;

use asm2464::Kind;
use asm2464::scsi::{Command, ScsiStatus};
use asm2464_host::bridge::{Bridge, CommandEnd, CommandError, DataPhase, Transport};

use super::benched_unit::BenchedUnit;
use super::halt::Halt;
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::Outcome;
use crate::failure::{AnyFailure, Failure};

/// Runs one command that moves `len` bytes, and recovers the unit if it gets no answer.
pub(super) fn exchange<T: Transport>(
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
        Err(error) => Err(AnyFailure::from(error).into()),
    }
}

/// Describes the end of a command whose status is not GOOD.
pub(super) fn refusal(completion: &CommandEnd) -> String {
    match completion.sense {
        Some(sense) => format!("sense {sense}"),
        None => format!("status {:#04x}", u8::from(completion.status)),
    }
}

/// Recovers the unit after a path that gave no answer.
pub(super) fn recover<T: Transport>(bridge: &mut Bridge<T>, path: Path) -> Result<(), AnyFailure> {
    // A unit is recovered only when it answers again.
    let recovered = bridge.recover().and_then(|()| match bridge.is_ready() {
        Err(CommandError::Transport(error)) => Err(error.into()),
        _ => Ok(()),
    });
    recovered.map_err(|error| {
        let what = format!("the unit did not come back after {path} got no answer");
        Failure::new(Kind::NoAnswer.code("asmpatch::bench::recovery"), what).because(error).into()
    })
}

/// Writes the pattern into the SRAM, 4 KiB at a time, and reads each piece back through E4 before it writes the next.
/// Leaves the pattern's first 4 KiB in the window. Returns the results of writing and of reading.
///
/// # Errors
/// If the wire failed. A path that does not answer, refuses or returns other bytes is a result.
pub(super) fn check(
    subject: &mut dyn BenchedUnit,
    pattern: &Pattern,
    timeout: Duration,
) -> Result<[Option<Outcome>; 2], AnyFailure> {
    let (mut written, mut read) = (None, None);
    let mut buffer = vec![0; WINDOW_LEN];
    let pieces = pattern.bytes().chunks(WINDOW_LEN).enumerate();
    for (index, piece) in pieces.chain([(0, &pattern.bytes()[..WINDOW_LEN])]) {
        written = Some(subject.write_sram(piece, timeout).map(|()| Outcome::Same).or_else(Halt::outcome)?);
        if written != Some(Outcome::Same) {
            break;
        }
        let found = subject.read_window(&mut buffer, timeout);
        let compared = found.map(|()| compare(piece, &buffer, index * WINDOW_LEN));
        read = Some(compared.or_else(Halt::outcome)?);
        if read != Some(Outcome::Same) {
            break;
        }
    }
    Ok([written, read])
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
