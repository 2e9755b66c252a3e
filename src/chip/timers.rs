//! Four timers of six registers each, from 0xCC10 on.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xCC11 and every 6 after it: timer n's control. Write .2 stops it and clears all, .1 clears "over", .0 starts it;
/// read .1 is "over". Source: b0:0xE50D (start), b0:0xE80A (wait); open firmware's sleep.
const CONTROL: u16 = 0xCC11;
/// 0xCC12:0xCC13: the threshold, big-endian. Source: b0:0xE51E. 0xCC10 bits 2:0, the unit, has no effect here: what
/// the units are is not known.
const THRESHOLD: u16 = 0xCC12;

const STRIDE: u16 = 6;
const COUNT: usize = 4;
const START: u8 = 0x01;
const OVER: u8 = 0x02;
const STOP: u8 = 0x04;

/// Instructions a count of the threshold (chosen).
const INSTRUCTIONS_PER_COUNT: u64 = 10;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(0xCC10, 0xCC13, "TIMER0"),
    Register::range(0xCC16, 0xCC19, "TIMER1"),
    Register::range(0xCC1C, 0xCC1F, "TIMER2"),
    Register::range(0xCC22, 0xCC25, "TIMER3"),
];

#[derive(Debug, Default)]
pub(super) struct Timers {
    ends: [Option<u64>; COUNT],
    over: [bool; COUNT],
}

impl Timers {
    fn control(addr: u16) -> Option<usize> {
        let offset = addr.checked_sub(CONTROL)?;
        (offset % STRIDE == 0).then_some(usize::from(offset / STRIDE))
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        match Self::control(addr).and_then(|timer| self.over.get(timer)) {
            Some(over) => (stored & !OVER) | if *over { OVER } else { 0 },
            None => stored,
        }
    }

    /// `true` where a timer was started, stopped or cleared.
    pub(super) fn write(&mut self, addr: u16, value: u8, now: u64, memory: &mut XdataMemory) -> bool {
        let Some(timer) = Self::control(addr).filter(|timer| *timer < COUNT) else { return false };
        let before = (self.ends[timer], self.over[timer]);
        if value & (STOP | OVER) != 0 {
            (self.ends[timer], self.over[timer]) = (None, false);
        }
        let page = memory.main_mut();
        if value & STOP != 0 {
            page[usize::from(addr)] = 0;
        }
        if value & START != 0 {
            let threshold = usize::from(addr - CONTROL) + usize::from(THRESHOLD);
            let count = u64::from(u16::from_be_bytes([page[threshold], page[threshold + 1]]));
            self.ends[timer] = Some(now + count.max(1) * INSTRUCTIONS_PER_COUNT);
            self.over[timer] = false;
            page[usize::from(addr)] = value & !(STOP | OVER);
        }
        before != (self.ends[timer], self.over[timer])
    }

    /// The moment when the next timer is over.
    pub(super) fn next(&self) -> Option<u64> {
        self.ends.iter().flatten().copied().min()
    }

    /// Ends the timers whose time has come.
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
        assert_eq!(timers.read(0xCC17, START), START | OVER);
        assert_eq!(timers.read(0xCC11, 0), 0, "the others stand still");
        assert!(timers.write(0xCC17, OVER, 3_600, &mut memory));
        assert_eq!(timers.read(0xCC17, 0), 0);
        assert!(!timers.write(0xCC17, OVER, 3_600, &mut memory), "nothing is left to clear");
    }
}
