//! What is behind the bridge on PCIe: its devices, which of their memory may be written, and single TLPs to them.

use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::tlp::{CompletionStatus, Tlp};
use asm2464::{AnyFailure, Bdf};
use asm2464_host::pcie::{Bar, BarKind, Function, Pcie, PcieError, Scope, Survey, TlpEngine};

use super::path::DataPath;
use super::plan::{Effort, Point};
use super::report::{Outcome, Skip};
use super::row::{Halt, repeat};

/// Class of display controllers, the only devices whose memory has a known purpose.
const DISPLAY: u32 = 0x03;
/// Minimum size of the memory: the pattern's length.
const MEMORY_MIN: u64 = super::row::PATTERN_LEN as u64;

/// Bytes of the memory range that single TLPs read and write.
pub(super) const TLP_REACH: usize = 1024;

/// A range of memory behind the bridge that may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// PCIe address of its start.
    pub(super) address: u64,
    /// Length in bytes.
    pub(super) len: u64,
}

/// What is behind the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PcieDevices {
    /// Description in words.
    pub(super) words: String,
    /// The function whose configuration space is read; `None` if the link is down.
    pub(super) function: Option<Bdf>,
    /// The memory, or the reason why there is none.
    pub(super) memory: Result<Memory, Skip>,
}

/// Examines what is behind the bridge. `assigns` allows it to assign missing bus numbers and addresses.
///
/// The memory is the largest prefetchable BAR of a display controller, its frame buffer: reads and writes of it have no
/// side effects (PCI local bus specification 3.0, 6.2.5.1). Registers and other devices are left alone.
///
/// # Errors
/// If the bridge does not carry requests. A link that is down is not an error.
pub(super) fn look(
    engine: &mut dyn TlpEngine,
    assigns: bool,
    interrupt: Interrupt<'_>,
) -> Result<PcieDevices, AnyFailure> {
    let mut patience = interrupt;
    let mut pcie = Pcie::new(engine, &mut patience);
    let scope = if assigns { Scope::USUAL } else { Scope::READ_ONLY };
    let mut survey = match pcie.survey(scope) {
        Ok(survey) => survey,
        Err(error @ PcieError::LinkDown { .. }) => {
            let words = format!("nothing: {error}");
            return Ok(PcieDevices { words, function: None, memory: Err(Skip::LinkDown) });
        }
        Err(error) => return Err(error.into()),
    };
    interrupt.check()?;
    if assigns && memory(&survey).is_none() && has_memory(&survey) {
        pcie.assign(&mut survey)?;
    }
    let ends = || survey.functions.iter().filter(|function| function.buses().is_none() && function.parent.is_some());
    // The GPU, whose memory is written, before an SSD at another port of the same switch.
    let end = ends().find(|function| function.class >> 16 == DISPLAY).or_else(|| ends().next());
    let words = match end {
        Some(function) => format!("{:04x}:{:04x} at {}", function.vendor, function.device, function.at),
        None if assigns => "nothing".to_owned(),
        None => "nothing that has a bus number".to_owned(),
    };
    let memory = match memory(&survey) {
        Some(memory) => Ok(memory),
        None if has_memory(&survey) => Err(Skip::NoAddress),
        None if end.is_none() && !assigns => Err(Skip::NoBusNumbers),
        None => Err(Skip::NoMemory),
    };
    let function = Some(end.map_or(Bdf::ROOT, |function| function.at));
    Ok(PcieDevices { words, function, memory })
}

/// The largest memory that may be written and has an address.
fn memory(survey: &Survey) -> Option<Memory> {
    let mut largest: Option<Memory> = None;
    for (function, bar) in frame_buffers(survey) {
        // A read-only survey does not size BARs. Assume that one with an address is large enough.
        let len = bar.size.unwrap_or(MEMORY_MIN);
        if !function.decodes_memory() || !bar.is_assigned() || len < MEMORY_MIN {
            continue;
        }
        if largest.is_none_or(|largest| largest.len <= len) {
            largest = Some(Memory { address: bar.address, len });
        }
    }
    largest
}

/// Whether there is memory that could get an address.
fn has_memory(survey: &Survey) -> bool {
    frame_buffers(survey).any(|(_, bar)| bar.size.is_none_or(|size| size >= MEMORY_MIN))
}

/// The prefetchable memory of display controllers, whether it has an address or not.
fn frame_buffers(survey: &Survey) -> impl Iterator<Item = (&Function, &Bar)> {
    let displays = survey.functions.iter().filter(|function| function.class >> 16 == DISPLAY);
    let bars = displays.flat_map(|function| function.bars.iter().map(move |bar| (function, bar)));
    bars.filter(|(_, bar)| bar.kind != BarKind::Io && bar.prefetchable)
}

/// Times TLPs at one size: one request and its completion, or a batch of writes until the unit has taken all.
///
/// # Errors
/// If the wire failed or Ctrl-C was pressed. No answer, a refusal and a status other than success are outcomes.
pub(super) fn measure_tlps(
    engine: &mut dyn TlpEngine,
    point: Point,
    devices: &PcieDevices,
    effort: Effort,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, AnyFailure> {
    let mut number = 0;
    repeat(engine, effort, interrupt, |engine, tally, until| {
        while Instant::now() < until && !interrupt.is_requested() {
            let Some(tlps) = tlps(point, devices, number) else { return Ok(()) };
            number += 1;
            let begun = Instant::now();
            let completions = engine.tlps(&tlps).map_err(|error| Halt::of(error, effort.timeout))?;
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
    let at = |memory: Memory, index: u64| memory.address + (number * dwords + index) * 4 % TLP_REACH as u64;
    match point.path {
        DataPath::ConfigRead => Some(vec![Tlp::config_read(devices.function?, 0)]),
        DataPath::TlpRead => Some(vec![Tlp::memory_read(at(devices.memory.ok()?, 0))]),
        DataPath::TlpWrite => {
            let memory = devices.memory.ok()?;
            Some((0..dwords).map(|index| Tlp::memory_write(at(memory, index), index as u32)).collect())
        }
        _ => None,
    }
}

/// Reads memory dword by dword.
///
/// # Errors
/// [`Halt`].
pub(super) fn read_dwords(
    engine: &mut dyn TlpEngine,
    memory: Memory,
    buffer: &mut [u8],
    timeout: Duration,
) -> Result<(), Halt> {
    let (dwords, _) = buffer.as_chunks_mut::<4>();
    let addresses = (memory.address..).step_by(4).take(dwords.len());
    let tlps: Vec<Tlp> = addresses.map(Tlp::memory_read).collect();
    let completions = engine.tlps(&tlps).map_err(|error| Halt::of(error, timeout))?;
    for (dword, completion) in dwords.iter_mut().zip(completions.into_iter().flatten()) {
        let value = completion.value().ok_or_else(|| Outcome::Refused { reason: completion.status.to_string() })?;
        *dword = value.to_le_bytes();
    }
    Ok(())
}

/// Writes these bytes dword by dword.
///
/// # Errors
/// [`PcieError`].
pub(super) fn write_dwords(engine: &mut dyn TlpEngine, memory: Memory, bytes: &[u8]) -> Result<(), PcieError> {
    let (dwords, _) = bytes.as_chunks::<4>();
    let addresses = (memory.address..).step_by(4);
    let tlps: Vec<Tlp> =
        addresses.zip(dwords).map(|(address, dword)| Tlp::memory_write(address, u32::from_le_bytes(*dword))).collect();
    engine.tlps(&tlps).map(drop)
}
