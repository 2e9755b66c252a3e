//! Examines a unit for a diagnosis. Everything that it writes is gone after a power cycle.

use std::time::Instant;

use asm2464::Bdf;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, known_blocks};
use asm2464::flash::{JedecId, PROTECTION, RegisterError, RegisterFlash};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::sram::DMA_STATE;
use asm2464_host::bridge::open::Supply;
use asm2464_host::bridge::{
    AnyTransport, Behind, Bridge, CommandError, ControlError, OpenBridge, Port, Transport, TransportError, UnitInfo,
};
use asm2464_host::pcie::{EngineError, Link, Pcie, PcieError, Scope, Survey, TlpEngine, VendorTlp};
use serde::Serialize;

use super::host::HostState;
use super::questions::{Exchange, Problem, ask_model, ask_open, ask_vendor};
use crate::failure::AnyFailure;
use crate::flash::firmware_kind::RunningFirmware;
use crate::flash::observe::Observation;
use crate::patch::Library;
use crate::restart::switch_pcie_on;
use crate::unit::Live;

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
/// Assigns bus numbers only: without them, devices behind bridges stay invisible.
pub(crate) const WHO_ANSWERS: Scope = Scope { buses: true, ..Scope::READ_ONLY };

/// How to examine a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Leave out all that writes, even what a power cycle undoes: the check of open firmware's bulk pipes, a byte of
    /// XDATA, the registers of the flash controller, PCIe's power (F3), bus numbers of PCIe bridges.
    pub no_write: bool,
    /// Ask the questions of the report, both to the unit and to the chip model.
    pub compare: bool,
}

/// State of the bulk pipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PipeState {
    /// Data moves.
    Move,
    /// Nothing moves, although the unit answers control requests. Only a power cycle helps. Source: owners' reports.
    Hang,
    /// Nothing moves, and the unit answers no control request either, even after a port reset. Only a power cycle
    /// helps. Source: random life on the chip model, docs/reliability.md.
    Dead,
    /// The SRAM DMA waits for data of an earlier transfer: 0xC450.
    Busy(u8),
    /// The pipes were not tested.
    NotAsked,
}

/// Durations of requests of one kind, sent in sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Timing {
    /// The request, in words.
    pub what: String,
    /// Number of requests.
    pub count: usize,
    /// The median in microseconds.
    pub median_us: u64,
    /// The longest in microseconds.
    pub longest_us: u64,
}

/// The flash, by its own answers to commands 9F and 05.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FlashPart {
    /// Its JEDEC ID: maker, type and capacity, in hexadecimal.
    #[serde(serialize_with = "as_text")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub jedec_id: JedecId,
    /// Its status register.
    pub status: u8,
    /// The bits in it that protect blocks (BP0 to BP2); 0 if none is protected.
    pub protection: u8,
}

fn as_text<S: serde::Serializer>(id: &JedecId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Result of an examination. Fields that were not reached are empty.
#[derive(Debug)]
pub struct Examination {
    /// The unit's identity.
    pub unit: UnitInfo,
    /// The host's settings and locks that concern it.
    pub host: HostState,
    /// Its raw descriptors: device, configuration, and BOS if the system provides it.
    pub descriptors: Option<Vec<u8>>,
    /// Whether the unit could be opened and answers.
    pub opened: Result<(), Problem>,
    /// The firmware that it runs.
    pub runs: Option<Result<RunningFirmware, Problem>>,
    /// The part's revision: XDATA 0xC8FF.
    pub part_revision: Option<Result<u8, Problem>>,
    /// The flash behind it. Only open firmware gives access to it.
    pub flash_part: Option<Result<FlashPart, Problem>>,
    /// Whether the examination left out all that writes.
    pub is_read_only: bool,
    /// State of its bulk pipes.
    pub pipes: PipeState,
    /// What E0 and READ CAPACITY say about an SSD; `None` if this was not checked.
    pub behind: Option<Behind>,
    /// State of the PCIe link before the examination switched PCIe on; `None` if it did not.
    pub link_before: Option<Link>,
    /// State of the PCIe link.
    pub link: Option<Result<Link, Problem>>,
    /// Its supply; the inner `None` means that the build doesn't know the request.
    pub supply: Option<Result<Option<Supply>, Problem>>,
    /// The PCIe tree behind it.
    pub tree: Option<Result<Survey, Problem>>,
    /// Results of the short bench.
    pub timings: Vec<Timing>,
    /// Whether a written byte read back differently.
    pub is_corrupt: bool,
    /// The error of the short bench.
    pub bench_failure: Option<Problem>,
    /// The questions of the report with their answers.
    pub exchanges: Vec<Exchange>,
}

impl Examination {
    /// Whether what a power cycle undoes may be written: not while a runtime holds its lock on the unit.
    fn may_write(&self, options: DoctorOptions) -> bool {
        !options.no_write && self.host.locks.is_empty()
    }

    /// The part's revision, if it was read.
    pub fn part_revision(&self) -> Option<u8> {
        self.part_revision.as_ref()?.as_ref().ok().copied()
    }

    /// The flash's answers, if it was asked.
    pub fn flash_part(&self) -> Option<FlashPart> {
        self.flash_part.as_ref()?.as_ref().ok().copied()
    }
}

/// Examines the unit at a port. If the unit is in its boot loader, only opens it.
///
/// # Errors
/// Fails on Ctrl-C, and if [`Port::check`] of a record does. The unit's own errors are in the examination.
pub fn examine(
    port: &mut dyn Port,
    unit: UnitInfo,
    options: DoctorOptions,
    library: &Library,
    interrupt: Interrupt<'_>,
) -> Result<Examination, AnyFailure> {
    let mut seen = Examination {
        descriptors: port.descriptors(),
        opened: Ok(()),
        runs: None,
        part_revision: None,
        flash_part: None,
        pipes: PipeState::NotAsked,
        behind: None,
        link_before: None,
        link: None,
        supply: None,
        tree: None,
        timings: Vec::new(),
        is_corrupt: false,
        bench_failure: None,
        exchanges: Vec::new(),
        host: HostState::of(&unit.location),
        unit,
        is_read_only: false,
    };
    seen.is_read_only = !seen.may_write(options);
    interrupt.check()?;
    let state = seen.unit.state;
    if state == BridgeState::OpenFirmware {
        seen.runs = Some(Ok(RunningFirmware::Other(state)));
    }
    match Live::at(port, state) {
        Ok(Live::Vendor(bridge)) if state == BridgeState::Vendor => {
            vendor(&mut seen, bridge, port, options, library, interrupt)?;
        }
        Ok(Live::Vendor(_)) => {}
        Ok(Live::Open(bridge)) => open(&mut seen, bridge, port, options, interrupt)?,
        Err(error) => seen.opened = Err(error.into()),
    }
    interrupt.check()?;
    // If an answer is missing in a record, that says nothing about its unit, so it is an error.
    port.check()?;
    Ok(seen)
}

fn vendor(
    seen: &mut Examination,
    mut bridge: Bridge<AnyTransport>,
    port: &mut dyn Port,
    options: DoctorOptions,
    library: &Library,
    interrupt: Interrupt<'_>,
) -> Result<(), AnyFailure> {
    match answers(&mut bridge) {
        Ok(pipes) => seen.pipes = pipes,
        Err(error) => seen.opened = Err(Problem::of(&error)),
    }
    drop(bridge);
    if seen.pipes != PipeState::Move {
        return Ok(());
    }
    let observed = Observation::of(port, interrupt);
    interrupt.check()?;
    let observed = match observed {
        Ok(observed) => observed,
        Err(failure) => {
            seen.runs = Some(Err(failure.into()));
            return Ok(());
        }
    };
    seen.runs = Some(Ok(observed.running.runs(library)));
    seen.behind = Some(observed.running.behind.clone());
    let mut bridge = port.open()?;
    seen.part_revision = Some(bridge.xdata_byte(PART_REVISION).map_err(|error| Problem::of(&error)));
    if options.compare {
        seen.exchanges = ask_vendor(&mut bridge);
        compare(seen, &observed);
    }
    // The firmware uses the same engine for an SSD.
    let is_free = observed.running.behind == Behind::NoMedium;
    let may_write = is_free && !seen.is_read_only;
    if is_free {
        look_behind(seen, &mut VendorTlp::new(&mut bridge), may_write, interrupt);
    }
    seen.bench_failure =
        bench(seen, &mut VendorTlp::new(&mut bridge), may_write).err().map(|error| Problem::of(&error));
    Ok(())
}

/// Checks whether the unit answers commands. If it does not, a control request shows whether only the bulk pipes hang
/// or the whole unit is dead.
pub(crate) fn answers<T: Transport>(bridge: &mut Bridge<T>) -> Result<PipeState, CommandError> {
    let failed = |asked: &Result<_, CommandError>, how: fn(&TransportError) -> bool| match asked {
        Err(CommandError::Transport(error)) => how(error),
        _ => false,
    };
    let mut asked = bridge.inquiry();
    if failed(&asked, TransportError::is_timeout) {
        asked = bridge.inquiry();
    }
    let is_silent = failed(&asked, TransportError::is_timeout);
    if is_silent && bridge.transport_mut().answers_control() {
        return Ok(PipeState::Hang);
    }
    // Recovery ends with a port reset. Some systems remove a unit from the bus if it is still silent then.
    if is_silent || failed(&asked, TransportError::is_gone) {
        return Ok(PipeState::Dead);
    }
    asked.map(|_| PipeState::Move)
}

fn open(
    seen: &mut Examination,
    mut bridge: OpenBridge,
    port: &mut dyn Port,
    options: DoctorOptions,
    interrupt: Interrupt<'_>,
) -> Result<(), AnyFailure> {
    let mut status = [0];
    let mut asked = bridge.xdata_read(DMA_STATE, &mut status);
    if matches!(asked, Err(ControlError::Timeout { .. })) {
        asked = bridge.reset_port().and_then(|()| bridge.xdata_read(DMA_STATE, &mut status));
        if matches!(asked, Err(ControlError::Timeout { .. } | ControlError::Disconnected { .. })) {
            seen.pipes = PipeState::Dead;
            return Ok(());
        }
    }
    match asked {
        Ok(()) if status[0] != 0 => seen.pipes = PipeState::Busy(status[0]),
        Ok(()) => {}
        Err(error) => {
            seen.opened = Err(Problem::of(&error));
            return Ok(());
        }
    }
    let may_write = !seen.is_read_only;
    if may_write && seen.pipes == PipeState::NotAsked {
        seen.pipes = match bridge.check_bulk() {
            Ok(()) => PipeState::Move,
            // A record holds no memory, so other bytes come back than were sent.
            Err(ControlError::Malformed { .. }) if seen.unit.location.is_replay() => PipeState::Move,
            Err(ControlError::BulkTimeout { answers: true, .. }) => PipeState::Hang,
            Err(ControlError::SramBusy { status, .. }) => PipeState::Busy(status),
            Err(error) => {
                seen.bench_failure = Some(Problem::of(&error));
                PipeState::NotAsked
            }
        };
    }
    if seen.pipes == PipeState::Hang {
        return Ok(());
    }
    if options.compare {
        seen.exchanges = ask_open(&mut bridge);
    }
    let mut revision = [0];
    let asked = bridge.xdata_read(PART_REVISION, &mut revision).map_err(|error| Problem::of(&error));
    seen.part_revision = Some(asked.map(|()| revision[0]));
    seen.supply = Some(bridge.supply().map_err(|error| Problem::of(&error)));
    interrupt.check()?;
    if may_write && let Ok((ltssm, false)) = bridge.link_state() {
        match switch_pcie_on(&mut bridge, interrupt) {
            Ok(true) => seen.link_before = Some(Link { ltssm, is_up: false }),
            // A build without F3 has trained the link at boot.
            Ok(false) => {}
            Err(error) => seen.bench_failure = Some(Problem::of(&error)),
        }
    }
    interrupt.check()?;
    look_behind(seen, &mut bridge, may_write, interrupt);
    if seen.bench_failure.is_none() {
        seen.bench_failure = bench(seen, &mut bridge, may_write).err().map(|error| Problem::of(&error));
    }
    // Last, because it sets up the flash controller.
    if may_write {
        seen.flash_part = Some(flash_part(&mut bridge).map_err(|error| Problem::of(&error)));
    }
    drop(bridge);
    if options.compare {
        interrupt.check()?;
        // Reading the image through registers is slow, so it is read only if needed.
        match Observation::of(port, interrupt) {
            Ok(observed) => compare(seen, &observed),
            Err(failure) => seen.runs = Some(Err(failure.into())),
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
fn compare(seen: &mut Examination, observed: &Observation) {
    let Some(image) = observed.running.image() else { return };
    let own = |index: BlockIndex| {
        let at = usize::from(index.number());
        observed.blocks[at].and_then(|bytes| ConfigBlock::parse(index, &bytes).ok()).unwrap_or(known_blocks()[at])
    };
    ask_model(&mut seen.exchanges, &image, &BlockIndex::ALL.map(own), seen.unit.state);
}

/// Surveys the PCIe tree. If it may write, assigns missing bus numbers to bridges, because devices behind them would stay
/// invisible. The numbers last as long as PCIe has power.
fn look_behind(seen: &mut Examination, engine: &mut dyn TlpEngine, may_write: bool, interrupt: Interrupt<'_>) {
    let mut patience = interrupt;
    let mut pcie = Pcie::new(engine, &mut patience);
    let link = pcie.link();
    let is_up = link.as_ref().is_ok_and(|link| link.is_up);
    let problem = |error: PcieError| Problem::of(&error);
    seen.link = Some(link.map_err(problem));
    if is_up {
        let tree = pcie.survey(if may_write { WHO_ANSWERS } else { Scope::READ_ONLY });
        seen.tree = Some(tree.map_err(problem));
    }
    if seen.tree.as_ref().is_some_and(Result::is_ok) {
        let timing = timed("reads of the root port", || pcie.config_read(Bdf::ROOT, 0).map(drop));
        seen.timings.extend(timing.ok());
    }
}

fn bench(seen: &mut Examination, unit: &mut impl TlpEngine, write: bool) -> Result<(), EngineError> {
    let mut buffer = [0; READ_LEN];
    seen.timings.push(timed("E4 of 64 bytes", || unit.xdata_read(READ_FROM, &mut buffer))?);
    if !write {
        return Ok(());
    }
    let mut before = [0];
    unit.xdata_read(SCRATCH_AT, &mut before)?;
    let (mut value, mut is_kept) = (before[0], true);
    seen.timings.push(timed("E5 of one byte, read back", || {
        value = value.wrapping_add(1);
        unit.xdata_write(&[(SCRATCH_AT, value)])?;
        let mut found = [0];
        unit.xdata_read(SCRATCH_AT, &mut found)?;
        is_kept &= found[0] == value;
        Ok::<_, EngineError>(())
    })?);
    seen.is_corrupt = !is_kept;
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
