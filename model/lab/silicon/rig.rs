//! The rig: firmware runs on an emulated CPU, whose accesses to registers go to a chip. The rig answers some ranges
//! itself. [`record`] puts the model in the chip's place.

use std::cell::RefCell;

use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Chip, Speed};
use asm2464_chip::mcu::{AccessKind, CodeSpace, CpuBus, SFR_CODE_BANK, SFR_XDATA_PAGE, Sfrs};
use i8051::sfr::{IE_EA, IE_EX0, IE_EX1};
use i8051::{Cpu, CpuView, MemoryMapper};

use super::host::Host;
use super::lockstep;
use super::recording::{Access, Event, Request, is_emulated, written};

/// What answers accesses to registers.
pub trait Registers {
    /// Answers a read by the instruction at `pc`; `None` if the rig answers it itself.
    fn read(&mut self, pc: u16, addr: u16) -> Option<u8>;

    fn write(&mut self, pc: u16, addr: u16, value: u8);
}

/// XDATA as the rig's CPU sees it. RAM and the second page are the rig's own.
struct RigXdata<R>(RefCell<(Vec<u8>, R)>);

impl<R> RigXdata<R> {
    fn new(registers: R) -> Self {
        // In the windows that the rig answered itself, its serial port was ready, and its flash always busy.
        let mut memory = vec![0; 0x2_0000];
        memory[0x7000..0x8000].fill(0xFF);
        memory[0xC009] = 0x60;
        Self(RefCell::new((memory, registers)))
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
        // The firmware waits until this start bit reads 0. The rig answered the other page itself.
        memory[index] = if index == 0x1_1238 { value & !0x01 } else { value };
        if index <= 0xFFFF {
            registers.write(pc, index as u16, value);
        }
    }
}

const RETI: u8 = 0x32;
/// The addresses of INT0's and INT1's vectors.
const VECTORS: [u16; 2] = [0x0003, 0x0013];

/// The rig's CPU. When the chip reported an interrupt to the rig, the CPU executed one more instruction and then took
/// the interrupt, whatever IE held. In an interrupt, XDATA was the main page. Source: `emulate/cpu.py` and
/// `emulate/emu.py` of tinygrad/asm2464pd-firmware, commits 8d04639 and 1ec8d2b. In the recording of 231204 the first
/// read in an interrupt is 33 or 34 cycles after the line that reports the interrupt, 28 times of 28: 32 for the
/// handler's first instructions, and 1 or 2 for the one before. The cycles counted here are those of that recording,
/// except in two waits in which the rig answered.
pub struct RigCpu<R: Registers> {
    cpu: Cpu,
    bus: CpuBus<RigXdata<R>>,
    /// Machine cycles since power-on, as the rig counted them.
    pub cycles: u64,
    /// Whether the chip has reported INT0, and INT1, and it has not begun.
    pending: [bool; 2],
    in_interrupt: bool,
    /// SFR 0x93, the XDATA page, when the interrupt began.
    page: u8,
}

impl<R: Registers> RigCpu<R> {
    pub fn new(image: &Image, registers: R) -> Self {
        let bus = CpuBus { sfrs: Sfrs::default(), xdata: RigXdata::new(registers), code: CodeSpace::new(image) };
        Self { cpu: Cpu::new(), bus, cycles: 0, pending: [false; 2], in_interrupt: false, page: 0 }
    }

    pub fn registers(&mut self) -> &mut R {
        &mut self.bus.xdata.0.get_mut().1
    }

    /// Makes INT0 or INT1 pending: the chip has reported it.
    pub fn raise(&mut self, number: u8) {
        self.pending[usize::from(number)] = true;
    }

    /// Executes an instruction, and then takes a pending interrupt. Returns whether the firmware has returned to the
    /// code that was interrupted. If the next interrupt follows at once, it has not, and the rig wrote no line for the
    /// RETI.
    pub fn step(&mut self) -> bool {
        let opcode = self.bus.code.byte(self.bus.sfrs.get(SFR_CODE_BANK) & 1, self.cpu.pc);
        self.cpu.step(&mut self.bus);
        self.cycles += machine_cycles(opcode);
        let is_end = opcode == RETI && std::mem::take(&mut self.in_interrupt);
        if is_end && self.page != 0 {
            self.bus.sfrs.set(SFR_XDATA_PAGE, self.page);
        }
        if !self.in_interrupt
            && let Some(number) = self.pending.iter().position(|is_pending| *is_pending)
        {
            (self.pending[number], self.in_interrupt) = (false, true);
            self.page = self.bus.sfrs.get(SFR_XDATA_PAGE);
            self.bus.sfrs.set(SFR_XDATA_PAGE, 0);
            self.cpu.push_stack16(self.cpu.pc);
            self.cpu.pc = VECTORS[number];
        }
        is_end && !self.in_interrupt
    }

    /// Starts again at the reset vector, as the CPU of a chip that was reset does.
    pub fn restart(&mut self) {
        (self.cpu, self.bus.sfrs, self.pending, self.in_interrupt) = (Cpu::new(), Sfrs::default(), [false; 2], false);
    }
}

/// Machine cycles of an instruction on the original 8051, which the rig counted.
fn machine_cycles(opcode: u8) -> u64 {
    match opcode {
        0x84 | 0xA4 => 4,
        0x02 | 0x12 | 0x22 | 0x32 | 0x10 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 | 0x70 | 0x80 => 2,
        0x43 | 0x53 | 0x63 | 0x72 | 0x82 | 0x92 | 0xA0 | 0xB0 | 0x73 | 0x83 | 0x93 | 0x75 | 0x90 | 0xA3 => 2,
        0x85..=0x8F | 0xA6..=0xAF | 0xB4..=0xBF | 0xC0 | 0xD0 | 0xD5 | 0xD8..=0xDF => 2,
        0xE0 | 0xE2 | 0xE3 | 0xF0 | 0xF2 | 0xF3 => 2,
        // AJMP and ACALL.
        _ if opcode & 0x1F == 0x01 || opcode & 0x1F == 0x11 => 2,
        _ => 1,
    }
}

/// Ticks after which the link is up. A tick is the time of an access, whether there is one or not.
const LINK_UP: usize = 800;
/// Ticks between an answer and the next request.
const REST: usize = 60;
/// The surroundings of the chip: its link, its board and its host.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub speed: Speed,
    /// Registers that differ on the board.
    pub board: &'a [(u16, u8)],
    /// Ticks between the status of a UAS command and the next request. With 0 the request comes before the firmware
    /// knows that the status was sent.
    pub rest: usize,
    /// Maximum number of UAS commands that the host has in progress at once.
    pub queue: usize,
}

impl Setting<'_> {
    /// A host that waits for each answer, and for [`REST`] after it.
    pub fn patient(speed: Speed) -> Self {
        Self { speed, board: &[], rest: REST, queue: 1 }
    }
}

/// Maximum number of ticks until an answer.
const PATIENCE: usize = 3_000;
/// Number of instructions without an access that count as a tick.
const TICK: u32 = 1_000;

/// The model in the place of the rig's chip.
struct Model {
    chip: Chip,
    host: Host,
    events: Vec<Event>,
    ticks: usize,
    /// Whether the registers request INT0, and INT1.
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

impl RigCpu<Model> {
    /// The interrupt that the chip reports, as far as the firmware's IE enables it.
    fn wanted(&mut self) -> Option<u8> {
        let (lines, ie) = (self.registers().lines, self.cpu.ie());
        let is_wanted = |number: &u8| {
            let enables = IE_EA | [IE_EX0, IE_EX1][usize::from(*number)];
            lines[usize::from(*number)] && ie & enables == enables
        };
        [0, 1].into_iter().find(|number| !self.in_interrupt && is_wanted(number))
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

/// Returns the rig's recording of this image, from reset, while the host sends these requests, and the requests that
/// were not answered.
pub fn record(image: &Image, setting: Setting<'_>, requests: &[Request]) -> (String, Vec<Request>) {
    let mut chip = lockstep::chip(setting.speed);
    for (addr, value) in setting.board {
        chip.poke(XdataAddress::main(*addr), &[*value]);
    }
    if requests.iter().any(|request| matches!(request, Request::Link { .. })) {
        chip.drive_link(0x9300, 0);
    }
    let model = Model { chip, host: Host::default(), events: Vec::new(), ticks: 0, lines: [false; 2], is_reset: false };
    let mut cpu = RigCpu::new(image, model);
    let mut events = Vec::new();
    let mut requests = requests.iter().peekable();
    let (mut unanswered, mut asked) = (Vec::new(), Vec::new());
    let (mut next_at, mut silence, mut last) = (0, 0, 0);
    loop {
        let model = cpu.registers();
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
        let is_queued = |request: &&Request| matches!(request, Request::Command { .. });
        if let Some(last) = asked.last()
            && model.host.is_answered()
            && model.host.commands == 0
        {
            next_at = model.ticks + if is_queued(last) { setting.rest } else { REST };
            asked.clear();
        }
        let has_room = model.host.requests == 0 && (1..setting.queue).contains(&model.host.commands);
        if model.ticks >= next_at || has_room && requests.peek().is_some_and(is_queued) {
            if !has_room {
                unanswered.extend(asked.drain(..).cloned());
                model.host.gives_up();
            }
            let Some(request) = requests.next() else { break };
            model.host.acts(&mut model.chip, request);
            asked.push(request);
            next_at = model.ticks + PATIENCE;
        }
        let began = cpu.cycles;
        if let Some(number) = cpu.wanted() {
            cpu.raise(number);
            events.push((began, Event::Interrupt(number)));
        }
        let has_returned = cpu.step();
        let model = cpu.registers();
        events.extend(model.events.drain(..).map(|event| (began, event)));
        if std::mem::take(&mut model.is_reset) {
            cpu.restart();
        }
        if has_returned {
            events.push((cpu.cycles, Event::Return));
        }
    }
    (written(&events), unanswered)
}
