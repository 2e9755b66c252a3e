//! Oracle: the firmware runs on the CPU, each read of a register gets silicon's answer, and interrupts come where the
//! recording has them. RAM and the two XDATA pages are the model's. The firmware must make silicon's accesses.

use std::cell::RefCell;
use std::collections::BTreeSet;

use asm2464::firmware::Image;
use asm2464_chip::mcu::{AccessKind, Bus, CodeSpace, SFR_XDATA_PAGE, Sfrs};
use i8051::{Cpu, CpuView, Interrupt, MemoryMapper};

use super::recording::{Access, Event, Recording, is_emulated};

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
    memory: Vec<u8>,
    wrong: Option<Access>,
}

impl State<'_> {
    /// An access by the CPU. Returns silicon's answer to a read of a register.
    fn access(&mut self, pc: u16, kind: AccessKind, addr: u16, value: u8) -> Option<u8> {
        if !self.logged.contains(&addr) || self.wrong.is_some() {
            return None;
        }
        let made = Access { pc, kind, addr, value, line: 0 };
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

struct OracleXdata<'a>(RefCell<State<'a>>);

fn index<C: CpuView>(cpu: &C, addr: u32) -> usize {
    usize::from(cpu.sfr(SFR_XDATA_PAGE) & 1) << 16 | (addr as usize & 0xFFFF)
}

impl MemoryMapper for OracleXdata<'_> {
    type WriteValue = (usize, u16, u8);

    fn len(&self) -> u32 {
        0x1_0000
    }

    fn read<C: CpuView>(&self, cpu: &C, addr: u32) -> u8 {
        let index = index(cpu, addr);
        let mut state = self.0.borrow_mut();
        let stored = state.memory[index];
        if index > 0xFFFF {
            return stored;
        }
        state.access(cpu.pc_ext() as u16, AccessKind::Read, index as u16, 0).unwrap_or(stored)
    }

    fn prepare_write<C: CpuView>(&self, cpu: &C, addr: u32, value: u8) -> Self::WriteValue {
        (index(cpu, addr), cpu.pc_ext() as u16, value)
    }

    fn write(&mut self, (index, pc, value): Self::WriteValue) {
        let state = self.0.get_mut();
        // A start bit that the firmware waits for: the rig answered the other page itself.
        state.memory[index] = if index == 0x1_1238 { value & !0x01 } else { value };
        if index <= 0xFFFF {
            state.access(pc, AccessKind::Write, index as u16, value);
        }
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
    // In the windows that the rig answered itself, its serial port was ready, and its flash always busy.
    let mut memory = vec![0; 0x2_0000];
    memory[0x7000..0x8000].fill(0xFF);
    memory[0xC009] = 0x60;
    let state = State { logged, accesses, next: 0, memory, wrong: None };
    let mut bus = Bus { sfrs: Sfrs::default(), xdata: OracleXdata(RefCell::new(state)), code: CodeSpace::new(image) };
    let mut cpu = Cpu::new();
    let (mut idle, mut taken) = (0, 0);
    loop {
        let state = bus.xdata.0.get_mut();
        let Some((at, silicon)) = state.accesses.get(state.next).copied() else { break };
        if state.wrong.is_some() || idle > PATIENCE {
            let left = Some((*silicon, state.wrong));
            return Followed { compared: state.next + 1, equal: state.next, left };
        }
        let before = state.next;
        // The interrupt between the last access and the next.
        let line = recording.events[taken.min(at)..at].iter().position(|event| matches!(event, Event::Interrupt(..)));
        if let Some(offset) = line {
            let Event::Interrupt(number, _) = recording.events[taken + offset] else { unreachable!() };
            let kind = if number == 0 { Interrupt::External0 } else { Interrupt::External1 };
            if cpu.interrupt(kind) {
                taken += offset + 1;
            }
        }
        cpu.step(&mut bus);
        idle = if bus.xdata.0.get_mut().next == before { idle + 1 } else { 0 };
    }
    let next = bus.xdata.0.get_mut().next;
    Followed { compared: next, equal: next, left: None }
}
