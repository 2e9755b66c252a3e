//! Oracle: the firmware runs on the rig's CPU, each read of a register gets silicon's answer, and interrupts come at
//! the cycle at which the rig reported them. RAM and the second XDATA page are the rig's own. The firmware must make
//! silicon's accesses.

use std::collections::BTreeSet;

use asm2464::firmware::Image;
use asm2464_chip::mcu::AccessKind;

use super::recording::{Access, Event, Recording, is_emulated};
use super::rig::{Registers, RigCpu};

/// Maximum number of instructions without a recorded access and without an interrupt to come. More mean that the
/// firmware has left the recording's path.
const PATIENCE: u32 = 2_000_000;

/// How far the firmware followed.
pub struct Followed {
    pub compared: usize,
    pub equal: usize,
    /// Where it left silicon's path: what silicon did, and what the firmware did.
    pub left: Option<(Access, Option<Access>)>,
}

struct State<'a> {
    /// The addresses that the rig logged.
    logged: BTreeSet<u16>,
    accesses: Vec<&'a Access>,
    next: usize,
    wrong: Option<Access>,
    /// The firmware has reset the chip.
    is_reset: bool,
}

impl State<'_> {
    /// Compares an access by the CPU with silicon's. Returns silicon's answer to a read of a register.
    fn access(&mut self, pc: u16, kind: AccessKind, addr: u16, value: u8) -> Option<u8> {
        if !self.logged.contains(&addr) || self.wrong.is_some() {
            return None;
        }
        let made = Access { pc, kind, addr, value, line: 0, interrupt: 0 };
        match self.accesses.get(self.next) {
            Some(silicon) if silicon.what() == made.what() && (silicon.is_read() || silicon.value == value) => {
                self.next += 1;
                Some(silicon.value)
            }
            Some(_) => {
                self.wrong = Some(made);
                None
            }
            None => None,
        }
    }
}

impl Registers for State<'_> {
    fn read(&mut self, pc: u16, addr: u16) -> Option<u8> {
        self.access(pc, AccessKind::Read, addr, 0)
    }

    fn write(&mut self, pc: u16, addr: u16, value: u8) {
        self.access(pc, AccessKind::Write, addr, value);
        self.is_reset |= addr == 0xCC31 && value & 0x01 != 0;
    }
}

/// Runs the image with silicon's answers, until the recording ends or the firmware leaves its path.
pub fn follow(recording: &Recording, image: &Image) -> Followed {
    let events = recording.events.iter().enumerate();
    let accesses: Vec<_> = events
        .filter_map(|(at, event)| match event {
            Event::Access(access) if !is_emulated(access.addr) => Some((at, access)),
            _ => None,
        })
        .collect();
    let mut interrupts = reported_interrupts(recording, &accesses).into_iter().peekable();
    let logged = accesses.iter().map(|(_, access)| access.addr).collect();
    let accesses = accesses.into_iter().map(|(_, access)| access).collect();
    let mut cpu = RigCpu::new(image, State { logged, accesses, next: 0, wrong: None, is_reset: false });
    let (mut idle, mut last) = (0, 0);
    loop {
        let state = cpu.registers();
        let before = state.next;
        let Some(silicon) = state.accesses.get(before).copied() else { break };
        if state.wrong.is_some() || idle > PATIENCE {
            return Followed { compared: before + 1, equal: before, left: Some((*silicon, state.wrong)) };
        }
        let began = cpu.cycles;
        while let Some(due) = interrupts.next_if(|next| next.after <= before && next.cycles <= began - last) {
            cpu.raise(due.number);
        }
        cpu.step();
        let state = cpu.registers();
        let (next, is_reset) = (state.next, std::mem::take(&mut state.is_reset));
        if is_reset {
            cpu.restart();
        }
        if next > before {
            last = began;
        }
        let is_due = interrupts.peek().is_some_and(|interrupt| interrupt.after <= next);
        idle = if next > before || is_due { 0 } else { idle + 1 };
    }
    let next = cpu.registers().next;
    Followed { compared: next, equal: next, left: None }
}

/// An interrupt, at the point at which the rig reported it.
struct ReportedInterrupt {
    number: u8,
    /// The number of accesses before it.
    after: usize,
    /// Cycles since the last of these accesses began.
    cycles: u64,
}

fn reported_interrupts(recording: &Recording, accesses: &[(usize, &Access)]) -> Vec<ReportedInterrupt> {
    let interrupts = recording.events.iter().enumerate().filter_map(|(at, event)| match event {
        Event::Interrupt(number) => Some((at, *number)),
        _ => None,
    });
    let reported = interrupts.map(|(at, number)| {
        let cycle = recording.cycles[at];
        // The access of that very cycle is the instruction that was executed before the interrupt.
        let after = accesses.partition_point(|(access, _)| *access < at && recording.cycles[*access] < cycle);
        let last = after.checked_sub(1).map_or(0, |last| recording.cycles[accesses[last].0]);
        ReportedInterrupt { number, after, cycles: cycle - last }
    });
    reported.collect()
}
