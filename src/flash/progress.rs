//! The steps of a write, and how they are reported: the library tells a [`FlashObserver`], and never prints.

use std::fmt;

use serde::Serialize;
use tracing::info;

use crate::firmware::{BlockIndex, Part};

/// One step of writing a unit, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashStep {
    /// Open the unit and see that it is still the one of the plan.
    Open,
    /// Read everything and keep it.
    Backup,
    /// E1. Of block 0 it erases the slot first.
    WriteBlock(BlockIndex),
    /// E3.
    WritePart(Part),
    /// Through registers: read everything, and see what differs.
    Compare,
    /// Through registers: clear the old image's length, so that no mixture of two images can start.
    Invalidate,
    /// Through registers: every sector that differs, but for the first.
    WriteSectors,
    /// Through registers: the sector with the configuration blocks and the image's length.
    WriteFirstSector,
    /// E0, and the comparison.
    ReadBackBlock(BlockIndex),
    /// E2, and the comparison.
    ReadBack(Part),
    /// E8, where what runs knows it.
    Restart,
    /// Its hub switches its power off and on.
    PowerCycle,
    /// The unit leaves the bus and comes back.
    Return,
    /// What the unit does, against what was written.
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

/// The parts' numbers as people count them.
pub const fn part_number(part: Part) -> u8 {
    match part {
        Part::One => 1,
        Part::Two => 2,
    }
}

/// What happens while a unit is backed up or written.
#[derive(Debug, Clone, Copy)]
pub enum FlashEvent<'a> {
    /// How many bytes the whole run moves, if nothing has to be repeated.
    Total(u64),
    /// A step begins.
    Begin(FlashStep),
    /// Bytes were moved in the current step.
    Moved(u64),
    /// A step is done, with this result.
    End(FlashStep, &'a str),
    /// Something went wrong that is dealt with.
    Trouble(FlashStep, &'a str),
    /// Only its power can start the unit: the user should unplug it and plug it in again.
    Replug,
}

/// What is told about a run.
pub trait FlashObserver {
    /// Something happened.
    fn event(&mut self, event: FlashEvent<'_>);
}

/// Tells nobody.
impl FlashObserver for () {
    fn event(&mut self, _event: FlashEvent<'_>) {}
}

/// A step and how it ended, for a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepReport {
    /// The step, in words.
    pub step: String,
    /// How it ended, in words.
    pub result: String,
    /// Whether it is done, as against a trouble that was dealt with.
    pub done: bool,
}

/// Keeps every step for the report, and passes everything on.
pub(super) struct Recorder<'a> {
    observer: &'a mut dyn FlashObserver,
    pub(super) steps: Vec<StepReport>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(observer: &'a mut dyn FlashObserver) -> Self {
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
