//! Why an image failed a check, and where its firmware was if it gave no answer.

use std::fmt;

use asm2464::firmware::CodeAddress;

use crate::chip::core::{Chip, RunEnd};
use crate::chip::driver::Unanswered;
use crate::mcu::{Observer, SpiFlash, Step};

/// Reasons a check failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootFault {
    /// The image did not answer.
    Hung {
        /// How the run ended.
        outcome: RunEnd,
        /// Where the CPU is: an instruction, or the loop that it does not leave.
        at: Option<CodePlace>,
    },
    /// The image halted an endpoint again and again.
    Halted {
        /// The endpoint's address.
        endpoint: u8,
        /// Where the CPU is.
        at: Option<CodePlace>,
    },
    /// The image gave a wrong answer.
    Wrong(String),
}

impl BootFault {
    /// The fault of a chip that did not answer, with the instruction at which its CPU is.
    pub fn of<F>(why: Unanswered, chip: &Chip<F>) -> Self {
        let at = CodePlace::of(chip);
        match why {
            Unanswered::Stall => Self::Wrong("the request was stalled".into()),
            Unanswered::Halted(endpoint) => Self::Halted { endpoint, at },
            Unanswered::Silent(outcome) => Self::Hung { outcome, at },
        }
    }

    /// As [`BootFault::of`], but with the loop that the firmware does not leave. Continues the run to find the loop.
    pub(in crate::chip) fn located<F: SpiFlash>(why: Unanswered, chip: &mut Chip<F>) -> Self {
        let mut fault = Self::of(why, chip);
        if let Self::Hung { outcome: RunEnd::Budget, at } | Self::Halted { at, .. } = &mut fault {
            *at = CodePlace::looping(chip);
        }
        fault
    }

    /// Whether the image gave no answer. Further requests would take as long and show nothing new.
    pub(in crate::chip) const fn is_dead(&self) -> bool {
        matches!(self, Self::Hung { .. } | Self::Halted { .. })
    }
}

impl fmt::Display for BootFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match self {
            Self::Hung { outcome, at } => {
                f.write_str(match outcome {
                    RunEnd::Parked | RunEnd::Attention => "no answer: the firmware waits",
                    RunEnd::Budget => "no answer: the firmware goes on without one, in a loop",
                    RunEnd::Reset => "no answer: the firmware reset the chip",
                    RunEnd::Halted => "no answer: the firmware stopped",
                    RunEnd::FlashGone => "no answer: the flash lost its power",
                })?;
                at
            }
            Self::Halted { endpoint, at } => {
                write!(f, "no answer: endpoint {endpoint:#04x} stays halted, and the firmware is")?;
                at
            }
            Self::Wrong(what) => return f.write_str(what),
        };
        match at {
            Some(at) => write!(f, " at {at}"),
            None => f.write_str(" outside its code"),
        }
    }
}

impl std::error::Error for BootFault {}

/// Number of instructions to watch while searching for the loop: more than one round of any loop worth reporting.
const WATCHED: u64 = 100_000;

/// A range of code: the instruction at which the CPU is, or the loop that it does not leave.
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

    /// Continues the run and finds the loop that the firmware does not leave; `None` if it executes no code.
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

/// The range of instructions executed with the lowest SP: the loop itself, without its calls and without interrupts.
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
