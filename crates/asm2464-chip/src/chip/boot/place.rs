//! Where a firmware is that gives no answer.

use std::fmt;

use asm2464::firmware::CodeAddress;

use crate::chip::core::Chip;
use crate::mcu::{Observer, SpiFlash, Step};

/// Instructions to watch for the loop: longer than any loop that a person would look for by its ends.
const WATCHED: u64 = 100_000;

/// Code from its first instruction to its last: the one at which the CPU stands, or the loop that it does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePlace {
    /// Address of the first instruction.
    pub first: CodeAddress,
    /// Address of the last instruction.
    pub last: CodeAddress,
}

impl CodePlace {
    /// The instruction at which the CPU is; `None` outside code.
    pub(super) fn of<F>(chip: &Chip<F>) -> Option<Self> {
        chip.at().map(|at| Self { first: at, last: at })
    }

    /// Runs on, and finds the loop that the firmware does not leave; `None` if it executes no code.
    pub(super) fn looping<F: SpiFlash>(chip: &mut Chip<F>) -> Option<Self> {
        let mut outermost = Outermost { sp: u8::MAX, place: None };
        chip.run_observed(WATCHED, &mut outermost);
        outermost.place.or_else(|| Self::of(chip))
    }
}

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        match first == last {
            true => first.fmt(f),
            false if first.bank() == last.bank() => write!(f, "{first}..0x{:04X}", last.addr()),
            false => write!(f, "{first}..{last}"),
        }
    }
}

/// The instructions executed with the least on the stack. What the loop calls, and interrupts, have more on it.
struct Outermost {
    sp: u8,
    place: Option<CodePlace>,
}

impl Observer for Outermost {
    fn before(&mut self, step: &Step<'_>) {
        let (sp, at) = (step.cpu.sp(), step.at);
        match &mut self.place {
            Some(place) if sp == self.sp => {
                *place = CodePlace { first: place.first.min(at), last: place.last.max(at) };
            }
            Some(_) if sp > self.sp => {}
            place => (self.sp, *place) = (sp, Some(CodePlace { first: at, last: at })),
        }
    }
}
