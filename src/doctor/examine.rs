//! Examines a unit for a diagnosis. Everything that it writes is gone after a power cycle.

use std::time::Instant;

use asm2464::Bdf;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, known_blocks};
use asm2464::flash::{PROTECTION, RegisterError, RegisterFlash};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464_host::bridge::{Behind, ControlError, OpenBridge, Port, UnitInfo};
use asm2464_host::pcie::{EngineError, Link, Pcie, TlpEngine, VendorTlp};

use super::questions::{ask_model, ask_open, ask_vendor};
use crate::failure::AnyFailure;
use crate::flash::observe::Observation;
use crate::image::Images;
use crate::unit::facts::{Asked, Facts, FlashPart, PipeState, Problem, Timing};
use crate::unit::host::HostState;
use crate::unit::{Live, ask};

/// Memory that is no register in the vendor's firmware and the open one, to write to and read back.
const SCRATCH_AT: XdataAddress = XdataAddress::main(0x5FF0);
/// Memory to read that is no register: E4 does not change it.
const READ_FROM: XdataAddress = XdataAddress::main(0x0700);
/// Length of one E4, available at every speed.
const READ_LEN: usize = 64;
/// Number of times that the short bench sends each request.
const REPEATS: usize = 50;
/// The part's revision. Source: open firmware's pull request 63. Recordings of vendor firmware read 04.
const PART_REVISION: XdataAddress = XdataAddress::main(0xC8FF);
/// How to examine a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Leave out all that writes, even what a power cycle undoes: the check of open firmware's bulk pipes, a byte of
    /// XDATA, the registers of the flash controller, PCIe's power (F3), bus numbers of PCIe bridges.
    pub no_write: bool,
    /// Ask the questions of the report, both to the unit and to the chip model.
    pub compare: bool,
}

/// Examines the unit at a port. If the unit is in its boot loader, only opens it.
///
/// # Errors
/// Fails on Ctrl-C. The unit's own errors are in the examination.
pub fn examine(
    port: &mut dyn Port,
    unit: UnitInfo,
    options: DoctorOptions,
    images: &Images,
    interrupt: Interrupt<'_>,
) -> Result<Facts, AnyFailure> {
    let host = HostState::of(&unit.location);
    let mut facts = Facts::unasked(unit, host);
    facts.is_read_only = options.no_write || !facts.host.locks.is_empty();
    facts.descriptors = port.descriptors();
    interrupt.check()?;
    let state = facts.unit.state;
    let mut live = match Live::at(port, state) {
        Ok(live) => live,
        Err(error) => {
            facts.opened = Asked::Failed(error.into());
            return Ok(facts);
        }
    };
    if state == BridgeState::BootLoader {
        return Ok(facts);
    }
    facts.pipes = ask::pipes(&mut live, !facts.is_read_only);
    interrupt.check()?;
    match (live, &facts.pipes) {
        (_, Asked::Failed(_) | Asked::Is(PipeState::Hang | PipeState::Dead)) => {}
        (Live::Vendor(bridge), _) => {
            drop(bridge);
            vendor(&mut facts, port, options, images, interrupt)?;
        }
        (Live::Open(bridge), _) => open(&mut facts, bridge, port, options, images, interrupt)?,
    }
    interrupt.check()?;
    Ok(facts)
}

fn vendor(
    facts: &mut Facts,
    port: &mut dyn Port,
    options: DoctorOptions,
    images: &Images,
    interrupt: Interrupt<'_>,
) -> Result<(), AnyFailure> {
    let observed = Observation::of(port, interrupt);
    interrupt.check()?;
    let observed = match observed {
        Ok(observed) => observed,
        Err(failure) => {
            facts.contents = Asked::Failed(failure.into());
            return Ok(());
        }
    };
    facts.contents = Asked::Is(observed.running.contents(images));
    facts.storage.clone_from(&observed.running.storage);
    let mut bridge = port.open()?;
    facts.part_revision = bridge.xdata_byte(PART_REVISION).into();
    if options.compare {
        facts.exchanges = ask_vendor(&mut bridge);
        compare(facts, &observed);
    }
    // The firmware uses the same engine for an SSD.
    let is_free = observed.running.behind() == Behind::NoMedium;
    let may_write = is_free && !facts.is_read_only;
    if is_free {
        look_behind(facts, &mut VendorTlp::new(&mut bridge), may_write, interrupt);
    }
    facts.bench_failure = bench(facts, &mut VendorTlp::new(&mut bridge), may_write).err().map(Problem::from);
    Ok(())
}

fn open(
    facts: &mut Facts,
    mut bridge: OpenBridge,
    port: &mut dyn Port,
    options: DoctorOptions,
    images: &Images,
    interrupt: Interrupt<'_>,
) -> Result<(), AnyFailure> {
    if options.compare {
        facts.exchanges = ask_open(&mut bridge);
    }
    let mut revision = [0];
    facts.part_revision = bridge.xdata_read(PART_REVISION, &mut revision).map(|()| revision[0]).into();
    facts.supply = bridge.supply().into();
    interrupt.check()?;
    let may_write = !facts.is_read_only;
    if may_write && let Ok((ltssm, false)) = bridge.link_state() {
        match ask::switch_pcie_on(&mut bridge, interrupt) {
            Ok(true) => facts.link_before = Some(Link { ltssm, is_up: false }),
            // A build without F3 has trained the link at boot.
            Ok(false) => {}
            Err(error) => facts.bench_failure = Some(error.into()),
        }
    }
    interrupt.check()?;
    look_behind(facts, &mut bridge, may_write, interrupt);
    if facts.bench_failure.is_none() {
        facts.bench_failure = bench(facts, &mut bridge, may_write).err().map(Problem::from);
    }
    // Last, because it sets up the flash controller.
    if may_write {
        facts.flash_part = flash_part(&mut bridge).into();
    }
    drop(bridge);
    if options.compare {
        interrupt.check()?;
        // Reading the image through registers is slow, so it is read only if needed.
        match Observation::of(port, interrupt) {
            Ok(observed) => {
                facts.contents = Asked::Is(observed.running.contents(images));
                compare(facts, &observed);
            }
            Err(failure) => facts.contents = Asked::Failed(failure.into()),
        }
    }
    Ok(())
}

/// Reads the flash's ID and status through its controller's registers. Writes nothing to the flash.
fn flash_part(bridge: &mut OpenBridge) -> Result<FlashPart, RegisterError<ControlError>> {
    let mut flash = RegisterFlash::new(bridge)?;
    let status = flash.status()?;
    Ok(FlashPart { jedec_id: flash.id(), status, protection: status & PROTECTION })
}

/// Adds the answers of the chip model, which runs the unit's image with the unit's own configuration, if it has one.
fn compare(facts: &mut Facts, observed: &Observation) {
    let Some(image) = observed.running.image() else { return };
    let own = |index: BlockIndex| {
        let at = usize::from(index.number());
        observed.blocks[at].and_then(|bytes| ConfigBlock::parse(index, &bytes).ok()).unwrap_or(known_blocks()[at])
    };
    ask_model(&mut facts.exchanges, &image, &BlockIndex::ALL.map(own), facts.unit.state);
}

/// Looks at PCIe, and times reads of the root port.
fn look_behind(facts: &mut Facts, engine: &mut dyn TlpEngine, may_write: bool, interrupt: Interrupt<'_>) {
    (facts.link, facts.tree) = ask::pcie(engine, may_write, interrupt);
    if facts.tree.answer().is_none() {
        return;
    }
    let mut patience = interrupt;
    let mut pcie = Pcie::new(engine, &mut patience);
    let timing = timed("reads of the root port", || pcie.config_read(Bdf::ROOT, 0).map(drop));
    facts.timings.extend(timing.ok());
}

fn bench(facts: &mut Facts, unit: &mut impl TlpEngine, write: bool) -> Result<(), EngineError> {
    let mut buffer = [0; READ_LEN];
    facts.timings.push(timed("E4 of 64 bytes", || unit.xdata_read(READ_FROM, &mut buffer))?);
    if !write {
        return Ok(());
    }
    let mut before = [0];
    unit.xdata_read(SCRATCH_AT, &mut before)?;
    let (mut value, mut is_kept) = (before[0], true);
    facts.timings.push(timed("E5 of one byte, read back", || {
        value = value.wrapping_add(1);
        unit.xdata_write(&[(SCRATCH_AT, value)])?;
        let mut found = [0];
        unit.xdata_read(SCRATCH_AT, &mut found)?;
        is_kept &= found[0] == value;
        Ok::<_, EngineError>(())
    })?);
    facts.is_corrupt = !is_kept;
    unit.xdata_write(&[(SCRATCH_AT, before[0])])
}

fn timed<X>(what: &str, mut ask: impl FnMut() -> Result<(), X>) -> Result<Timing, X> {
    let mut micros = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        let begun = Instant::now();
        ask()?;
        micros.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    micros.sort_unstable();
    let longest_us = micros.last().copied().unwrap_or(0);
    Ok(Timing { what: what.to_owned(), count: REPEATS, median_us: micros[REPEATS / 2], longest_us })
}
