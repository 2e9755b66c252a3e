//! Measurement of single TLPs on either firmware: configuration reads, memory reads, and memory writes in batches.

use std::time::{Duration, Instant};

use asm2464::tlp::{CompletionStatus, Tlp};
use asm2464_host::bridge::CommandError;
use asm2464_host::pcie::{EngineError, TlpEngine};

use super::behind::{Memory, PcieDevices};
use super::benched_unit::Task;
use super::error::Halt;
use super::path::Path;
use super::plan::Point;
use super::report::Outcome;
use super::tally::repeat;
use crate::failure::AnyFailure;

/// Bytes of the memory range that single TLPs read and write.
pub(super) const REACH: usize = 1024;

/// Times TLPs at one size: one request and its completion, or a batch of writes until the unit has taken all.
///
/// # Errors
/// If the wire failed or Ctrl-C was pressed. No answer, a refusal and a status other than success are outcomes.
pub(super) fn measure(
    engine: &mut dyn TlpEngine,
    point: Point,
    devices: &PcieDevices,
    task: &Task<'_>,
) -> Result<Outcome, AnyFailure> {
    let Task { effort, interrupt, .. } = *task;
    let mut number = 0;
    repeat(engine, effort, interrupt, |engine, tally, until| {
        while Instant::now() < until && !interrupt.is_requested() {
            let Some(tlps) = tlps(point, devices, number) else { return Ok(()) };
            number += 1;
            let begun = Instant::now();
            let completions = engine.tlps(&tlps).map_err(|error| halt(error, effort.timeout))?;
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
fn tlps(point: Point, devices: &PcieDevices, number: u64) -> Option<Vec<Tlp>> {
    let dwords = (point.size / 4) as u64;
    let at = |memory: Memory, index: u64| memory.address + (number * dwords + index) * 4 % REACH as u64;
    match point.path {
        Path::ConfigRead => {
            let function = devices.function?;
            Some(vec![Tlp::config_read(function.bus, function.device, function.function, 0)])
        }
        Path::TlpRead => Some(vec![Tlp::memory_read(at(*devices.memory.as_ref().ok()?, 0))]),
        Path::TlpWrite => {
            let memory = *devices.memory.as_ref().ok()?;
            Some((0..dwords).map(|index| Tlp::memory_write(at(memory, index), index as u32)).collect())
        }
        _ => None,
    }
}

/// Reads memory dword by dword.
///
/// # Errors
/// [`Halt`].
pub(super) fn read(
    engine: &mut dyn TlpEngine,
    memory: Memory,
    buffer: &mut [u8],
    timeout: Duration,
) -> Result<(), Halt> {
    let (dwords, _) = buffer.as_chunks_mut::<4>();
    let tlps: Vec<Tlp> =
        (memory.address..).step_by(4).zip(&*dwords).map(|(address, _)| Tlp::memory_read(address)).collect();
    let completions = engine.tlps(&tlps).map_err(|error| halt(error, timeout))?;
    for (dword, completion) in dwords.iter_mut().zip(completions.into_iter().flatten()) {
        let value = completion.value().ok_or_else(|| Outcome::Refused { reason: completion.status.to_string() })?;
        *dword = value.to_le_bytes();
    }
    Ok(())
}

/// Writes these bytes dword by dword.
///
/// # Errors
/// [`EngineError`].
pub(super) fn write(engine: &mut dyn TlpEngine, memory: Memory, bytes: &[u8]) -> Result<(), EngineError> {
    let (dwords, _) = bytes.as_chunks::<4>();
    let addresses = (memory.address..).step_by(4);
    let tlps: Vec<Tlp> =
        addresses.zip(dwords).map(|(address, dword)| Tlp::memory_write(address, u32::from_le_bytes(*dword))).collect();
    engine.tlps(&tlps).map(drop)
}

/// What a failed request means for its path.
pub(super) fn halt(error: EngineError, timeout: Duration) -> Halt {
    match error {
        EngineError::Control(error) => error.into(),
        EngineError::Command(CommandError::Transport(error)) if error.is_timeout() => {
            Outcome::no_answer(timeout).into()
        }
        EngineError::Command(CommandError::Transport(error)) => Halt::Error(error.into()),
        EngineError::Command(
            CommandError::Short { expected, found, .. } | CommandError::ShortXdata { expected, found },
        ) => Outcome::Short { expected, found }.into(),
        EngineError::Command(error) => Outcome::Refused { reason: error.to_string() }.into(),
    }
}
