//! First of all: what WRITE(16) writes must come back the same, through the E4 window and through READ(16).

use std::time::Duration;

use super::error::BenchError;
use super::path::{Path, WINDOW_AT};
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::{Integrity, Outcome};
use crate::bridge::{Bridge, CommandError, DataPhase, Transport, TransportError};
use crate::scsi::{Command, DataLength, ScsiStatus, XdataAddress};

/// Bytes that E4 reads in one command on any firmware.
const E4_STEP: usize = 255;
/// Bytes a READ(16) or WRITE(16) of the check moves.
const STEP: usize = 0x1_0000;

/// How one exchange ended.
pub(super) enum Exchange {
    /// GOOD, with this many bytes moved.
    Moved(usize),
    /// No answer; the unit has been recovered.
    NoAnswer,
    /// Another status, in words.
    Refused(String),
}

/// Runs one command, and recovers the unit where it gets no answer.
pub(super) fn exchange<T: Transport>(
    bridge: &mut Bridge<T>,
    path: Path,
    command: Command,
    data: DataPhase<'_>,
    timeout: Duration,
) -> Result<Exchange, BenchError> {
    match bridge.execute(command, data, timeout) {
        Ok(completion) if completion.status == ScsiStatus::Good => Ok(Exchange::Moved(completion.transferred)),
        Ok(completion) => Ok(Exchange::Refused(match completion.sense {
            Some(sense) => format!("sense {sense}"),
            None => format!("status {:#04x}", u8::from(completion.status)),
        })),
        Err(TransportError::Timeout { .. }) => {
            recover(bridge, path)?;
            Ok(Exchange::NoAnswer)
        }
        Err(error) => Err(error.into()),
    }
}

/// Brings the unit back after a path that gave no answer.
pub(super) fn recover<T: Transport>(bridge: &mut Bridge<T>, path: Path) -> Result<(), BenchError> {
    let mut recovered = bridge.recover();
    if recovered.is_ok() {
        // Only a unit that answers again is recovered.
        recovered = match bridge.is_ready() {
            Ok(_) => Ok(()),
            Err(CommandError::Transport(error)) => Err(error.into()),
            Err(_) => Ok(()),
        };
    }
    recovered.map_err(|source| BenchError::NotRecovered { path: path.to_string(), source })
}

/// Writes the pattern through WRITE(16) and reads it back by both ways.
///
/// # Errors
/// Where the wire failed. That a path does not answer, refuses or brings other bytes is a result.
pub fn check<T: Transport>(
    bridge: &mut Bridge<T>,
    pattern: &Pattern,
    timeout: Duration,
) -> Result<Integrity, BenchError> {
    let mut integrity = Integrity::default();
    for (step, chunk) in pattern.bytes().chunks(STEP).enumerate() {
        let (command, _) = Path::Write16.command(step as u64, chunk.len());
        match exchange(bridge, Path::Write16, command, DataPhase::Out(chunk), timeout)? {
            Exchange::Moved(moved) if moved == chunk.len() => {}
            other => {
                integrity.write16 = Some(outcome(other, chunk.len(), timeout));
                return Ok(integrity);
            }
        }
    }
    integrity.write16 = Some(Outcome::Same);

    let mut window = vec![0; WINDOW_LEN];
    integrity.e4 = Some(read_back(bridge, Path::E4Stock, E4_STEP, &mut window, pattern, timeout)?);
    let mut buffer = vec![0; pattern.bytes().len()];
    integrity.read16 = Some(read_back(bridge, Path::Read16, STEP, &mut buffer, pattern, timeout)?);
    Ok(integrity)
}

/// Reads `into.len()` bytes from the start of the data buffer and compares them with the pattern.
fn read_back<T: Transport>(
    bridge: &mut Bridge<T>,
    path: Path,
    step: usize,
    into: &mut [u8],
    pattern: &Pattern,
    timeout: Duration,
) -> Result<Outcome, BenchError> {
    let mut at = 0;
    for chunk in into.chunks_mut(step) {
        let command = match path {
            Path::Read16 | Path::Write16 => path.command((at / step) as u64, chunk.len()).0,
            Path::E4Stock | Path::E4Extended => {
                Command::XdataRead { from: XdataAddress::main(WINDOW_AT + at as u16), len: chunk.len() as u16 }
            }
        };
        debug_assert_eq!(command.data(), DataLength::In(chunk.len() as u32));
        let expected = chunk.len();
        match exchange(bridge, path, command, DataPhase::In(chunk), timeout)? {
            Exchange::Moved(moved) if moved == expected => {}
            other => return Ok(outcome(other, expected, timeout)),
        }
        at += expected;
    }
    let differs = into.iter().zip(pattern.bytes()).position(|(found, expected)| found != expected);
    Ok(match differs {
        None => Outcome::Same,
        Some(at) => Outcome::Differs { offset: at, expected: pattern.bytes()[at], found: into[at] },
    })
}

fn outcome(exchange: Exchange, expected: usize, timeout: Duration) -> Outcome {
    match exchange {
        Exchange::Moved(found) => Outcome::Short { expected, found },
        Exchange::NoAnswer => Outcome::NoAnswer { timeout_s: timeout.as_secs_f64() },
        Exchange::Refused(reason) => Outcome::Refused { reason },
    }
}
