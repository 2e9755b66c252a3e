//! Free: the firmware boots on the model, the host sends the requests of the recording, and the two sequences of
//! accesses are aligned.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use asm2464::firmware::Image;
use asm2464::scsi::{Command, INQUIRY_LEN, XdataAddress, XdataPage};
use asm2464_chip::chip::{Chip, DATA_IN, DATA_OUT, Data, Driver, Speed, Watch};
use asm2464_chip::mcu::{AccessKind, CodeSpace, MemoryFlash, Observer, Step};
use i8051::Register;

use super::recording::{Access, Event, Recording, Request, is_emulated};
use super::table::Found;

/// Instructions for the boot and each request. The vendor's images wait for a USB-C partner for a second.
const BUDGET: u64 = 200_000_000;
/// Bytes that the host sends with a command, at most.
const DATA_LEN: usize = 0x1_0000;
/// Cells of the table that aligns two sequences, at most: 800 MB.
const MOST_CELLS: usize = 400_000_000;
/// Most accesses of a loop that counts as one, however often it runs.
const LOOP: usize = 400;
const MOVX_READ: u8 = 0xE0;
const MOVX_WRITE: u8 = 0xF0;
const RETI: u8 = 0x32;
/// Instructions from a request's end to the end of its interrupt, at most.
const INTERRUPT: u64 = 100_000;

/// What the model's CPU did, as a recording has it.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// A read whose value the accumulator has next, or the access that was just made.
    last: Option<Access>,
    /// The last access was to the other page, which no rig logs.
    is_elsewhere: bool,
    in_interrupt: bool,
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

#[derive(Clone, Default)]
struct Logger(Arc<Mutex<Log>>);

impl Observer for Logger {
    fn before(&mut self, step: &Step<'_>) {
        let mut log = self.0.lock().unwrap();
        let accumulator = step.cpu.register(Register::A) as u8;
        log.settle(accumulator);
        let pc = step.at.addr();
        if let 0x0003 | 0x0013 = pc {
            log.in_interrupt = true;
            log.events.push(Event::Interrupt(u8::from(pc == 0x0013), 0));
        }
        let kind = match step.opcode {
            MOVX_READ => AccessKind::Read,
            MOVX_WRITE => AccessKind::Write,
            RETI => {
                log.in_interrupt = false;
                return log.events.push(Event::Return);
            }
            _ => return,
        };
        let addr = step.cpu.register(Register::DPTR);
        log.last = Some(Access { pc, kind, addr, value: accumulator, line: 0 });
    }
}

impl Watch for Logger {
    fn register(&mut self, _kind: AccessKind, at: XdataAddress, _value: u8, _pc: u32) {
        self.0.lock().unwrap().is_elsewhere = at.page == XdataPage::Other;
    }
}

/// The unit, and what its CPU did up to each request.
struct Unit {
    driver: Driver<MemoryFlash>,
    logger: Logger,
}

impl Unit {
    /// The rig's flash held no configuration: its buffer was all ones.
    fn power_on(image: &Image, speed: Speed) -> Self {
        let logger = Logger::default();
        let mut chip = Chip::power_on(CodeSpace::new(image), MemoryFlash::erased(), speed);
        chip.set_watch(Some(Box::new(logger.clone())));
        let mut driver = Driver::new(chip);
        driver.set_budget(BUDGET);
        let mut observer = logger.clone();
        driver.set_runner(move |chip, budget| chip.run_observed(budget, &mut observer));
        Self { driver, logger }
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.logger.0.lock().unwrap().events)
    }

    fn request(&mut self, request: &Request) {
        let driver = &mut self.driver;
        // What is answered, the sequences tell.
        match *request {
            Request::Setup(setup) => {
                let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
                let _ = driver.control(setup, &vec![0; if setup[0] & 0x80 == 0 { len } else { 0 }]);
            }
            // The unit itself lies in a range that the rig did not log. The hosts that were recorded sent nothing but
            // TEST UNIT READY.
            Request::Command { tag } => {
                let _ = driver.uas(tag, &[0; 6], &[]);
            }
            Request::Cbw(cbw) => {
                let len = u32::from_le_bytes([cbw[8], cbw[9], cbw[10], cbw[11]]) as usize;
                let data = vec![0; if cbw[12] & 0x80 == 0 { len.min(DATA_LEN) } else { 0 }];
                let _ = driver.send(DATA_OUT, 0, &cbw).and_then(|()| driver.send(DATA_OUT, 0, &data));
                let _ = driver.receive(DATA_IN, 0);
            }
        }
        self.end_interrupt();
    }

    /// A request ends for the host before the firmware has left its interrupt.
    fn end_interrupt(&mut self) {
        let mut observer = self.logger.clone();
        for _ in 0..INTERRUPT {
            if !self.logger.0.lock().unwrap().in_interrupt {
                break;
            }
            self.driver.chip.run_observed(1, &mut observer);
        }
    }
}

/// Accesses outside interrupts and in them, each loop once.
struct Streams([Vec<Access>; 2]);

impl Streams {
    /// What was made in loops goes to `polls`. A recording without interrupts is all one stream.
    fn of(events: &[Event], tells_interrupts: bool, polls: &mut BTreeSet<(u16, bool, u16)>) -> Self {
        let mut streams = [Vec::new(), Vec::new()];
        let mut in_interrupt = false;
        for event in events {
            match event {
                Event::Interrupt(..) => in_interrupt = tells_interrupts,
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
            let (before, last) = (&kept[len - 2 * round..len - round], &kept[len - round..]);
            before.iter().zip(last).rev().all(|(before, last)| before.what() == last.what())
        };
        if let Some(round) = (1..=LOOP.min(len / 2)).find(is_again) {
            polls.extend(kept.drain(len - 2 * round..len - round).map(|access| access.what()));
        }
    }
    kept
}

/// Aligns two sequences by what each access is: the longest that both have in common. How often firmware goes round a
/// loop depends on the rig's speed, so an access of `polls` that one side lacks is none.
///
/// # Errors
/// They are too long.
fn align(
    silicon: &[Access],
    model: &[Access],
    polls: &BTreeSet<(u16, bool, u16)>,
    found: &mut Found,
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
                found.read(access.addr, access.value, other.value, access.line);
                (row, column) = (row + 1, column + 1);
            }
            (Some(access), other)
                if other.is_none() || common[(row + 1) * width + column] >= common[row * width + column + 1] =>
            {
                if !polls.contains(&access.what()) {
                    found.only(access, true);
                }
                row += 1;
            }
            (_, Some(other)) => {
                if !polls.contains(&other.what()) {
                    found.only(other, false);
                }
                column += 1;
            }
            _ => unreachable!("a sequence is left"),
        }
    }
    Ok(())
}

/// # Errors
/// The model can't replay the recording.
pub fn free(recording: &Recording, image: &Image) -> Result<Found, String> {
    let mut unit = Unit::power_on(image, recording.speed()?);
    unit.driver.boot();
    if !recording.from_reset {
        // The host had enumerated the unit, had used UAS (0xC428 is 30), and went back to Bulk-Only.
        let is_ready = unit.driver.enumerate().and_then(|()| unit.driver.set_alternate(1));
        let is_ready = is_ready.and_then(|()| unit.driver.set_alternate(0));
        is_ready.map_err(|why| format!("{}: the unit before the recording's first line: {why:?}", recording.name))?;
        unit.end_interrupt();
        unit.take();
    }
    // The rig logged only some windows of 256 bytes.
    let logged: BTreeSet<u16> = recording.accesses().map(|access| access.addr >> 8).collect();
    let is_logged = |event: &Event| match event {
        Event::Access(access) => logged.contains(&(access.addr >> 8)) && !is_emulated(access.addr),
        Event::Interrupt(..) | Event::Return => true,
    };
    let mut polls = BTreeSet::new();
    let mut compare = |silicon: &[Event], model: Vec<Event>, sections: &mut Vec<[Streams; 2]>| {
        let [silicon, model] = [silicon, &model].map(|events| {
            let events: Vec<_> = events.iter().filter(|event| is_logged(event)).copied().collect();
            Streams::of(&events, recording.tells_interrupts(), &mut polls)
        });
        sections.push([silicon, model]);
    };
    let mut sections = Vec::new();
    let mut from = 0;
    for (at, requests) in recording.requests() {
        compare(&recording.events[from..at], unit.take(), &mut sections);
        requests.iter().for_each(|request| unit.request(request));
        from = at;
    }
    unit.driver.settle();
    compare(&recording.events[from..], unit.take(), &mut sections);
    let mut found = Found::default();
    for [silicon, model] in &sections {
        for (silicon, model) in silicon.0.iter().zip(&model.0) {
            align(silicon, model, &polls, &mut found).map_err(|why| format!("{}: {why}", recording.name))?;
        }
    }
    Ok(found)
}

/// What a rig would have recorded of this image on the model, from reset: enumeration and INQUIRY.
pub fn recorded(image: &Image, speed: Speed) -> String {
    let mut unit = Unit::power_on(image, speed);
    unit.driver.boot();
    unit.driver.enumerate().unwrap();
    let cdb = Command::Inquiry { len: INQUIRY_LEN }.cdb();
    // Open firmware has no commands.
    let _ = unit.driver.bulk_only(cdb.as_slice(), Data::In(INQUIRY_LEN.into()));
    unit.driver.settle();
    let lines = unit.take().into_iter().enumerate().map(|(number, event)| match event {
        Event::Interrupt(which, _) => format!("[{number:8}] [EMU] Triggering interrupt: INT{which}"),
        Event::Return => format!("[{number:8}] [EMU] RETI"),
        Event::Access(Access { pc, kind, addr, value, .. }) => {
            format!("[{number:8}] PC=0x{:04X} {kind:?} 0x{addr:04X} = 0x{value:02X}  NAME", pc.wrapping_add(1))
        }
    });
    ["Starting execution at PC=0x0000".to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\r\n")
}
