//! Devices behind the bridge on PCIe, and which of their memory may be written.

use asm2464::Bdf;
use asm2464::interrupt::Interrupt;
use asm2464_host::pcie::{BarKind, Pcie, PcieError, Scope, Survey, TlpEngine};

use super::report::Skip;
use crate::failure::AnyFailure;

/// Class of display controllers, the only devices whose memory has a known purpose.
const DISPLAY: u32 = 0x03;
/// Minimum size of the memory: the pattern's length.
const MEMORY_MIN: u64 = super::pattern::PATTERN_LEN as u64;

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
        Err(PcieError::LinkDown { ltssm }) => {
            let words = format!("nothing: the PCIe link is down (XDATA 0xB450 reads {ltssm:#04x}, expected 0x78)");
            return Ok(PcieDevices { words, function: None, memory: Err(Skip::LinkDown) });
        }
        Err(error) => return Err(error.into()),
    };
    interrupt.check()?;
    if assigns && memory(&survey).is_none() && has_memory(&survey) {
        pcie.assign(&mut survey)?;
    }
    let end = survey.functions.iter().find(|function| function.buses().is_none() && function.parent.is_some());
    let words = end.map_or_else(
        || if assigns { "nothing" } else { "nothing that has a bus number" }.to_owned(),
        |function| format!("{:04x}:{:04x} at {}", function.vendor, function.device, function.at),
    );
    let memory = memory(&survey).ok_or(match has_memory(&survey) {
        true => Skip::NoAddress,
        false if end.is_none() && !assigns => Skip::NoBusNumbers,
        false => Skip::NoMemory,
    });
    let function = Some(end.map_or(Bdf::ROOT, |function| function.at));
    Ok(PcieDevices { words, function, memory })
}

/// The largest memory that may be written and has an address.
fn memory(survey: &Survey) -> Option<Memory> {
    let displays = survey.functions.iter().filter(|function| function.class >> 16 == DISPLAY);
    let bars = displays.filter(|function| function.decodes_memory()).flat_map(|function| &function.bars);
    bars.filter(|bar| bar.kind != BarKind::Io && bar.prefetchable && bar.is_assigned())
        // A read-only survey does not size BARs. Assume that one with an address is large enough.
        .map(|bar| Memory { address: bar.address, len: bar.size.unwrap_or(MEMORY_MIN) })
        .filter(|memory| memory.len >= MEMORY_MIN)
        .max_by_key(|memory| memory.len)
}

/// Whether there is memory that could get an address.
fn has_memory(survey: &Survey) -> bool {
    let displays = survey.functions.iter().filter(|function| function.class >> 16 == DISPLAY);
    displays
        .flat_map(|function| &function.bars)
        .any(|bar| bar.kind != BarKind::Io && bar.prefetchable && bar.size.is_none_or(|size| size >= MEMORY_MIN))
}
