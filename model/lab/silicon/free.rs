//! Free: the firmware boots on the model, the host sends the requests of the recording, and the two sequences of
//! accesses are aligned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use asm2464::firmware::Image;
use asm2464::scsi::{XdataAddress, XdataPage};
use asm2464_chip::chip::{Chip, Driver, RunEnd, Speed, Watch};
use asm2464_chip::mcu::{AccessKind, CodeSpace, Observer, Step};
use asm2464_chip::spi_flash::SpiFlash;
use i8051::Register;

use super::host::Host;
use super::lockstep;
use super::recording::{Access, Event, Recording, Request, is_emulated};
use super::table::Found;

/// Instructions for the boot and each request. The vendor's images wait for a USB-C partner for a second.
const BUDGET: u64 = 200_000_000;
/// Maximum number of cells in the table that aligns two sequences: 800 MB.
const MOST_CELLS: usize = 400_000_000;
/// Maximum number of accesses in a round of a loop. All rounds of a loop count as one.
const LOOP: usize = 400;
const MOVX_READ: u8 = 0xE0;
const MOVX_WRITE: u8 = 0xF0;
const RETI: u8 = 0x32;
/// Maximum number of instructions from a request's end to the end of its interrupt.
const INTERRUPT: u64 = 100_000;
/// Instructions within which firmware that takes no interrupts ends a request and completes a round of its loop.
const ROUND: u64 = 5_000;

/// The accesses and interrupts of the model's CPU, in the form of a recording.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// The access that was just made. A read's value is in the accumulator before the next instruction.
    last: Option<Access>,
    /// The last access was to the other page, which the rig does not log.
    is_elsewhere: bool,
    /// Number of the interrupt that the CPU is in, 0 for none, and how many there were.
    interrupt: usize,
    interrupts: usize,
}

impl Log {
    fn settle(&mut self, accumulator: u8) {
        let is_elsewhere = std::mem::take(&mut self.is_elsewhere);
        if let Some(mut access) = self.last.take().filter(|access| !is_elsewhere && !is_emulated(access.addr)) {
            if access.is_read() {
                access.value = accumulator;
            }
            self.events.push(Event::Access(access));
        }
    }
}

/// Registers whose writes the rig did not pass on to the chip: see [`answer_as_the_rig`].
const TIMER5_CONTROL: u16 = 0xCC81;
const FLASH_START: u16 = 0xC8A9;

#[derive(Clone, Default)]
struct Logger {
    log: Arc<Mutex<Log>>,
    /// The firmware has written a register that the rig answered itself.
    is_rigs: Arc<AtomicBool>,
}

impl Observer for Logger {
    fn before(&mut self, step: &Step<'_>) {
        let mut log = self.log.lock().unwrap();
        let accumulator = step.cpu.register(Register::A) as u8;
        log.settle(accumulator);
        let pc = step.at.addr();
        if let 0x0003 | 0x0013 = pc {
            log.interrupts += 1;
            log.interrupt = log.interrupts;
            log.events.push(Event::Interrupt(u8::from(pc == 0x0013)));
        }
        let kind = match step.opcode {
            MOVX_READ => AccessKind::Read,
            MOVX_WRITE => AccessKind::Write,
            RETI => {
                log.interrupt = 0;
                return log.events.push(Event::Return);
            }
            _ => return,
        };
        let addr = step.cpu.register(Register::DPTR);
        log.last = Some(Access { pc, kind, addr, value: accumulator, line: 0, interrupt: log.interrupt });
        if kind == AccessKind::Write && matches!(addr, TIMER5_CONTROL | FLASH_START) {
            self.is_rigs.store(true, Ordering::Relaxed);
        }
    }

    fn wants_to_stop(&self) -> bool {
        self.is_rigs.load(Ordering::Relaxed)
    }
}

impl Watch for Logger {
    fn register(&mut self, _kind: AccessKind, at: XdataAddress, _value: u8, _pc: u32) {
        self.log.lock().unwrap().is_elsewhere = at.page == XdataPage::Other;
    }
}

/// Sets on the model what the rig answered itself: TIMER5 never expires, and the flash's buffer is all ones, as if the
/// flash were always busy.
fn answer_as_the_rig(chip: &mut Chip) {
    chip.poke(XdataAddress::main(TIMER5_CONTROL), &[0x04]);
    // Only what differs: firmware that waits for the flash or restarts TIMER5 comes here in each round of its loop.
    for addr in 0x7000..0x8000_u16 {
        if chip.memory().main()[usize::from(addr)] != 0xFF {
            chip.poke(XdataAddress::main(addr), &[0xFF]);
        }
    }
}

/// Runs the chip as [`Chip::run`] does, and answers what the rig answered itself.
fn run(chip: &mut Chip, budget: u64, logger: &mut Logger) -> RunEnd {
    let ends = chip.instructions().saturating_add(budget);
    loop {
        let left = ends.saturating_sub(chip.instructions());
        let outcome = chip.run_observed(left, logger);
        if !logger.is_rigs.swap(false, Ordering::Relaxed) || left == 0 {
            return outcome;
        }
        answer_as_the_rig(chip);
        if outcome != RunEnd::Budget {
            return outcome;
        }
    }
}

/// A unit on the model, its host, and the log of its CPU.
struct Unit {
    driver: Driver,
    host: Host,
    logger: Logger,
}

impl Unit {
    /// Powers on a unit with an erased flash. The rig's flash held no configuration either: its buffer was all ones.
    fn power_on(image: &Image, speed: Speed) -> Self {
        let logger = Logger::default();
        let mut chip = Chip::power_on(CodeSpace::new(image), SpiFlash::erased(), speed);
        chip.set_watch(Some(Box::new(logger.clone())));
        let mut driver = Driver::new(chip);
        driver.set_budget(BUDGET);
        let mut observer = logger.clone();
        driver.set_runner(move |chip, budget| run(chip, budget, &mut observer));
        let mut host = Host::default();
        host.leaves_statuses = true;
        Self { driver, host, logger }
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.logger.log.lock().unwrap().events)
    }

    /// Sends requests that the firmware saw together, and lets it work until it has taken as many interrupts as on
    /// silicon before the next requests. Takes the statuses of earlier UAS commands only now, because on silicon the
    /// next command had come before. Sends `early`, the next requests, as soon as these have their answers.
    fn requests(&mut self, requests: &[Request], early: &[Request], interrupts: usize) {
        let before = self.interrupts();
        for request in requests {
            if let Request::Setup(..) = request {
                self.answer();
            }
            self.host.acts(&mut self.driver.chip, request);
        }
        self.take_statuses();
        self.answer();
        self.end_interrupts(before + interrupts, early);
    }

    /// Lets the firmware answer control requests and CBWs. The comparison of the accesses judges the answers.
    fn answer(&mut self) {
        let Self { driver, host, .. } = self;
        let is_answered = driver.until(|chip| {
            host.exchanges(chip);
            (host.requests == 0).then_some(())
        });
        if is_answered.is_err() {
            host.gives_up();
        }
    }

    fn take_statuses(&mut self) {
        self.host.leaves_statuses = false;
        self.host.exchanges(&mut self.driver.chip);
        self.host.leaves_statuses = true;
    }

    fn interrupts(&self) -> usize {
        self.logger.log.lock().unwrap().interrupts
    }

    /// Runs until the firmware has taken `interrupts` interrupts since power-on and left the last. For the host, a
    /// request ends before that, and a status causes one more interrupt. Sends `early` in between.
    fn end_interrupts(&mut self, interrupts: usize, early: &[Request]) {
        let mut observer = self.logger.clone();
        let mut early = early.iter();
        for _ in 0..INTERRUPT {
            if self.host.is_answered() {
                early.by_ref().for_each(|request| self.host.acts(&mut self.driver.chip, request));
            }
            let log = self.logger.log.lock().unwrap();
            let is_outside = log.interrupt == 0;
            if is_outside && log.interrupts >= interrupts {
                break;
            }
            drop(log);
            if is_outside {
                self.take_statuses();
            }
            run(&mut self.driver.chip, 1, &mut observer);
            self.host.exchanges(&mut self.driver.chip);
        }
        early.for_each(|request| self.host.acts(&mut self.driver.chip, request));
        if self.interrupts() == 0 {
            let ends = self.driver.chip.instructions() + ROUND;
            while let left @ 1.. = ends.saturating_sub(self.driver.chip.instructions())
                && run(&mut self.driver.chip, left, &mut observer) == RunEnd::Attention
            {
                self.host.exchanges(&mut self.driver.chip);
            }
        }
    }

    /// Takes the statuses that are left, and lets the firmware finish its work.
    fn settle(&mut self) {
        self.take_statuses();
        self.driver.settle();
    }
}

/// The accesses outside interrupts, and those in interrupts, with one round of each loop.
struct Streams([Vec<Access>; 2]);

impl Streams {
    /// Adds the accesses made in loops to `polls`. A recording that shows no interrupts is one stream.
    fn of(events: &[Event], has_interrupts: bool, polls: &mut BTreeSet<(u16, bool, u16)>) -> Self {
        let mut streams = [Vec::new(), Vec::new()];
        let mut in_interrupt = false;
        for event in events {
            match event {
                Event::Interrupt(_) => in_interrupt = has_interrupts,
                Event::Return => in_interrupt = false,
                Event::Access(access) => streams[usize::from(in_interrupt)].push(*access),
            }
        }
        Self(streams.map(|accesses| without_loops(&accesses, polls)))
    }
}

/// Keeps the last round of each loop.
fn without_loops(accesses: &[Access], polls: &mut BTreeSet<(u16, bool, u16)>) -> Vec<Access> {
    let mut kept: Vec<Access> = Vec::new();
    for access in accesses {
        kept.push(*access);
        let len = kept.len();
        let is_again = |round: &usize| {
            // Most rounds differ in their last access.
            if kept[len - 1 - round].what() != access.what() {
                return false;
            }
            let (before, last) = (&kept[len - 2 * round..len - round], &kept[len - round..]);
            before.iter().zip(last).all(|(before, last)| before.what() == last.what())
        };
        if let Some(round) = (1..=LOOP.min(len / 2)).find(is_again) {
            polls.extend(kept.drain(len - 2 * round..len - round).map(|access| access.what()));
        }
    }
    kept
}

/// Aligns two sequences by their longest common subsequence, without regard to values. How often firmware repeats a
/// loop depends on the rig's speed, so an access in `polls` that only one side makes is no divergence.
///
/// # Errors
/// The sequences are too long.
fn align(
    silicon: &[Access],
    model: &[Access],
    polls: &BTreeSet<(u16, bool, u16)>,
    found: &mut Found<'_>,
) -> Result<(), String> {
    let width = model.len() + 1;
    let (most, cells) = (silicon.len().max(model.len()), (silicon.len() + 1).saturating_mul(width));
    if most > usize::from(u16::MAX) || cells > MOST_CELLS {
        let line = silicon.first().map_or(0, |access| access.line);
        return Err(format!(
            "{} accesses from line {line} on without a request, and {} of the model: too many to align",
            silicon.len(),
            model.len()
        ));
    }
    let mut common = vec![0_u16; (silicon.len() + 1) * width];
    for (row, access) in silicon.iter().enumerate().rev() {
        for (column, other) in model.iter().enumerate().rev() {
            common[row * width + column] = if access.what() == other.what() {
                common[(row + 1) * width + column + 1] + 1
            } else {
                common[(row + 1) * width + column].max(common[row * width + column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < silicon.len() || column < model.len() {
        match (silicon.get(row), model.get(column)) {
            (Some(access), Some(other)) if access.what() == other.what() => {
                found.compare(Some(access), Some(other));
                (row, column) = (row + 1, column + 1);
            }
            (Some(access), other)
                if other.is_none() || common[(row + 1) * width + column] >= common[row * width + column + 1] =>
            {
                if !polls.contains(&access.what()) {
                    found.compare(Some(access), None);
                }
                row += 1;
            }
            (_, Some(other)) => {
                if !polls.contains(&other.what()) {
                    found.compare(None, Some(other));
                }
                column += 1;
            }
            _ => unreachable!("a sequence is left"),
        }
    }
    Ok(())
}

/// Boots the image on the model, sends the recording's requests, and compares the accesses.
///
/// # Errors
/// The model can't replay the recording.
pub fn free<'a>(recording: &'a Recording, image: &Image) -> Result<Found<'a>, String> {
    let mut unit = Unit::power_on(image, recording.speed()?);
    if recording.from_reset {
        lockstep::surround(&mut unit.driver.chip, recording);
        // Some recordings end before the unit is on the bus.
        let _ = unit.driver.boot();
    } else {
        // The host had enumerated the unit, had used UAS (0xC428 is 30), and went back to Bulk-Only.
        let is_ready = unit.driver.enumerate().and_then(|()| unit.driver.set_alternate(1));
        let is_ready = is_ready.and_then(|()| unit.driver.set_alternate(0));
        is_ready.map_err(|why| format!("{}: the unit before the recording's first line: {why:?}", recording.name))?;
        unit.end_interrupts(0, &[]);
        unit.take();
    }
    // The rig logged only some windows of 256 bytes.
    let logged: BTreeSet<u16> = recording.accesses().map(|access| access.addr >> 8).collect();
    let is_logged = |event: &Event| match event {
        Event::Access(access) => logged.contains(&(access.addr >> 8)) && !is_emulated(access.addr),
        Event::Interrupt(_) | Event::Return => true,
    };
    let mut polls = BTreeSet::new();
    let mut compare = |silicon: &[Event], model: Vec<Event>, sections: &mut Vec<[Streams; 2]>| {
        let [silicon, model] = [silicon, &model].map(|events| {
            let events: Vec<_> = events.iter().filter(|event| is_logged(event)).copied().collect();
            Streams::of(&events, recording.has_interrupts(), &mut polls)
        });
        sections.push([silicon, model]);
    };
    let mut sections = Vec::new();
    let mut made = Vec::new();
    let mut from = 0;
    // The requests that one interrupt, or one round of a polling loop, shows are sent together.
    let mut together: BTreeMap<usize, Vec<Request>> = BTreeMap::new();
    for act in recording.acts() {
        let begins = recording.begins(&act);
        let last = together.range(begins.clone()).next_back().map_or(*begins.end(), |(at, _)| *at);
        together.entry(last).or_default().push(act.request);
    }
    let mut together: Vec<_> = together.into_iter().collect();
    for at in 0..together.len() {
        let (begins, requests) = (together[at].0, std::mem::take(&mut together[at].1));
        if begins > from {
            let model = unit.take();
            made.extend_from_slice(&model);
            compare(&recording.events[from..begins], model, &mut sections);
            from = begins;
        }
        // A request that the firmware saw at the end of an interrupt had come before that end.
        let is_answered_within = !requests.iter().any(|request| matches!(request, Request::Command { .. }));
        let next = together.get_mut(at + 1).filter(|_| is_answered_within);
        let early = next.map_or_else(Vec::new, |(begins, requests)| {
            requests.extract_if(.., |request| recording.comes_before(*begins, request)).collect()
        });
        let ends = together.get(at + 1).map_or(recording.events.len(), |(begins, _)| *begins);
        let work = &recording.events[begins..ends];
        let interrupts = work.iter().filter(|event| matches!(event, Event::Interrupt(_))).count();
        unit.requests(&requests, &early, interrupts);
    }
    unit.settle();
    let model = unit.take();
    made.extend_from_slice(&model);
    compare(&recording.events[from..], model, &mut sections);
    let mut found = Found::new(recording, &made);
    for [silicon, model] in &sections {
        for (silicon, model) in silicon.0.iter().zip(&model.0) {
            align(silicon, model, &polls, &mut found).map_err(|why| format!("{}: {why}", recording.name))?;
        }
    }
    Ok(found)
}
