//! Examines a unit for a diagnosis. Everything that it writes is gone after a power cycle. For a report it also puts the
//! same questions to the unit and to the chip model, which change nothing.

use std::time::Instant;

use asm2464::digest::to_hex;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, Image, known_blocks};
use asm2464::flash::{PROTECTION, RegisterError, RegisterFlash};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::{Command, DataLength, INQUIRY_LEN, XdataAddress};
use asm2464::sram::DMA_STATE;
use asm2464::tlp::LTSSM;
use asm2464::{AnyFailure, Bdf};
use asm2464_chip::chip::{Chip, Data, Driver, MemoryFunction, Speed};
use asm2464_chip::mcu::CodeSpace;
use asm2464_host::bridge::open::OpenCommand;
use asm2464_host::bridge::{Behind, Bridge, CommandError, ControlError, DataPhase, OpenBridge, Port, UnitInfo};
use asm2464_host::pcie::{Link, Pcie, PcieError, TlpEngine, VendorTlp};

use crate::flash::access::{Access, UnitBlocks};
use crate::flash::observe::{self, ObservedFirmware};
use crate::image::Images;
use crate::unit::facts::{Asked, Exchange, Facts, FlashChip, HostState, PipeState, Problem, RequestTimes};
use crate::unit::{Live, ask};

/// Memory that is no register in the vendor's firmware and the open one, to write to and read back.
const SCRATCH_AT: XdataAddress = XdataAddress::main(0x5FF0);
/// Memory to read that is no register: E4 does not change it.
const READ_FROM: XdataAddress = XdataAddress::main(0x0700);
/// Length of one E4, available at every speed.
const READ_LEN: usize = 64;
/// Length of the version of vendor firmware.
const VERSION_LEN: u16 = 6;
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
        (Live::Vendor(bridge), _) => vendor(&mut facts, bridge, options, images, interrupt)?,
        (Live::Open(bridge), _) => open(&mut facts, bridge, options, images, interrupt)?,
    }
    interrupt.check()?;
    Ok(facts)
}

fn vendor(
    facts: &mut Facts,
    bridge: Bridge,
    options: DoctorOptions,
    images: &Images,
    interrupt: Interrupt<'_>,
) -> Result<(), AnyFailure> {
    let mut access = Access::Commands(bridge);
    let Some((blocks, running)) = contents(facts, &mut access, images, interrupt)? else { return Ok(()) };
    let Access::Commands(mut bridge) = access else { return Ok(()) };
    facts.storage.clone_from(&running.storage);
    facts.part_revision = bridge.xdata_byte(PART_REVISION).into();
    if options.compare {
        facts.exchanges = ask_vendor(&mut bridge);
        compare(facts, &blocks, &running);
    }
    // The firmware uses the same engine for an SSD.
    let is_free = running.behind() == Behind::NoMedium;
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
    // A link that trains comes up without F3.
    let mut patience = interrupt;
    if may_write && let Ok(Link { ltssm, is_up: false }) = Pcie::new(&mut bridge, &mut patience).trained_link() {
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
    // Reading the image through registers is slow, so it is read only if needed.
    if options.compare {
        interrupt.check()?;
        match Access::of(Live::Open(bridge)) {
            Ok(mut access) => {
                if let Some((blocks, running)) = contents(facts, &mut access, images, interrupt)? {
                    compare(facts, &blocks, &running);
                }
            }
            Err(failure) => facts.contents = Asked::Failed(failure.into()),
        }
    }
    Ok(())
}

/// Reads what runs on the unit and what is in its flash. Returns both configuration blocks, too; `None` if that failed.
///
/// # Errors
/// Fails on Ctrl-C.
fn contents(
    facts: &mut Facts,
    access: &mut Access,
    images: &Images,
    interrupt: Interrupt<'_>,
) -> Result<Option<(UnitBlocks, ObservedFirmware)>, AnyFailure> {
    let read = observe::read(access, facts.unit.state, interrupt);
    interrupt.check()?;
    match read {
        Ok((blocks, running)) => {
            facts.contents = Asked::Is(running.contents(images));
            Ok(Some((blocks, running)))
        }
        Err(failure) => {
            facts.contents = Asked::Failed(failure.into());
            Ok(None)
        }
    }
}

/// Reads the flash's ID and status through its controller's registers. Writes nothing to the flash.
fn flash_part(bridge: &mut OpenBridge) -> Result<FlashChip, RegisterError<ControlError>> {
    let mut flash = RegisterFlash::new(bridge)?;
    let status = flash.status()?;
    Ok(FlashChip { jedec_id: flash.id(), status, protection: status & PROTECTION })
}

/// Adds the answers of the chip model, which runs the unit's image with the unit's own configuration, if it has one.
fn compare(facts: &mut Facts, blocks: &UnitBlocks, running: &ObservedFirmware) {
    let Some(image) = running.image() else { return };
    let own = |index: BlockIndex| {
        let own = index.of(blocks).and_then(|bytes| ConfigBlock::parse(index, &bytes).ok());
        own.unwrap_or(*index.of(&known_blocks()))
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

fn bench(facts: &mut Facts, unit: &mut impl TlpEngine, write: bool) -> Result<(), PcieError> {
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
        Ok::<_, PcieError>(())
    })?);
    facts.is_corrupt = !is_kept;
    unit.xdata_write(&[(SCRATCH_AT, before[0])])
}

fn timed<X>(what: &str, mut ask: impl FnMut() -> Result<(), X>) -> Result<RequestTimes, X> {
    let mut micros = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        let begun = Instant::now();
        ask()?;
        micros.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    micros.sort_unstable();
    let longest_us = micros.last().copied().unwrap_or(0);
    Ok(RequestTimes { what: what.to_owned(), count: REPEATS, median_us: micros[REPEATS / 2], longest_us })
}

/// Questions with short answers, for the unit and for the chip model that runs the same firmware: the identity, and
/// registers that reading does not change.
pub const QUESTIONS: [Command; 10] = [
    Command::Inquiry { len: INQUIRY_LEN },
    Command::XdataRead { from: XdataAddress::VERSION, len: VERSION_LEN },
    // The speed of USB.
    byte_at(XdataAddress::main(0x9100)),
    byte_at(LTSSM),
    byte_at(DMA_STATE),
    // The state of the PHY.
    byte_at(XdataAddress::main(0xE712)),
    byte_at(PART_REVISION),
    // Registers of no known use whose power-on value changes what the vendor's firmware does: docs/lab/chip.md.
    byte_at(XdataAddress::main(0xE302)),
    byte_at(XdataAddress::main(0xE402)),
    byte_at(XdataAddress::main(0xE795)),
];

const fn byte_at(from: XdataAddress) -> Command {
    Command::XdataRead { from, len: 1 }
}

/// A question as a control request to open firmware; `None` if it is only for the vendor's, as that for its version is.
const fn open_request(question: Command) -> Option<OpenCommand> {
    match question {
        Command::XdataRead { from, len: 1 } => Some(OpenCommand::XdataRead { from, len: 1 }),
        _ => None,
    }
}

fn question_in_words(question: Command) -> String {
    match question {
        Command::XdataRead { from, len } => format!("E4 of {:#06x}, {len} bytes", from.addr),
        other => other.name().to_owned(),
    }
}

/// The length of the answer to a question, in bytes.
fn answer_len(question: Command) -> usize {
    DataLength::of(&question.cdb()).map_or(0, DataLength::bytes) as usize
}

/// An answer's bytes in hexadecimal, or why there are none.
fn words(answer: Result<Vec<u8>, String>) -> String {
    answer.map_or_else(|why| format!("no answer: {why}"), |bytes| to_hex(&bytes, " "))
}

fn exchange(question: Command, ask: impl FnOnce() -> Result<Vec<u8>, Problem>) -> Exchange {
    let begun = Instant::now();
    let unit = words(ask().map_err(|problem| problem.code));
    let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    Exchange { question: question_in_words(question), unit, took_us, model: None }
}

/// Asks a unit that runs the vendor's firmware. Stops at the first question at which the wire fails.
fn ask_vendor(bridge: &mut Bridge) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    let timeout = bridge.timeout();
    for question in QUESTIONS {
        let mut is_over = false;
        exchanges.push(exchange(question, || {
            let mut data = vec![0; answer_len(question)];
            let completion = bridge.execute(question, DataPhase::In(&mut data), timeout).map_err(|error| {
                is_over = true;
                Problem::from(CommandError::from(error))
            })?;
            data.truncate(completion.transferred);
            Ok(data)
        }));
        if is_over {
            break;
        }
    }
    exchanges
}

/// Asks a unit that runs open firmware.
fn ask_open(bridge: &mut OpenBridge) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for question in QUESTIONS {
        let Some(request) = open_request(question) else { continue };
        exchanges.push(exchange(question, || Ok(bridge.request(request)?)));
    }
    exchanges
}

/// Adds the answers of the same firmware on the chip model. The model's bridge has a device behind it, as the unit's
/// should.
fn ask_model(exchanges: &mut [Exchange], image: &Image, blocks: &[ConfigBlock; 2], state: BridgeState) {
    let chip = Chip::power_on(CodeSpace::new(image), asm2464_chip::chip::boot::flash_with(blocks, image), Speed::Super);
    let mut driver = Driver::new(chip);
    let gpu = MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 1 << 20);
    driver.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu);
    let is_up = driver.enumerate().is_ok();
    for question in QUESTIONS {
        let text = question_in_words(question);
        let Some(exchange) = exchanges.iter_mut().find(|exchange| exchange.question == text) else { continue };
        let model = if is_up { model_answer(&mut driver, question, state) } else { Err("it does not boot".to_owned()) };
        exchange.model = Some(words(model));
    }
}

fn model_answer(driver: &mut Driver, question: Command, state: BridgeState) -> Result<Vec<u8>, String> {
    let unanswered = |why| format!("{why:?}");
    if state == BridgeState::OpenFirmware {
        let Some(request) = open_request(question) else { return Err("it has no such request".to_owned()) };
        return driver.control(request.setup(), &[]).map_err(unanswered);
    }
    driver
        .bulk_only(question.cdb().as_slice(), Data::In(answer_len(question)))
        .map(|reply| reply.data)
        .map_err(unanswered)
}
