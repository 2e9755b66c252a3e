//! Five timers: four of six registers each, from 0xCC10 on, and one at 0xCC5C.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xCC11 and every 6 after it, and 0xCC5D: timer n's control. Write .2 stops it and clears all, .1 clears "expired",
/// .0 starts it; read .1 is "expired", .0 "running". Source: b0:0xE50D (start), b0:0xE80A (wait); c:0x30CD and
/// b0:0xE30E test .0 first, then .1; open firmware's sleep.
const CONTROLS: [u16; COUNT] = [0xCC11, 0xCC17, 0xCC1D, 0xCC23, 0xCC5D];
const COUNT: usize = 5;
const START: u8 = 0x01;
const OVER: u8 = 0x02;
const STOP: u8 = 0x04;

/// Instructions for a count of the threshold, in the smallest unit (chosen).
const INSTRUCTIONS_PER_COUNT: u64 = 10;
/// Ratio of one time unit to the one below; bits 2:0 of the register before the control select the unit (chosen). While
/// an SSD starts, c:0x30CD gives TIMER2 139 counts of unit 6, and b0:0x9037 counts up to 28 rounds of TIMER4, 199
/// counts of unit 4 each: a unit is at least 6.4 times the one below.
const UNIT_STEP: u64 = 10;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(0xCC10, 0xCC13, "TIMER0"),
    Register::range(0xCC16, 0xCC19, "TIMER1"),
    Register::range(0xCC1C, 0xCC1F, "TIMER2"),
    Register::range(0xCC22, 0xCC25, "TIMER3"),
    Register::range(0xCC5C, 0xCC5F, "TIMER4"),
];

#[derive(Debug, Default)]
pub(super) struct Timers {
    ends: [Option<u64>; COUNT],
    over: [bool; COUNT],
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

    /// Handles a write by the CPU. Returns `true` if a timer was started, stopped or cleared.
    pub(super) fn write(&mut self, addr: u16, value: u8, now: u64, memory: &mut XdataMemory) -> bool {
        let Some(timer) = Self::control(addr) else { return false };
        let before = (self.ends[timer], self.over[timer]);
        if value & (STOP | OVER) != 0 {
            (self.ends[timer], self.over[timer]) = (None, false);
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
            self.ends[timer] = Some(now + count.max(1) * INSTRUCTIONS_PER_COUNT * UNIT_STEP.pow(unit));
            self.over[timer] = false;
            page[usize::from(addr)] = value & !(STOP | OVER);
        }
        before != (self.ends[timer], self.over[timer])
    }

    /// Time at which the next timer expires.
    pub(super) fn next(&self) -> Option<u64> {
        self.ends.iter().flatten().copied().min()
    }

    /// Expires the timers that are due.
    pub(super) fn advance(&mut self, now: u64) {
        for (end, over) in self.ends.iter_mut().zip(&mut self.over) {
            if end.is_some_and(|at| at <= now) {
                (*end, *over) = (None, true);
            }
        }
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
        assert_eq!(timers.next(), Some(1_000 + 2_560));
        assert_eq!(timers.read(0xCC17, START), START);
        timers.advance(3_560);
        assert_eq!(timers.read(0xCC17, START), OVER);
        assert_eq!(timers.read(0xCC11, 0), 0, "the others stand still");
        assert!(timers.write(0xCC17, OVER, 3_600, &mut memory));
        assert_eq!(timers.read(0xCC17, 0), 0);
        assert!(!timers.write(0xCC17, OVER, 3_600, &mut memory), "nothing is left to clear");
    }

    #[test]
    fn a_timer_of_a_larger_unit_takes_longer() {
        let mut memory = XdataMemory::new();
        let mut timers = Timers::default();
        memory.main_mut()[0xCC5C..0xCC60].copy_from_slice(&[0xFA, 0, 0, 3]);
        timers.write(0xCC5D, START, 5, &mut memory);
        assert_eq!(timers.next(), Some(5 + 3_000));
    }
}
