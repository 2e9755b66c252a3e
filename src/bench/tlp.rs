//! Measurement of single TLPs on either firmware: configuration reads, memory reads, and memory writes in batches.

use std::time::Instant;

use super::beyond::{Beyond, Memory};
use super::error::BenchError;
use super::integrity;
use super::measure::{Effort, Point};
use super::path::Path;
use super::pattern::Pattern;
use super::report::Outcome;
use super::tally::repeat;
use crate::bridge::open::{CompletionStatus, Tlp};
use crate::bridge::{CommandError, ControlError};
use crate::interrupt::Interrupt;
use crate::pcie::{EngineError, TlpEngine};

/// Bytes of the memory range that single TLPs read and write.
const REACH: u64 = 1024;

/// Times TLPs at one size: one request and its completion, or a batch of writes until the unit has taken all.
///
/// # Errors
/// If the wire failed or Ctrl-C was pressed. No answer, a refusal and a status other than success are outcomes.
pub(super) fn measure<E: TlpEngine>(
    engine: &mut E,
    point: Point,
    beyond: &Beyond,
    effort: Effort,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, BenchError> {
    let mut number = 0;
    repeat(engine, E::simulated, effort, interrupt, |engine, tally, until| {
        while Instant::now() < until && !interrupt.is_requested() {
            let Some(tlps) = tlps(point, beyond, number) else { return Ok(None) };
            number += 1;
            let begun = Instant::now();
            let completions = match engine.tlps(&tlps) {
                Ok(completions) => completions,
                Err(error) => return outcome_of(error, effort).map(Some),
            };
            tally.count(point.size, begun.elapsed());
            let failed = completions.iter().flatten().find(|completion| completion.status != CompletionStatus::Success);
            if let Some(completion) = failed {
                return Ok(Some(Outcome::Refused { reason: completion.status.to_string() }));
            }
        }
        Ok(None)
    })
}

/// The `number`th batch.
fn tlps(point: Point, beyond: &Beyond, number: u64) -> Option<Vec<Tlp>> {
    let dwords = (point.size / 4) as u64;
    let at = |memory: Memory, index: u64| memory.address + (number * dwords + index) * 4 % REACH;
    match point.path {
        Path::ConfigRead => {
            let function = beyond.function?;
            Some(vec![Tlp::config_read(function.bus, function.device, function.function, 0)])
        }
        Path::TlpRead => Some(vec![Tlp::memory_read(at(*beyond.memory.as_ref().ok()?, 0))]),
        Path::TlpWrite => {
            let memory = *beyond.memory.as_ref().ok()?;
            Some((0..dwords).map(|index| Tlp::memory_write(at(memory, index), index as u32)).collect())
        }
        _ => None,
    }
}

/// Writes the pattern's first dwords one by one, and reads them back.
///
/// # Errors
/// As for [`measure`].
pub(super) fn check<E: TlpEngine>(
    engine: &mut E,
    memory: Memory,
    pattern: &Pattern,
    effort: Effort,
) -> Result<Outcome, BenchError> {
    let expected = &pattern.bytes()[..REACH as usize];
    if let Err(error) = write(engine, memory, expected) {
        return outcome_of(error, effort);
    }
    Ok(match save(engine, memory, effort)? {
        Ok(found) => integrity::compare(expected, &found, 0),
        Err(outcome) => outcome,
    })
}

/// Saves the bytes that [`check`] and [`measure`] overwrite; an outcome if they can't be read.
///
/// # Errors
/// As for [`measure`].
pub(super) fn save<E: TlpEngine>(
    engine: &mut E,
    memory: Memory,
    effort: Effort,
) -> Result<Result<Vec<u8>, Outcome>, BenchError> {
    match read(engine, memory) {
        Ok(Ok(found)) => Ok(Ok(found)),
        Ok(Err(status)) => Ok(Err(Outcome::Refused { reason: status.to_string() })),
        Err(error) => outcome_of(error, effort).map(Err),
    }
}

fn read<E: TlpEngine>(engine: &mut E, memory: Memory) -> Result<Result<Vec<u8>, CompletionStatus>, EngineError> {
    let tlps: Vec<Tlp> = (0..REACH).step_by(4).map(|offset| Tlp::memory_read(memory.address + offset)).collect();
    let completions = engine.tlps(&tlps)?;
    let dwords = completions.into_iter().flatten().map(|completion| completion.value().ok_or(completion.status));
    let dwords: Result<Vec<u32>, CompletionStatus> = dwords.collect();
    Ok(dwords.map(|dwords| dwords.into_iter().flat_map(u32::to_le_bytes).collect()))
}

/// Writes these bytes dword by dword.
///
/// # Errors
/// [`EngineError`].
pub(super) fn write<E: TlpEngine>(engine: &mut E, memory: Memory, bytes: &[u8]) -> Result<(), EngineError> {
    let (dwords, _) = bytes.as_chunks::<4>();
    let addresses = (memory.address..).step_by(4);
    let tlps: Vec<Tlp> =
        addresses.zip(dwords).map(|(address, dword)| Tlp::memory_write(address, u32::from_le_bytes(*dword))).collect();
    engine.tlps(&tlps).map(drop)
}

/// The result of a row after a failed request; an error if nothing more can be measured.
///
/// # Errors
/// The wire failed.
fn outcome_of(error: EngineError, effort: Effort) -> Result<Outcome, BenchError> {
    match error {
        EngineError::Control(error) => control_outcome(error),
        EngineError::Command(CommandError::Transport(error)) if error.is_timeout() => {
            Ok(Outcome::NoAnswer { timeout_s: effort.timeout.as_secs_f64() })
        }
        EngineError::Command(CommandError::Transport(error)) => Err(error.into()),
        EngineError::Command(error) => Ok(Outcome::Refused { reason: error.to_string() }),
    }
}

/// The same for the open firmware's requests.
///
/// # Errors
/// The wire failed.
pub(super) fn control_outcome(error: ControlError) -> Result<Outcome, BenchError> {
    match error {
        ControlError::Timeout { deadline, .. }
        | ControlError::BulkTimeout { deadline, .. }
        | ControlError::SramBusy { deadline, .. } => Ok(Outcome::NoAnswer { timeout_s: deadline.as_secs_f64() }),
        ControlError::Short { expected, found, .. } => Ok(Outcome::Short { expected, found }),
        ControlError::Stalled { .. } | ControlError::Malformed { .. } => {
            Ok(Outcome::Refused { reason: error.to_string() })
        }
        error @ (ControlError::Disconnected { .. } | ControlError::Length { .. } | ControlError::Io { .. }) => {
            Err(error.into())
        }
    }
}
