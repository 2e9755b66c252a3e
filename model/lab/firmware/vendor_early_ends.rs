//! Commands that a host gives up before their end. With each optional patch, a unit then answers as unpatched firmware
//! whose host gave up a short E4. The same command can't be compared: unpatched firmware never answers READ(16), and
//! answers a long E4 without data. `ASMPATCH_VENDOR_IMAGE` names the image.

use asm2464::firmware::Image;
use asm2464::scsi::runtime::INITIALISATION;
use asm2464::scsi::uas::{ABORT_TASK, LOGICAL_UNIT_RESET};
use asm2464_chip::chip::{COMMAND_OUT, DATA_IN, RunEnd, STATUS_IN, Speed, Unanswered};

use crate::chip_images::{cdb16, patched, with};
use crate::firmware::chip_wire::{INQUIRY, RECOVERIES, Reply, Unit, Way, Wire, everywhere};

/// XDATA: which 4 KiB of the SRAM are at 0xF000.
const WINDOW_PAGE: u16 = 0xC8D9;
const READ_PAGE: [u8; 6] = [0xE4, 1, 0x50, 0xC8, 0xD9, 0];
const READ_WINDOW: [u8; 6] = [0xE4, 200, 0x50, 0xF0, 0, 0];
/// Upper bound of the instructions for an answer.
const BUDGET: u64 = 500_000;
/// A tag that no command has.
const TASK: u8 = 120;

fn select_transport(unit: &mut Unit) {
    unit.driver.set_alternate(u8::from(unit.wire == Wire::Uas)).unwrap();
}

/// Receives what the unit still sends for the last command. ABORT TASK, LOGICAL UNIT RESET and CLEAR_FEATURE don't end
/// a reply: this is also so in the unpatched firmware.
fn take_the_rest(unit: &mut Unit) {
    while unit.packet().is_ok() {}
    let stream = if unit.driver.chip.speed() == Speed::Super { unit.tag } else { 0 };
    while unit.driver.receive(STATUS_IN, stream).is_ok() {}
}

fn manage_task(unit: &mut Unit, function: u8) {
    let [high, low] = unit.tag.to_be_bytes();
    let iu = [5, 0, 0, TASK, function, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    unit.driver.send(COMMAND_OUT, 0, &iu).unwrap();
    take_the_rest(unit);
    let stream = if unit.driver.chip.speed() == Speed::Super { TASK.into() } else { 0 };
    while unit.driver.receive(STATUS_IN, stream).is_ok() {}
}

/// The ways in which a host gives up a command.
fn ends(wire: Wire) -> Vec<Way> {
    let ends: [Way; 4] = [
        ("SET_INTERFACE of the other transport", |unit| {
            unit.wire = if unit.wire == Wire::Uas { Wire::BulkOnly } else { Wire::Uas };
            select_transport(unit);
        }),
        ("a reset of the port to the other speed", |unit| {
            let speed = if unit.driver.chip.speed() == Speed::Super { Speed::High } else { Speed::Super };
            unit.driver.chip.bus_reset(speed);
            unit.driver.enumerate().unwrap();
            select_transport(unit);
        }),
        ("SET_CONFIGURATION", |unit| {
            unit.driver.control([0x00, 9, 1, 0, 0, 0, 0, 0], &[]).unwrap();
            select_transport(unit);
        }),
        ("CLEAR_FEATURE", |unit| {
            unit.driver.clear_halt(DATA_IN).unwrap();
            take_the_rest(unit);
        }),
    ];
    let tasks: [Way; 2] = [
        ("ABORT TASK", |unit| manage_task(unit, ABORT_TASK)),
        ("LOGICAL UNIT RESET", |unit| manage_task(unit, LOGICAL_UNIT_RESET)),
    ];
    let tasks = tasks.into_iter().filter(|_| wire == Wire::Uas);
    RECOVERIES.into_iter().chain(ends).chain(tasks).collect()
}

/// The host's questions afterwards, in this order. The first ones get no long reply: the firmware sets the window's
/// page to 0 with each long reply.
fn questions() -> Vec<(Vec<u8>, usize)> {
    let poke = |at: u16, value| vec![0xE5, value, 0x50, (at >> 8) as u8, at as u8, 0];
    let mut questions = vec![
        (READ_WINDOW.to_vec(), 200),
        (READ_PAGE.to_vec(), 1),
        (vec![0x00; 6], 0),
        (vec![0xE4, 32, 0x51, 0x10, 0, 0], 32),
        // REQUEST SENSE
        (vec![0x03, 0, 0, 0, 18, 0], 18),
        (READ_WINDOW.to_vec(), 200),
        (INQUIRY.to_vec(), 36),
        // INQUIRY's pages 80 and 83, MODE SENSE, REPORT LUNS, READ CAPACITY
        (vec![0x12, 1, 0x80, 0, 255, 0], 255),
        (vec![0x12, 1, 0x83, 0, 255, 0], 255),
        (vec![0x1A, 0, 0x3F, 0, 192, 0], 192),
        (vec![0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], 16),
        (vec![0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8),
        // The firmware's version
        (vec![0xE4, 6, 0x50, 0x07, 0xF0, 0], 6),
        (poke(WINDOW_PAGE, 3), 0),
        (READ_WINDOW.to_vec(), 200),
        (READ_PAGE.to_vec(), 1),
    ];
    questions.extend(INITIALISATION.map(|(at, value)| (poke(at, value), 0)));
    questions.push((READ_WINDOW.to_vec(), 200));
    questions
}

type Answer = Result<Reply, Unanswered>;

/// Where a host stops.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// Packets that the host takes.
    packets: usize,
    /// Instructions that the firmware executes then; `None` lets it run until it is idle.
    instructions: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Command<'a> {
    cdb: &'a [u8],
    len: usize,
}

/// A unit, and the way in which its host gives up a command.
struct History<'a> {
    image: &'a Image,
    place: (Wire, Speed),
    page: u8,
    end: Way,
}

impl History<'_> {
    /// Gives up the first command, then returns the answers to all questions and to `command`.
    fn answers(&self, given_up: Option<(Command<'_>, Stop)>, command: Command<'_>) -> Vec<Answer> {
        let mut unit = Unit::new(self.image, self.place.0, self.place.1);
        unit.driver.set_budget(BUDGET);
        unit.initialise();
        unit.poke(WINDOW_PAGE, self.page);
        unit.driver.settle();
        if let Some((command, stop)) = given_up {
            unit.begin(command.cdb, command.len as u32, stop.packets);
            match stop.instructions {
                Some(count) => drop(unit.driver.chip.run(count)),
                None => drop(unit.driver.settle()),
            }
        }
        self.end.1(&mut unit);
        if unit.wire == Wire::Uas && unit.driver.chip.speed() == Speed::High {
            // Without streams the status of the command that was given up may come first.
            while unit.driver.receive(STATUS_IN, 0).is_ok() {}
        }
        let all = questions().into_iter().chain([(command.cdb.to_vec(), command.len)]);
        all.map(|(cdb, len)| ask(&mut unit, &cdb, len)).collect()
    }
}

fn ask(unit: &mut Unit, cdb: &[u8], len: usize) -> Answer {
    // Without this limit, a host would clear a lasting halt for ever.
    let until = unit.driver.chip.instructions() + BUDGET;
    unit.driver.set_runner(
        move |chip, budget| {
            if chip.instructions() < until { chip.run(budget) } else { RunEnd::Budget }
        },
    );
    unit.attempt(cdb, len)
}

/// Gives up `command` after each packet, and between two packets, in each way. Compares the answers with those of the
/// unpatched firmware whose host gave up a short E4 at the same point: before a packet, after it, or before the status.
/// The last answer, to `command` itself, is the patched firmware's in both.
fn leaves_no_unit_worse(patches: &[&str], command: Command<'_>, page: u8) {
    let images = [patched(), with(patches)];
    let mut wrong = Vec::new();
    for place in everywhere() {
        let packets = command.len.div_ceil(place.1.bulk_packet());
        for (turn, end) in ends(place.0).into_iter().enumerate() {
            let [stock, unit] = images.each_ref().map(|image| History { image, place, page, end });
            let short = Command { cdb: &READ_WINDOW, len: 200 };
            let expected = |stop: Stop| {
                let mut answers = stock.answers(Some((short, stop)), command);
                *answers.last_mut().unwrap() = unit.answers(Some((short, stop)), command).pop().unwrap();
                answers
            };
            let [before_packet, before_status] = [0, 1].map(|packets| expected(Stop { packets, instructions: None }));
            // The host has the packet, and the firmware doesn't know it yet.
            let on_its_way = expected(Stop { packets: 1, instructions: Some(0) });
            let recovers = RECOVERIES.iter().any(|way| way.0 == end.0);
            assert!(!recovers || before_packet.iter().all(Result::is_ok), "{place:?} {}", end.0);
            let mut compare = |stop: Stop, expected: &[Answer]| {
                let found = unit.answers(Some((command, stop)), command);
                if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
                    let cdb = questions().get(at).map_or(command.cdb.to_vec(), |question| question.0.clone());
                    let [expected, found] = [&expected[at], &found[at]].map(shown);
                    wrong.push(format!("{place:?}, {}, {stop:?}, {cdb:02x?}: {found}, not {expected}", end.0));
                }
            };
            for taken in 0..=packets {
                let expected = if taken < packets { &before_packet } else { &before_status };
                compare(Stop { packets: taken, instructions: None }, expected);
            }
            for (number, count) in (0..9000).step_by(771).enumerate() {
                // Unoptimised, each way has the first point and every other one, and the next way those between them.
                // `.ci/nightly` has all of them.
                if cfg!(debug_assertions) && number > 0 && number % 2 != turn % 2 {
                    continue;
                }
                let instructions = Some(count);
                let stop = Stop { packets: 0, instructions };
                compare(stop, &expected(stop));
                if packets > 1 {
                    let expected = if instructions == Some(0) { &on_its_way } else { &before_packet };
                    compare(Stop { packets: packets * 5 / 8, instructions }, expected);
                }
            }
        }
    }
    let (count, some) = (wrong.len(), wrong.into_iter().step_by(23).collect::<Vec<_>>().join("\n"));
    assert!(count == 0, "{patches:?}, page {page}: {count} histories, among them\n{some}");
}

fn shown(answer: &Answer) -> String {
    match answer {
        Ok(Reply { data, good, residue }) => {
            format!("{} bytes {:02x?}, {good}, {residue}", data.len(), &data[..data.len().min(8)])
        }
        Err(why) => format!("{why:?}"),
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read16_that_is_given_up_leaves_no_unit_worse_than_the_unpatched_firmware() {
    let cdb = cdb16(0x88, 0, 64);
    for (patches, page) in [(&["read16-sram"][..], 5), (&["read16-sram", "e4-length-16"], 0)] {
        leaves_no_unit_worse(patches, Command { cdb: &cdb, len: 32_768 }, page);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_e4_that_is_given_up_leaves_no_unit_worse_than_the_unpatched_firmware() {
    for (patches, page) in [(&["e4-length-16"][..], 5), (&["read16-sram", "e4-length-16"], 0)] {
        // 4,096 bytes of the window, 4,096 of the other page of XDATA, and 255 in one packet.
        leaves_no_unit_worse(patches, Command { cdb: &[0xE4, 0, 0x50, 0xF0, 0, 0x10], len: 4096 }, page);
        leaves_no_unit_worse(patches, Command { cdb: &[0xE4, 0, 0x51, 0, 0, 0x10], len: 4096 }, page);
        leaves_no_unit_worse(patches, Command { cdb: &[0xE4, 255, 0x50, 0xF0, 0, 0], len: 255 }, page);
    }
}
