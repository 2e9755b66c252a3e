//! The four timers, and the interrupt lines.
//!
//! INT0 is level-triggered: while a source is on, the CPU enters 0x0003 as soon as interrupts are enabled. INT1, which
//! serves the timers of the USB-C side, is level-triggered, too.

use std::time::Duration;

use super::map::Register;
use crate::mcu::XdataMemory;

/// Each timer's control. Write .2 stops it and clears all, .1 clears "expired", .0 starts it; read .1 is "expired", .0
/// "running". Source: b0:0xE50D (start), b0:0xE80A (wait); c:0x30CD and b0:0xE30E test .0 first, then .1; open
/// firmware's sleep. From 0xCC81 on: 240417 starts them in the same way (b0:0xE330, 0xE352, 0x95BF, 0x955F, 0xE726),
/// and on silicon they also read 02, "expired" (recording of 231204 from reset, lines 1572 and 2103).
const CONTROLS: [u16; COUNT] =
    [0xCC11, 0xCC17, 0xCC1D, 0xCC23, 0xCC5D, 0xCC81, 0xCC89, 0xCC91, 0xCC99, 0xCCD9, 0xCCF9, 0xCD31];
const COUNT: usize = 12;
/// The timers that interrupt: those that the handler of 0xC806.0 checks (b0:0xB4BA-0xB56F). In the recording, CC91 = 02
/// came with C806 = 01 and INT1 (line 2100).
const INTERRUPTING: [u16; 6] = [0xCC23, 0xCC81, 0xCC91, 0xCC99, 0xCCD9, 0xCCF9];
const START: u8 = 0x01;
const OVER: u8 = 0x02;
const STOP: u8 = 0x04;

/// Half instructions per count of the threshold, in the smallest unit. 231204 prints "1 sec time out" after 200
/// counts of unit 5, and open firmware counts 0.5 ms in unit 4, so unit 0 is 50 ns: 5.7 clock cycles at 114 MHz, or 2.5
/// instructions of 2.3 cycles.
const HALF_INSTRUCTIONS_PER_COUNT: u64 = 5;
/// Instructions in a second of simulated time: the vendor's second, as above.
pub(super) const SECOND: u64 = 50_000_000;

/// The simulated time that this many instructions take.
pub(super) const fn simulated(instructions: u64) -> Duration {
    Duration::from_micros(instructions / (SECOND / 1_000_000))
}

/// Ratio of one time unit to the one below; bits 2:0 of the register before the control select the unit. The two waits
/// above fit no other ratio.
const UNIT_STEP: u64 = 10;

pub(super) const TIMER_REGISTERS: &[Register] = &[
    Register::range(0xCC10, 0xCC13, "TIMER0"),
    Register::range(0xCC16, 0xCC19, "TIMER1"),
    Register::range(0xCC1C, 0xCC1F, "TIMER2"),
    Register::range(0xCC22, 0xCC25, "TIMER3"),
    Register::range(0xCC5C, 0xCC5F, "TIMER4"),
    Register::range(0xCC80, 0xCC83, "TIMER5"),
    Register::range(0xCC88, 0xCC8B, "TIMER6"),
    Register::range(0xCC90, 0xCC93, "TIMER7"),
    Register::range(0xCC98, 0xCC9B, "TIMER8"),
    Register::range(0xCCD8, 0xCCDB, "TIMER9"),
    Register::range(0xCCF8, 0xCCFB, "TIMER10"),
    Register::range(0xCD30, 0xCD33, "TIMER11"),
];

#[derive(Debug, Default, Clone)]
pub(super) struct Timers {
    ends: [Option<u64>; COUNT],
    over: [bool; COUNT],
    /// Instructions from the start to the end, of a timer that runs or was stopped before its end; else 0.
    lengths: [u64; COUNT],
    /// Timers that an idle loop restarts before their end, again and again.
    held: [bool; COUNT],
    /// The earliest of `ends`, without the timers that are held.
    next: Option<u64>,
}

impl Timers {
    fn control(addr: u16) -> Option<usize> {
        CONTROLS.iter().position(|control| *control == addr)
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        let Some(timer) = Self::control(addr) else { return stored };
        let runs = if self.ends[timer].is_some() { START } else { 0 };
        (stored & !(START | OVER)) | runs | if self.over[timer] { OVER } else { 0 }
    }

    /// Handles a write by the CPU. Returns `true` if a timer was started or cleared. To stop a timer before its end,
    /// and to restart it then with the same length, does not count: while a command waits for a device, the vendor's
    /// main loop does both in each pass (b0:0xC7C2-0xC7CC).
    pub(super) fn write(&mut self, addr: u16, value: u8, now: u64, memory: &mut XdataMemory) -> bool {
        let Some(timer) = Self::control(addr) else { return false };
        let mut did = false;
        if value & (STOP | OVER) != 0 {
            self.ends[timer] = None;
            did = std::mem::take(&mut self.over[timer]);
        }
        let page = memory.main_mut();
        if value & STOP != 0 {
            page[usize::from(addr)] = 0;
        }
        if value & START != 0 {
            let at = usize::from(addr);
            // The unit is in the register before the control, the threshold in those behind it, big-endian. Source:
            // b0:0xE51E.
            let unit = u32::from(page[at - 1] & 0x07);
            let count = u64::from(u16::from_be_bytes([page[at + 1], page[at + 2]]));
            let halves = count.max(1) * HALF_INSTRUCTIONS_PER_COUNT * UNIT_STEP.pow(unit);
            let length = halves.div_ceil(2);
            did |= self.lengths[timer] != length;
            (self.ends[timer], self.over[timer], self.lengths[timer]) = (Some(now + length), false, length);
            page[usize::from(addr)] = value & !(STOP | OVER);
        }
        self.find_next();
        did
    }

    fn find_next(&mut self) {
        let running = self.ends.iter().zip(self.held).filter(|(_, held)| !held);
        self.next = running.filter_map(|(end, _)| *end).min();
    }

    /// Whether the timers are as they were `passed` instructions ago: each running timer ends at the same time as then,
    /// or was restarted and has as long to go as then.
    pub(super) fn are_again(&self, before: &Self, passed: u64) -> bool {
        let mut ends = self.ends.iter().zip(&before.ends);
        self.over == before.over && ends.all(|(end, before)| end == before || *end == before.map(|at| at + passed))
    }

    /// Keeps the timers that were restarted since `before` from expiring, until [`Timers::release`]: the firmware
    /// idles, and restarts them in each round.
    pub(super) fn hold_restarted(&mut self, before: &Self) {
        for (held, (end, before)) in self.held.iter_mut().zip(self.ends.iter().zip(&before.ends)) {
            *held = end != before;
        }
        self.find_next();
    }

    /// Lets `instructions` of an idle firmware pass: the timers that it restarts have as long to go as before.
    pub(super) fn skip(&mut self, instructions: u64) {
        for (end, _) in self.ends.iter_mut().zip(self.held).filter(|(_, held)| *held) {
            *end = end.map(|at| at + instructions);
        }
    }

    /// Lets all timers run again.
    pub(super) fn release(&mut self) {
        self.held = [false; COUNT];
        self.find_next();
    }

    /// Time at which the next timer expires.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Whether a timer that interrupts has expired.
    pub(super) fn interrupts(&self) -> bool {
        CONTROLS.iter().zip(self.over).any(|(control, over)| over && INTERRUPTING.contains(control))
    }

    /// Expires the timers that are due.
    pub(super) fn advance(&mut self, now: u64) {
        for timer in 0..COUNT {
            if !self.held[timer] && self.ends[timer].is_some_and(|at| at <= now) {
                (self.ends[timer], self.over[timer], self.lengths[timer]) = (None, true, 0);
            }
        }
        self.find_next();
    }
}

/// 0xC800: enables bits of 0xC802. Source: the vendor's start-up sets .2 and .0 (c:0x4C15, c:0x541D). Open firmware
/// sets only .0 and never takes the DMA's events, which would interrupt it forever. 00 at power-on (recording of
/// 231204, line 690). Here .2 also enables 0xC806.5 (chosen: open firmware never takes that event either).
pub(super) const ENABLES: u16 = 0xC800;
/// 0xC802, read-only: .0 the USB controller (0x9101 is not 0), .2 a UAS command or a DMA event. INT0 is active while a
/// bit that 0xC800 enables is set. Source: c:0x0E78, c:0x110D; open firmware's INT0.
const SOURCES: u16 = 0xC802;
/// 0xC806, read-only: .5 the NVMe completion queue, INT0; .0 an expired timer, INT1. Source: c:0x10E0 (.5), c:0x4486
/// (.0); 01 in the recording of 231204 at INT1, with CC91 = 02 (line 2101). .4 is INT1 too, and never set here: its
/// source is not known.
const MORE_SOURCES: u16 = 0xC806;

pub(super) const INTERRUPT_REGISTERS: &[Register] = &[
    Register::one(ENABLES, "INT_ENABLES"),
    Register::one(SOURCES, "INT_SOURCES"),
    Register::one(MORE_SOURCES, "INT_SOURCES_2"),
];

const USB: u8 = 0x01;
const COMMAND_OR_DMA: u8 = 0x04;

/// Inputs of the interrupt block from the other blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct InterruptLines {
    pub(super) enables: u8,
    pub(super) usb: bool,
    pub(super) command_or_dma: bool,
    pub(super) completion: bool,
    pub(super) timer: bool,
}

impl InterruptLines {
    #[inline(always)]
    fn sources(self) -> u8 {
        (if self.usb { USB } else { 0 }) | (if self.command_or_dma { COMMAND_OR_DMA } else { 0 })
    }

    pub(super) fn read(self, addr: u16) -> u8 {
        match addr {
            ENABLES => self.enables,
            SOURCES => self.sources(),
            _ => u8::from(self.completion) << 5 | u8::from(self.timer),
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> bool {
        addr == ENABLES && std::mem::replace(&mut self.enables, value) != value
    }

    #[inline(always)]
    pub(super) fn int0(self) -> bool {
        self.sources() & self.enables != 0 || (self.completion && self.enables & COMMAND_OR_DMA != 0)
    }

    /// No enable bit for INT1 is known in this block.
    #[inline(always)]
    pub(super) fn int1(self) -> bool {
        self.timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_over_after_its_threshold_and_until_it_is_cleared() {
        let mut memory = XdataMemory::new();
        let mut timers = Timers::default();
        memory.main_mut()[0xCC18..0xCC1A].copy_from_slice(&[0x01, 0x00]);
        assert!(timers.write(0xCC17, START, 1_000, &mut memory));
        assert_eq!(timers.next(), Some(1_000 + 640));
        assert_eq!(timers.read(0xCC17, START), START);
        timers.advance(1_640);
        assert_eq!(timers.read(0xCC17, START), OVER);
        assert_eq!(timers.read(0xCC11, 0), 0, "the others stand still");
        assert!(timers.write(0xCC17, OVER, 1_700, &mut memory));
        assert_eq!(timers.read(0xCC17, 0), 0);
        assert!(!timers.write(0xCC17, OVER, 1_700, &mut memory), "nothing is left to clear");
    }

    #[test]
    fn a_timer_of_a_larger_unit_takes_longer() {
        let mut memory = XdataMemory::new();
        let mut timers = Timers::default();
        memory.main_mut()[0xCC5C..0xCC60].copy_from_slice(&[0xFB, 0, 0, 3]);
        timers.write(0xCC5D, START, 5, &mut memory);
        assert_eq!(timers.next(), Some(5 + 7_500));
    }

    #[test]
    fn a_timer_that_each_round_of_a_loop_restarts_is_no_change_and_never_ends() {
        let mut memory = XdataMemory::new();
        let mut timers = Timers::default();
        memory.main_mut()[0xCD32..0xCD34].copy_from_slice(&[0, 199]);
        memory.main_mut()[0xCC18..0xCC1A].copy_from_slice(&[0x10, 0]);
        assert!(timers.write(0xCC17, START, 0, &mut memory));
        let mut round =
            |timers: &mut Timers, now| [STOP, OVER, START].map(|value| timers.write(0xCD31, value, now, &mut memory));
        assert_eq!(round(&mut timers, 1_000), [false, false, true]);
        let before = timers.clone();
        assert_eq!(round(&mut timers, 1_300), [false; 3]);
        assert!(timers.are_again(&before, 300) && !timers.are_again(&before, 299));
        timers.hold_restarted(&before);
        assert_eq!(timers.next(), Some(10_240), "the other one still runs");
        timers.skip(8_940);
        timers.advance(10_240);
        assert_eq!((timers.read(0xCC17, 0), timers.read(0xCD31, 0)), (OVER, START));
        timers.release();
        assert_eq!(timers.next(), Some(1_300 + 498 + 8_940));
    }

    #[test]
    fn two_hundred_counts_of_unit_5_are_the_vendors_second_and_interrupt() {
        let mut memory = XdataMemory::new();
        let mut timers = Timers::default();
        memory.main_mut()[0xCC90..0xCC94].copy_from_slice(&[0x05, 0, 0, 200]);
        timers.write(0xCC91, START, 0, &mut memory);
        assert_eq!(timers.next(), Some(SECOND), "114 MHz, 2.3 cycles an instruction");
        assert!(!timers.interrupts());
        timers.advance(50_000_000);
        assert!(timers.interrupts());
        timers.write(0xCC91, OVER, 50_000_001, &mut memory);
        assert!(!timers.interrupts());
        timers.write(0xCC11, START, 0, &mut memory);
        timers.advance(100);
        assert!(!timers.interrupts(), "a timer that firmware polls");
    }
}
