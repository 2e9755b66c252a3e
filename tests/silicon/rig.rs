//! The rig: firmware runs on a CPU of its own, whose accesses to registers go to a chip. Some ranges the rig answers
//! itself. [`record`] puts the model in the chip's place.

use std::cell::RefCell;

use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Chip, Speed};
use asm2464_chip::mcu::{AccessKind, Bus, CodeSpace, MemoryFlash, SFR_CODE_BANK, SFR_XDATA_PAGE, Sfrs};
use i8051::sfr::{IE_EA, IE_EX0, IE_EX1};
use i8051::{Cpu, CpuView, Interrupt, MemoryMapper};

use super::host::Host;
use super::lockstep;
use super::recording::{Access, Event, Request, is_emulated, written};

/// What answers accesses to registers.
pub trait Registers {
    /// Answers a read by the instruction at `pc`; `None` if the rig does.
    fn read(&mut self, pc: u16, addr: u16) -> Option<u8>;

    fn write(&mut self, pc: u16, addr: u16, value: u8);
}

/// XDATA as the rig's CPU sees it. RAM and the second page are the rig's own.
pub struct RigXdata<R>(RefCell<(Vec<u8>, R)>);

impl<R> RigXdata<R> {
    pub fn new(registers: R) -> Self {
        // In the windows that the rig answered itself, its serial port was ready, and its flash always busy.
        let mut memory = vec![0; 0x2_0000];
        memory[0x7000..0x8000].fill(0xFF);
        memory[0xC009] = 0x60;
        Self(RefCell::new((memory, registers)))
    }

    pub fn registers(&mut self) -> &mut R {
        &mut self.0.get_mut().1
    }
}

fn index<C: CpuView>(cpu: &C, addr: u32) -> usize {
    usize::from(cpu.sfr(SFR_XDATA_PAGE) & 1) << 16 | (addr as usize & 0xFFFF)
}

impl<R: Registers> MemoryMapper for RigXdata<R> {
    type WriteValue = (usize, u16, u8);

    fn len(&self) -> u32 {
        0x1_0000
    }

    fn read<C: CpuView>(&self, cpu: &C, addr: u32) -> u8 {
        let index = index(cpu, addr);
        let (memory, registers) = &mut *self.0.borrow_mut();
        let answer = if index > 0xFFFF { None } else { registers.read(cpu.pc_ext() as u16, index as u16) };
        answer.unwrap_or(memory[index])
    }

    fn prepare_write<C: CpuView>(&self, cpu: &C, addr: u32, value: u8) -> Self::WriteValue {
        (index(cpu, addr), cpu.pc_ext() as u16, value)
    }

    fn write(&mut self, (index, pc, value): Self::WriteValue) {
        let (memory, registers) = self.0.get_mut();
        // A start bit that the firmware waits for: the rig answered the other page itself.
        memory[index] = if index == 0x1_1238 { value & !0x01 } else { value };
        if index <= 0xFFFF {
            registers.write(pc, index as u16, value);
        }
    }
}

/// Ticks after which the link is up. A tick is an access, or as long without one.
const LINK_UP: usize = 800;
/// Ticks between an answer and the next request.
const REST: usize = 60;
/// Most ticks that an answer takes.
const PATIENCE: usize = 3_000;
/// Instructions without an access that take the rig as long as one.
const TICK: u32 = 1_000;

/// The model, in the place of the rig's chip.
struct Model {
    chip: Chip<MemoryFlash>,
    host: Host,
    events: Vec<Event>,
    ticks: usize,
    /// INT0 and INT1, as the registers have them.
    lines: [bool; 2],
    /// The firmware has reset the chip.
    is_reset: bool,
}

impl Model {
    fn made(&mut self, pc: u16, kind: AccessKind, addr: u16, value: u8) {
        self.ticks += 1;
        self.events.push(Event::Access(Access { pc, kind, addr, value, line: 0, interrupt: 0 }));
        self.look();
    }

    fn look(&mut self) {
        let peek = |addr| self.chip.peek(XdataAddress::main(addr));
        let (enables, more) = (peek(0xC800), peek(0xC806));
        self.lines = [peek(0xC802) & enables != 0 || more & 0x20 != 0 && enables & 0x04 != 0, more & 0x01 != 0];
    }
}

impl Registers for Model {
    fn read(&mut self, pc: u16, addr: u16) -> Option<u8> {
        if is_emulated(addr) {
            return None;
        }
        lockstep::pass(&mut self.chip);
        let value = self.chip.peek(XdataAddress::main(addr));
        self.made(pc, AccessKind::Read, addr, value);
        Some(value)
    }

    fn write(&mut self, pc: u16, addr: u16, value: u8) {
        if is_emulated(addr) {
            return;
        }
        lockstep::pass(&mut self.chip);
        self.chip.poke(XdataAddress::main(addr), &[value]);
        self.host.exchanges(&mut self.chip);
        self.is_reset |= addr == 0xCC31 && value & 0x01 != 0;
        self.made(pc, AccessKind::Write, addr, value);
    }
}

/// What the rig records of this image, from reset, while the host sends these requests. `board` has registers that differ on
/// its board. Also returns the requests that were not answered.
pub fn record(image: &Image, speed: Speed, board: &[(u16, u8)], requests: &[Request]) -> (String, Vec<Request>) {
    let mut chip = lockstep::chip(speed);
    for (addr, value) in board {
        chip.poke(XdataAddress::main(*addr), &[*value]);
    }
    let model = Model { chip, host: Host::default(), events: Vec::new(), ticks: 0, lines: [false; 2], is_reset: false };
    let mut bus = Bus { sfrs: Sfrs::default(), xdata: RigXdata::new(model), code: CodeSpace::new(image) };
    let mut cpu = Cpu::new();
    let mut in_interrupt = false;
    let mut requests = requests.iter();
    let mut unanswered = Vec::new();
    let (mut next_at, mut asked, mut silence, mut last) = (0, None::<&Request>, 0, 0);
    loop {
        let model = bus.xdata.registers();
        silence = if model.ticks == last { silence + 1 } else { 0 };
        if silence == TICK {
            silence = 0;
            lockstep::pass(&mut model.chip);
            model.ticks += 1;
            model.look();
        }
        last = model.ticks;
        if !model.chip.is_on_bus() {
            next_at = model.ticks + LINK_UP;
        }
        if asked.is_some() && model.host.is_answered {
            (asked, next_at) = (None, model.ticks + REST);
        }
        if model.ticks >= next_at {
            unanswered.extend(asked.take().cloned());
            let Some(request) = requests.next() else { break };
            model.host.acts(&mut model.chip, request);
            model.look();
            (asked, next_at) = (Some(request), model.ticks + PATIENCE);
        }
        let lines = model.lines;
        let vectors = [(Interrupt::External0, IE_EX0), (Interrupt::External1, IE_EX1)];
        for (number, (vector, enable)) in vectors.into_iter().enumerate() {
            if lines[number] && !in_interrupt && cpu.ie() & (IE_EA | enable) == IE_EA | enable {
                in_interrupt = cpu.interrupt(vector);
                bus.xdata.registers().events.push(Event::Interrupt(number as u8));
                break;
            }
        }
        if in_interrupt && bus.code.byte(bus.sfrs.get(SFR_CODE_BANK) & 1, cpu.pc) == 0x32 {
            in_interrupt = false;
            bus.xdata.registers().events.push(Event::Return);
        }
        cpu.step(&mut bus);
        if std::mem::take(&mut bus.xdata.registers().is_reset) {
            (cpu, bus.sfrs, in_interrupt) = (Cpu::new(), Sfrs::default(), false);
        }
    }
    (written(&bus.xdata.registers().events), unanswered)
}
