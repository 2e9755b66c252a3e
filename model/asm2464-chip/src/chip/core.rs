//! The chip itself: CPU, memories and blocks; the run loop; the loops of idle firmware, which it skips; and the clock
//! cycles that the work takes on silicon.
//!
//! Firmware that waits runs the same loop again and again. [`Schedule`] says when to look for such a loop, and
//! [`Snapshot`] recognises it: it ends where it began with the state unchanged, so it runs until something happens outside
//! the CPU, and the time until then is skipped. Without this, a second of the vendor's main loop costs 50 million
//! instructions. Passes of a wait that counts them are not skipped, they count as executed; but where nobody observes them,
//! many are carried out as one ([`Pass`]).

use std::fmt;
use std::ops::{Add, Sub};

use asm2464::firmware::CodeAddress;
use asm2464::scsi::XdataAddress;
use i8051::sfr::{IE_EA, IE_EX0, IE_EX1};
use i8051::{Cpu, Interrupt, Register};

use super::counting::{self, Pass};
use super::fabric::Fabric;
use super::map::UnknownAccess;
use super::peripherals::{Peripherals, Watch};
use super::reset::Board;
use super::usb::Speed;
use super::xdata::Xdata;
use crate::mcu::{CodeSpace, CpuBus, Observer, SFR_CODE_BANK, Sfrs, Step, XdataMemory};
use crate::spi_flash::SpiFlash;

/// Reasons [`Chip::run`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The firmware waits for the host. Nothing changes until the host acts, so further runs cost nothing.
    Parked,
    /// There is something new for the host: a packet, room for one, or the end of a control transfer.
    Attention,
    /// The budget is used up.
    Budget,
    /// The firmware has reset the chip (CC31.0). Nothing runs until [`Chip::restart`].
    Reset,
    /// The firmware has stopped for good: a jump to itself with interrupts off. Only a power cycle helps.
    Halted,
    /// The flash lost its power during an erase or a program. Nothing runs any more.
    FlashGone,
}

const RETI: u8 = 0x32;
/// What transfers take at least, in clocks of the SPI flash at 50 MHz and bytes of DMA at 3.2 GB/s to an instruction,
/// and in instructions to a request over PCIe, which takes a microsecond. No code shows the chip's own rates.
const SPI_CLOCKS: u64 = 1;
const DMA_BYTES: u64 = 64;
const ROUND_TRIP: u64 = 50;
/// Maximum number of timers that a firmware without news from the host may wait for in one run. A firmware that
/// restarts each expired timer would otherwise run forever.
const TIMERS_A_RUN: u32 = 1_000;

/// An ASM2464PD. It is powered on when it is created, runs in [`Chip::run`], and exchanges packets with the host in
/// [`Chip::begin_control`], [`Chip::bulk_out`], [`Chip::bulk_in`] and similar methods.
pub struct Chip {
    pub(super) cpu: Cpu,
    pub(super) bus: CpuBus<Xdata>,
    /// The firmware idles, and nothing has happened since.
    is_parked: bool,
    is_halted: bool,
    /// The CPU is in an interrupt, so none can begin.
    is_interrupted: bool,
    idle: Schedule,
    /// Simulated time that passed without executing instructions.
    skipped: u64,
    /// Clock cycles of the executed instructions, without idling.
    cycles: u64,
    /// Instructions executed in idle loops before the loops were recognised.
    idled: u64,
    /// Time up to which executed instructions are split into work and idling.
    worked_until: u64,
    stack_high_water: u8,
}

impl fmt::Debug for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_parked, is_halted, skipped, .. } = self;
        f.debug_struct("Chip")
            .field("pc", &format_args!("{:05X}", self.pc()))
            .field("is_parked", is_parked)
            .field("is_halted", is_halted)
            .field("skipped", skipped)
            .finish_non_exhaustive()
    }
}

impl Chip {
    /// The program counter, with the code bank in bit 16.
    pub fn pc(&self) -> u32 {
        u32::from(self.bus.sfrs.get(SFR_CODE_BANK) & 1) << 16 | u32::from(self.cpu.pc)
    }

    /// Where the CPU is; `None` outside code.
    pub fn at(&self) -> Option<CodeAddress> {
        CodeAddress::fetched(self.bus.sfrs.get(SFR_CODE_BANK) & 1, self.cpu.pc)
    }

    /// Powers on a chip with this flash, and with `code` already loaded as the ROM would. The chip is on the bus at
    /// `speed` as soon as its firmware answers.
    pub fn power_on(code: CodeSpace, flash: SpiFlash, speed: Speed) -> Self {
        let xdata = Xdata::new(Peripherals::new(flash, speed));
        Self {
            cpu: Cpu::new(),
            bus: CpuBus { sfrs: Sfrs::default(), xdata, code },
            is_parked: false,
            is_halted: false,
            is_interrupted: false,
            idle: Schedule::new(),
            skipped: 0,
            cycles: 0,
            idled: 0,
            worked_until: 0,
            stack_high_water: 0,
        }
    }

    /// Restarts with this code, after [`RunEnd::Reset`] or when the power returns. Everything is as at power-on except
    /// the board, the flash, the devices behind the bridge, the speed and the watch.
    #[must_use]
    pub fn restart(self, code: CodeSpace) -> Self {
        let board = self.bus.xdata.board();
        let Peripherals { flash, fabric, link, watch, .. } = self.bus.xdata.into_peripherals();
        let mut chip = Self::power_on(code, flash.flash, link.speed());
        chip.set_board(board);
        chip.bus.xdata.peripherals_mut().fabric = fabric;
        chip.set_watch(watch);
        chip
    }

    /// Resets the CPU and the blocks, after [`RunEnd::Reset`]. Code, XDATA, SRAM, flash, devices and the time stay:
    /// open firmware leaves in XDATA what it has to do after the reset.
    pub fn reset(&mut self) {
        self.cpu = Cpu::new();
        self.bus.sfrs = Sfrs::default();
        self.bus.xdata.reset();
        (self.is_halted, self.is_interrupted) = (false, false);
        self.idle = Schedule::new();
        self.changed();
    }

    /// Powers off the chip and returns its flash.
    pub fn power_off(self) -> SpiFlash {
        self.bus.xdata.into_peripherals().flash.flash
    }

    /// Runs for at most `budget` instructions.
    pub fn run(&mut self, budget: u64) -> RunEnd {
        self.run_observed(budget, &mut ())
    }

    /// Runs as [`Chip::run`] does, and shows each instruction to an observer before it is executed. Skips instructions
    /// of an idle loop that nothing can change.
    pub fn run_observed<O: Observer>(&mut self, budget: u64, observer: &mut O) -> RunEnd {
        let executed = self.instructions();
        let ends = executed.saturating_add(budget);
        let mut timers_left = TIMERS_A_RUN;
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.attention = false;
        loop {
            if let Some(outcome) = self.stopped() {
                return outcome;
            }
            let ends_at = ends.saturating_add(self.skipped);
            let (peripherals, memory) = self.bus.xdata.parts();
            peripherals.run_ends = ends_at.min(self.idle.at);
            peripherals.advance(memory);
            if peripherals.now >= ends_at {
                return RunEnd::Budget;
            }
            if self.is_parked {
                if timers_left == 0 {
                    return RunEnd::Parked;
                }
                let Some(at) = peripherals.next_event() else { return RunEnd::Parked };
                timers_left -= 1;
                self.skip_to(at);
                continue;
            }
            if peripherals.now >= self.idle.at {
                peripherals.run_ends = ends_at;
                peripherals.refresh();
                self.probe(observer);
                if observer.wants_to_stop() {
                    return RunEnd::Budget;
                }
                continue;
            }
            self.execute(observer);
            if observer.wants_to_stop() {
                return RunEnd::Budget;
            }
            let peripherals = self.bus.xdata.peripherals_mut();
            if peripherals.attention {
                peripherals.attention = false;
                self.idle.news(peripherals.now);
                return self.stopped().unwrap_or(RunEnd::Attention);
            }
        }
    }

    /// Executes until something other than the CPU needs attention.
    #[inline(always)]
    fn execute<O: Observer>(&mut self, observer: &mut O) {
        loop {
            let peripherals = self.bus.xdata.peripherals_mut();
            if peripherals.now >= peripherals.stop_at || self.is_parked {
                return;
            }
            self.step(observer);
            if observer.wants_to_stop() {
                return;
            }
        }
    }

    #[inline(always)]
    fn step<O: Observer>(&mut self, observer: &mut O) {
        let peripherals = self.bus.xdata.peripherals_mut();
        let number = peripherals.now;
        peripherals.now += 1;
        let was_interrupted = self.is_interrupted;
        // An interrupt's cause lasts for most of its handler, and the CPU's own check for nesting takes longer.
        if was_interrupted {
            // Interrupts do not nest.
        } else if peripherals.lines.int0() && self.cpu.ie() & (IE_EA | IE_EX0) == IE_EA | IE_EX0 {
            self.is_interrupted = self.cpu.interrupt(Interrupt::External0);
        } else if peripherals.lines.int1() && self.cpu.ie() & (IE_EA | IE_EX1) == IE_EA | IE_EX1 {
            self.is_interrupted = self.cpu.interrupt(Interrupt::External1);
        }
        let pc = self.cpu.pc;
        let bank = self.bus.sfrs.get(SFR_CODE_BANK) & 1;
        // A fetch outside code reads zeros, which are NOPs, and is not shown to the observer.
        if let Some(at) = CodeAddress::fetched(bank, pc) {
            let opcode = self.bus.code.byte(bank, pc);
            self.cycles += cycles(opcode);
            if was_interrupted && opcode == RETI {
                self.is_interrupted = false;
            }
            observer.before(&Step {
                at,
                number: number - self.skipped,
                now: number,
                cpu: &self.cpu,
                opcode,
                bank,
                code: &self.bus.code,
            });
        }
        if !self.cpu.step(&mut self.bus) {
            self.jumped_to_itself();
        }
        // Not `max`: builds without optimisation would call it once for each instruction, a quarter of their time.
        let sp = self.cpu.sp();
        if sp > self.stack_high_water {
            self.stack_high_water = sp;
        }
    }

    /// Handles `SJMP $`: the end of the run, or a wait for an interrupt.
    #[cold]
    fn jumped_to_itself(&mut self) {
        if self.cpu.ie() & IE_EA == 0 {
            self.is_halted = true;
        }
        self.is_parked = true;
    }

    /// Returns the reason why nothing can run, if there is one.
    fn stopped(&mut self) -> Option<RunEnd> {
        let peripherals = self.bus.xdata.peripherals_mut();
        if peripherals.flash.is_gone() {
            Some(RunEnd::FlashGone)
        } else if peripherals.link.is_reset() {
            Some(RunEnd::Reset)
        } else if self.is_halted {
            Some(RunEnd::Halted)
        } else {
            None
        }
    }

    /// Lets time pass until [`Chip::now`] is `until`, without executing instructions: for the replay of a recording, which
    /// makes the CPU's accesses in its place. Returns [`RunEnd::Budget`], or the reason why no time passes any more.
    pub fn pass_until(&mut self, until: u64) -> RunEnd {
        loop {
            if let Some(outcome) = self.stopped() {
                return outcome;
            }
            let peripherals = self.bus.xdata.peripherals_mut();
            if peripherals.now >= until {
                return RunEnd::Budget;
            }
            let next = peripherals.next_event().map_or(until, |at| at.clamp(peripherals.now + 1, until));
            self.skip_to(next);
        }
    }

    fn skip_to(&mut self, at: u64) {
        let (peripherals, memory) = self.bus.xdata.parts();
        let skipped = at.saturating_sub(peripherals.now);
        self.skipped += skipped;
        peripherals.timers.skip(skipped);
        peripherals.now += skipped;
        peripherals.advance(memory);
        self.wake();
    }

    /// Wakes the firmware after something that it may react to.
    pub(super) fn wake(&mut self) {
        self.is_parked = false;
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.timers.release();
        self.idle.news(peripherals.now);
    }

    /// Checks whether the firmware idles: whether it returns to the same instruction with the same state.
    #[cold]
    fn probe<O: Observer>(&mut self, observer: &mut O) {
        let before = Snapshot::of(&self.cpu, &self.bus.sfrs);
        let cycles = self.cycles;
        let sp = self.cpu.sp();
        let reach = self.idle.reach(sp);
        self.bus.xdata.begin_journal();
        let peripherals = self.bus.xdata.peripherals_mut();
        let (begin, changes, timers) = (peripherals.now, peripherals.changes, peripherals.timers.clone());
        // Events, news and the end of the run also end the check.
        let ends = (begin + reach).min(peripherals.stop_at);
        let can_repeat = !O::LOOKS && peripherals.watch.is_none();
        let mut pass = Pass::new();
        let idles = loop {
            pass.push(self.cpu.pc);
            self.step(observer);
            let peripherals = self.bus.xdata.peripherals_mut();
            let is_over = peripherals.changes != changes || peripherals.now >= ends;
            if self.is_parked || is_over || observer.wants_to_stop() {
                break false;
            }
            let passed = peripherals.now - begin;
            if before.is_met_again(&self.cpu, &self.bus.sfrs)
                && self.bus.xdata.is_as_before()
                && self.bus.xdata.peripherals_mut().timers.are_again(&timers, passed)
            {
                break true;
            }
            if can_repeat
                && let Some(counter) = before.counter(&self.cpu, &self.bus.sfrs)
                && pass.only_counts(&self.bus.code, self.bus.sfrs.get(SFR_CODE_BANK), counter & 7)
            {
                self.repeat(passed, self.cycles - cycles, counter);
                self.bus.xdata.end_journal();
                return;
            }
            if self.bus.xdata.has_lost_count() {
                break false;
            }
        };
        self.bus.xdata.end_journal();
        let now = self.bus.xdata.peripherals_mut().now;
        if idles {
            self.is_parked = true;
            self.bus.xdata.peripherals_mut().timers.hold_restarted(&timers);
            self.idle.found(now - begin, sp);
            self.forget_idling(now - begin, self.cycles - cycles);
        } else {
            self.idle.not_found(reach, now);
        }
    }

    /// Executes a pass of `len` instructions and `cycles` clock cycles again, until its counter is about to become 0 or
    /// something may happen. It only counts: the caller has checked that.
    fn repeat(&mut self, len: u64, cycles: u64, counter: u8) {
        let count = &mut self.cpu.internal_ram[usize::from(counter)];
        let peripherals = self.bus.xdata.peripherals_mut();
        let passes = u64::from(u8::MAX - *count).min(peripherals.stop_at.saturating_sub(peripherals.now) / len);
        *count += passes as u8;
        peripherals.now += passes * len;
        self.cycles += passes * cycles;
        self.idle.counted(peripherals.now);
    }

    /// Records that the firmware idles in a loop of `len` instructions and `cycles` clock cycles. The rounds since the
    /// last change do not count as work.
    fn forget_idling(&mut self, len: u64, cycles: u64) {
        let peripherals = self.bus.xdata.peripherals_mut();
        let idled = peripherals.now - peripherals.changed_at.max(self.worked_until);
        self.worked_until = peripherals.now;
        self.idled += idled;
        self.cycles -= (idled * cycles / len.max(1)).min(self.cycles);
    }

    /// Instructions executed since power-on, without those skipped in idle loops.
    pub fn instructions(&mut self) -> u64 {
        self.bus.xdata.peripherals_mut().now - self.skipped
    }

    /// Time that the transfers since power-on take on silicon at least, in instructions. The model carries them out at
    /// once, so they pass without it.
    pub(super) fn transfers(&mut self) -> u64 {
        let Peripherals { fabric, dma, flash, .. } = self.bus.xdata.peripherals_mut();
        flash.clocks / SPI_CLOCKS + fabric.round_trips() * ROUND_TRIP + dma.moved() / DMA_BYTES
    }

    /// The chip's work since power-on.
    pub fn work(&mut self) -> Work {
        let instructions = self.instructions() - self.idled;
        let Peripherals { fabric, dma, .. } = self.bus.xdata.peripherals_mut();
        Work { instructions, cycles: self.cycles, round_trips: fabric.round_trips(), dma_bytes: dma.moved() }
    }

    /// Simulated time since power-on, in instructions: the executed ones, and those that an idle firmware would have
    /// spent waiting for its timers.
    pub fn now(&mut self) -> u64 {
        self.bus.xdata.peripherals_mut().now
    }

    /// Whether the unit is on the bus: the firmware has connected it (92C2.6 or 91C0.1 clear), and has not stopped.
    pub fn is_on_bus(&mut self) -> bool {
        self.stopped().is_none() && !self.bus.xdata.peripherals_mut().link.is_off_bus()
    }

    /// Whether the firmware has read the state of the PCIe link since power-on.
    pub(super) fn has_asked_for_link(&mut self) -> bool {
        self.bus.xdata.peripherals_mut().has_asked_for_link
    }

    /// Whether the firmware lets the link train at SuperSpeed (CC30.0). A reset of the chip keeps it.
    pub fn may_train_super_speed(&mut self) -> bool {
        self.bus.xdata.peripherals_mut().link.may_train()
    }

    /// The highest SP since power-on.
    pub fn stack_high_water(&self) -> u8 {
        self.stack_high_water
    }

    /// The CPU's registers and IDATA.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The code memory.
    pub fn code(&self) -> &CodeSpace {
        &self.bus.code
    }

    /// Both pages of XDATA's memory, without the registers' state and without the SRAM behind its window.
    pub fn memory(&self) -> &XdataMemory {
        self.bus.xdata.memory()
    }

    /// Reads a byte of XDATA as the CPU would, without side effects.
    pub fn peek(&self, at: XdataAddress) -> u8 {
        self.bus.xdata.peek(at)
    }

    /// Writes bytes into XDATA as the CPU would, but neither the watch nor [`Chip::unknown_registers`] gets the access.
    /// The bytes wrap from 0xFFFF to 0x0000.
    pub fn poke(&mut self, at: XdataAddress, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().enumerate() {
            self.bus.xdata.poke(XdataAddress { addr: at.addr.wrapping_add(offset as u16), ..at }, *byte);
        }
        self.changed();
    }

    /// The SRAM.
    pub fn sram(&mut self) -> &[u8] {
        self.bus.xdata.peripherals_mut().sram.bytes()
    }

    /// The SRAM, mutable. PCIe devices reach it at 0x00200000.
    pub fn sram_mut(&mut self) -> &mut [u8] {
        self.wake();
        self.bus.xdata.peripherals_mut().sram.bytes_mut()
    }

    /// The flash.
    pub fn flash(&mut self) -> &SpiFlash {
        &self.bus.xdata.peripherals_mut().flash.flash
    }

    /// The flash, mutable.
    pub fn flash_mut(&mut self) -> &mut SpiFlash {
        &mut self.bus.xdata.peripherals_mut().flash.flash
    }

    /// Sets what differs between boards. Call it before the firmware runs.
    pub fn set_board(&mut self, board: Board) {
        self.bus.xdata.set_board(board);
    }

    /// The devices behind the bridge.
    pub fn fabric_mut(&mut self) -> &mut Fabric {
        self.wake();
        &mut self.bus.xdata.peripherals_mut().fabric
    }

    /// Takes the bytes that the firmware has sent on its serial port since the last call, at most the first 64 KiB.
    /// [`Chip::uart_lost`] counts the rest.
    pub fn take_uart(&mut self) -> Vec<u8> {
        self.bus.xdata.peripherals_mut().uart.take()
    }

    /// Number of serial port bytes that were dropped because they were not taken in time.
    pub fn uart_lost(&mut self) -> u64 {
        self.bus.xdata.peripherals_mut().uart.lost()
    }

    /// The unmodelled registers that the firmware touched, in the order of their first access.
    pub fn unknown_registers(&mut self) -> &[UnknownAccess] {
        self.bus.xdata.peripherals_mut().unknown.list()
    }

    /// Watches registers, wire and serial port from now on; `None` ends it. Returns the previous watch.
    pub fn set_watch(&mut self, watch: Option<Box<dyn Watch>>) -> Option<Box<dyn Watch>> {
        self.bus.xdata.set_watch(watch)
    }
}

/// Instructions from news (an event that firmware may react to) to the first check, and from one check to the next.
const PAUSE: u64 = 512;
/// Maximum pause between two long checks that find nothing.
const LONGEST_PAUSE: u64 = 1 << 16;
/// Maximum number of instructions in one pass through a loop: a main loop (image 240417's has some 700), and a wait for
/// a register anywhere.
const MAIN_LOOP: u64 = 4_096;
const WAIT_LOOP: u64 = 64;
/// Stack depth in bytes up to which code counts as a main loop's subroutine and not as an interrupt handler.
const SUBROUTINES: u8 = 8;

/// Decides when to check whether the firmware idles, and for how many instructions. A check costs more than plain
/// execution, so a long one is made only if the stack is about as low as in the main loop.
struct Schedule {
    /// Time of the next check.
    pub(super) at: u64,
    pause: u64,
    /// SP when the firmware was last found in its main loop.
    main_sp: u8,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { at: PAUSE, pause: PAUSE, main_sp: u8::MAX }
    }

    /// Postpones the check: after news, firmware is not idle for a while.
    pub(super) fn news(&mut self, now: u64) {
        (self.at, self.pause) = (now + PAUSE, PAUSE);
    }

    /// Number of instructions to check, with the stack at `sp`.
    pub(super) fn reach(&self, sp: u8) -> u64 {
        if sp <= self.main_sp.saturating_add(SUBROUTINES) { MAIN_LOOP } else { WAIT_LOOP }
    }

    /// Records that the firmware idles in a loop of `len` instructions with the stack at `sp`.
    pub(super) fn found(&mut self, len: u64, sp: u8) {
        if len > WAIT_LOOP {
            self.main_sp = sp;
        }
    }

    /// Records that the firmware waits in a loop that counts. The next pass but few is like it again.
    fn counted(&mut self, now: u64) {
        (self.at, self.pause) = (now + counting::MOST as u64, PAUSE);
    }

    /// Records that a check of `reach` instructions found no idle loop.
    fn not_found(&mut self, reach: u64, now: u64) {
        self.at = now + self.pause;
        if reach == MAIN_LOOP {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }
}

/// The CPU's state at a moment. Memory and blocks are watched separately: by the journal of writes and by the count of
/// changes.
struct Snapshot {
    pc: u16,
    registers: [u16; 8],
    internal_ram: [u8; 256],
    sfrs: Sfrs,
}

impl Snapshot {
    pub(super) fn of(cpu: &Cpu, sfrs: &Sfrs) -> Self {
        Self { pc: cpu.pc, registers: registers(cpu), internal_ram: cpu.internal_ram, sfrs: sfrs.clone() }
    }

    /// Whether the CPU is in this state again.
    #[inline(always)]
    fn is_met_again(&self, cpu: &Cpu, sfrs: &Sfrs) -> bool {
        self.pc == cpu.pc
            && self.registers == registers(cpu)
            && self.internal_ram == cpu.internal_ram
            && self.sfrs == *sfrs
    }

    /// The address of the counter, if the CPU is in this state again but for a register of the selected bank that is
    /// greater by 1.
    #[inline(always)]
    fn counter(&self, cpu: &Cpu, sfrs: &Sfrs) -> Option<u8> {
        if self.pc != cpu.pc || self.registers != registers(cpu) || self.sfrs != *sfrs {
            return None;
        }
        let bank = cpu.register(Register::PSW) as u8 & 0x18;
        let counter =
            (bank..bank + 8).find(|at| cpu.internal_ram[usize::from(*at)] != self.internal_ram[usize::from(*at)])?;
        let mut counted = self.internal_ram;
        counted[usize::from(counter)] = counted[usize::from(counter)].checked_add(1)?;
        (counted == cpu.internal_ram).then_some(counter)
    }
}

fn registers(cpu: &Cpu) -> [u16; 8] {
    use Register::{A, B, DPTR, IE, IP, PC, PSW, SP};
    [A, B, DPTR, PSW, SP, IP, IE, PC].map(|register| cpu.register(register))
}

/// Clock cycles of each opcode, measured on the ASM3242; the ASM2142 takes the same. None are published for the
/// ASM2464PD. Source: cyrozap's 8051-timing-db (CC0). It lacks A5, which no compiler emits, and RETI. RETI's 4 cycles
/// are those of the STC-Y5, whose other cycles are the same except for MOVX.
#[rustfmt::skip]
static CYCLES: [u8; 256] = [
    1, 3, 4, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 00
    5, 4, 4, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 10
    5, 3, 4, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 20
    5, 4, 4, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 30
    3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 40
    3, 4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 50
    4, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 60
    4, 4, 2, 5, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, // 70
    3, 3, 2, 4, 6, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 80
    3, 4, 3, 5, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 90
    2, 3, 2, 1, 2, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, // A0
    2, 4, 3, 1, 4, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4, // B0
    3, 3, 3, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // C0
    2, 4, 3, 1, 3, 5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, // D0
    4, 3, 5, 5, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // E0
    4, 4, 5, 5, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // F0
];

/// The CPU's clock in MHz. Source: open firmware's README, which says "about".
pub const CLOCK_MHZ: u32 = 114;

/// Clock cycles of an instruction.
#[inline(always)]
pub fn cycles(opcode: u8) -> u64 {
    u64::from(CYCLES[usize::from(opcode)])
}

/// A chip's work since power-on, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Executed instructions, without those of an idle firmware's main loop.
    pub instructions: u64,
    /// Clock cycles of those instructions.
    pub cycles: u64,
    /// Requests to devices behind the bridge whose completion the firmware waited for.
    pub round_trips: u64,
    /// Bytes that the SRAM's DMA moved.
    pub dma_bytes: u64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            round_trips: self.round_trips + other.round_trips,
            dma_bytes: self.dma_bytes + other.dma_bytes,
        }
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            cycles: self.cycles.saturating_sub(earlier.cycles),
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            dma_bytes: self.dma_bytes.saturating_sub(earlier.dma_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_those_that_were_measured() {
        // MOVX A,@DPTR; INC DPTR; MUL AB; DIV AB; LCALL; SJMP; CJNE A,#; DJNZ R0; MOVC; JB; ADD A,R7; RETI.
        let opcodes = [0xE0, 0xA3, 0xA4, 0x84, 0x12, 0x80, 0xB4, 0xD8, 0x93, 0x20, 0x2F, 0x32];
        assert_eq!(opcodes.map(cycles), [4, 1, 2, 6, 4, 3, 4, 4, 5, 5, 1, 4]);
    }
}
