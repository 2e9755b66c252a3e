//! The steps of a write and their reports. The library reports to a [`FlashProgress`], and never prints.

use std::fmt;

use serde::Serialize;
use tracing::info;

use crate::firmware::{BlockIndex, Part};
use crate::progress::Progress;

/// A step of writing a unit, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashStep {
    /// Opens the unit and checks that it is still the plan's.
    Open,
    /// Reads everything and saves it.
    Backup,
    /// E1: writes a block. Block 0 erases the slot first.
    WriteBlock(BlockIndex),
    /// E3: writes a part.
    WritePart(Part),
    /// Through registers: reads everything and finds the differences.
    Compare,
    /// Through registers: clears the old image's length, so that no mixture of two images can start.
    Invalidate,
    /// Through registers: writes every differing sector except the first.
    WriteSectors,
    /// Through registers: writes the sector with the configuration blocks and the image's length.
    WriteFirstSector,
    /// E0: reads a block back and compares it.
    ReadBackBlock(BlockIndex),
    /// E2: reads a part back and compares it.
    ReadBack(Part),
    /// E8: restarts the unit, if its firmware knows the command.
    Restart,
    /// The hub power-cycles the unit.
    PowerCycle,
    /// Waits for the unit to leave the bus and come back.
    Return,
    /// Compares the unit's behaviour with what was written.
    Prove,
}

impl fmt::Display for FlashStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Backup => f.write_str("back up"),
            Self::WriteBlock(BlockIndex::Zero) => f.write_str("erase, write configuration block 0"),
            Self::WriteBlock(BlockIndex::One) => f.write_str("write configuration block 1"),
            Self::ReadBackBlock(index) => write!(f, "read back configuration block {}", index.number()),
            Self::WritePart(part) => write!(f, "write firmware part {}", part_number(*part)),
            Self::ReadBack(part) => write!(f, "read back firmware part {}", part_number(*part)),
            Self::Compare => f.write_str("compare with the flash"),
            Self::Invalidate => f.write_str("clear the old image's length"),
            Self::WriteSectors => f.write_str("write sectors"),
            Self::WriteFirstSector => f.write_str("write the first sector"),
            Self::Restart => f.write_str("restart"),
            Self::PowerCycle => f.write_str("power-cycle"),
            Self::Return => f.write_str("come back"),
            Self::Prove => f.write_str("check what runs"),
        }
    }
}

/// Number of a part, counted from 1.
pub const fn part_number(part: Part) -> u8 {
    match part {
        Part::One => 1,
        Part::Two => 2,
    }
}

/// An event of a backup or a write.
#[derive(Debug, Clone, Copy)]
pub enum FlashEvent<'a> {
    /// Number of bytes that the whole run moves if nothing has to be repeated.
    Total(u64),
    /// A step begins.
    Begin(FlashStep),
    /// Bytes were moved in the current step.
    Moved(u64),
    /// A step has ended, with this result.
    End(FlashStep, &'a str),
    /// A problem that asmpatch handles by itself.
    Trouble(FlashStep, &'a str),
    /// Only a power cycle can start the unit: the user should unplug it and plug it in again.
    Replug,
}

/// Receives the events of a backup or a write.
pub type FlashProgress<'p> = dyn for<'e> Progress<FlashEvent<'e>> + 'p;

/// A step and its result, for a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepReport {
    /// The step, in words.
    pub step: String,
    /// The step's result, in words.
    pub result: String,
    /// Whether the step is done, as opposed to a problem that was handled.
    pub done: bool,
}

/// Records every step for the report, and passes on every event.
pub(super) struct StepRecorder<'a> {
    observer: &'a mut FlashProgress<'a>,
    pub(super) steps: Vec<StepReport>,
}

impl<'a> StepRecorder<'a> {
    pub(super) fn new(observer: &'a mut FlashProgress<'a>) -> Self {
        Self { observer, steps: Vec::new() }
    }

    pub(super) fn begin(&mut self, step: FlashStep) {
        info!("{step}");
        self.observer.event(FlashEvent::Begin(step));
    }

    pub(super) fn end(&mut self, step: FlashStep, result: &str) {
        info!("{step}: {result}");
        self.keep(step, result, true);
        self.observer.event(FlashEvent::End(step, result));
    }

    pub(super) fn trouble(&mut self, step: FlashStep, what: &str) {
        info!("{step}: {what}");
        self.keep(step, what, false);
        self.observer.event(FlashEvent::Trouble(step, what));
    }

    pub(super) fn pass(&mut self, event: FlashEvent<'_>) {
        self.observer.event(event);
    }

    fn keep(&mut self, step: FlashStep, result: &str, done: bool) {
        self.steps.push(StepReport { step: step.to_string(), result: result.to_owned(), done });
    }
}
