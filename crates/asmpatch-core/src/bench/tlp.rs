//! Measurement of single TLPs on either firmware: configuration reads, memory reads, and memory writes in batches.

use std::time::Instant;

use asm2464::interrupt::Interrupt;
use asm2464::tlp::{CompletionStatus, Tlp};
use asm2464_host::bridge::CommandError;
use asm2464_host::pcie::{EngineError, TlpEngine};

use super::beyond::{Beyond, Memory};
use super::error::{BenchError, Halt};
use super::integrity;
use super::measure::{Effort, Point};
use super::path::Path;
use super::pattern::Pattern;
use super::report::Outcome;
use super::tally::repeat;

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
            let Some(tlps) = tlps(point, beyond, number) else { return Ok(()) };
            number += 1;
            let begun = Instant::now();
            let completions = engine.tlps(&tlps).map_err(|error| halt(error, effort))?;
            tally.count(point.size, begun.elapsed());
            let mut statuses = completions.iter().flatten().map(|completion| completion.status);
            if let Some(status) = statuses.find(|status| *status != CompletionStatus::Success) {
                return Err(Outcome::Refused { reason: status.to_string() }.into());
            }
        }
        Ok(())
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
/// [`Halt`].
pub(super) fn check<E: TlpEngine>(
    engine: &mut E,
    memory: Memory,
    pattern: &Pattern,
    effort: Effort,
) -> Result<Outcome, Halt> {
    let expected = &pattern.bytes()[..REACH as usize];
    write(engine, memory, expected).map_err(|error| halt(error, effort))?;
    Ok(integrity::compare(expected, &save(engine, memory, effort)?, 0))
}

/// Saves the bytes that [`check`] and [`measure`] overwrite.
///
/// # Errors
/// [`Halt`].
pub(super) fn save<E: TlpEngine>(engine: &mut E, memory: Memory, effort: Effort) -> Result<Vec<u8>, Halt> {
    let tlps: Vec<Tlp> = (0..REACH).step_by(4).map(|offset| Tlp::memory_read(memory.address + offset)).collect();
    let completions = engine.tlps(&tlps).map_err(|error| halt(error, effort))?;
    let dwords = completions
        .into_iter()
        .flatten()
        .map(|completion| completion.value().ok_or_else(|| Outcome::Refused { reason: completion.status.to_string() }));
    let dwords: Vec<u32> = dwords.collect::<Result<_, _>>()?;
    Ok(dwords.into_iter().flat_map(u32::to_le_bytes).collect())
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

/// What a failed request means for its path.
fn halt(error: EngineError, effort: Effort) -> Halt {
    match error {
        EngineError::Control(error) => error.into(),
        EngineError::Command(CommandError::Transport(error)) if error.is_timeout() => {
            Outcome::no_answer(effort.timeout).into()
        }
        EngineError::Command(CommandError::Transport(error)) => Halt::Error(error.into()),
        EngineError::Command(error) => Outcome::Refused { reason: error.to_string() }.into(),
    }
}
