//! Oracle: the firmware runs on the CPU, each read of a register gets silicon's answer, and interrupts come where the
//! recording has them. RAM and the two XDATA pages are the model's. The firmware must make silicon's accesses.

use std::collections::BTreeSet;

use asm2464::firmware::Image;
use asm2464_chip::mcu::{AccessKind, Bus, CodeSpace, Sfrs};
use i8051::{Cpu, Interrupt};

use super::recording::{Access, Event, Recording, is_emulated};
use super::rig::{Registers, RigXdata};

/// Instructions without an access of the recording, after which the firmware is lost.
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
    accesses: Vec<(usize, &'a Access)>,
    next: usize,
    wrong: Option<Access>,
    /// The firmware has reset the chip.
    is_reset: bool,
}

impl State<'_> {
    /// An access by the CPU. Returns silicon's answer to a read of a register.
    fn access(&mut self, pc: u16, kind: AccessKind, addr: u16, value: u8) -> Option<u8> {
        if !self.logged.contains(&addr) || self.wrong.is_some() {
            return None;
        }
        let made = Access { pc, kind, addr, value, line: 0, interrupt: 0 };
        match self.accesses.get(self.next) {
            Some((_, silicon)) if silicon.what() == made.what() && (silicon.is_read() || silicon.value == value) => {
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

pub fn follow(recording: &Recording, image: &Image) -> Followed {
    let events = recording.events.iter().enumerate();
    let accesses: Vec<_> = events
        .filter_map(|(at, event)| match event {
            Event::Access(access) if !is_emulated(access.addr) => Some((at, access)),
            _ => None,
        })
        .collect();
    let logged = accesses.iter().map(|(_, access)| access.addr).collect();
    let state = State { logged, accesses, next: 0, wrong: None, is_reset: false };
    let mut bus = Bus { sfrs: Sfrs::default(), xdata: RigXdata::new(state), code: CodeSpace::new(image) };
    let mut cpu = Cpu::new();
    let (mut idle, mut taken) = (0, 0);
    loop {
        let state = bus.xdata.registers();
        let Some((at, silicon)) = state.accesses.get(state.next).copied() else { break };
        if state.wrong.is_some() || idle > PATIENCE {
            let left = Some((*silicon, state.wrong));
            return Followed { compared: state.next + 1, equal: state.next, left };
        }
        let before = state.next;
        // The interrupt between the last access and the next.
        let line = recording.events[taken.min(at)..at].iter().position(|event| matches!(event, Event::Interrupt(_)));
        if let Some(offset) = line {
            let Event::Interrupt(number) = recording.events[taken + offset] else { unreachable!() };
            let kind = if number == 0 { Interrupt::External0 } else { Interrupt::External1 };
            if cpu.interrupt(kind) {
                taken += offset + 1;
            }
        }
        cpu.step(&mut bus);
        if std::mem::take(&mut bus.xdata.registers().is_reset) {
            (cpu, bus.sfrs) = (Cpu::new(), Sfrs::default());
        }
        idle = if bus.xdata.registers().next == before { idle + 1 } else { 0 };
    }
    let next = bus.xdata.registers().next;
    Followed { compared: next, equal: next, left: None }
}
