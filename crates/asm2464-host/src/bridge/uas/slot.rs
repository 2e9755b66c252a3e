//! A tag's slot: its transfers and its current command.

use std::time::{Duration, Instant};

use asm2464::scsi::{ScsiStatus, Sense};

use crate::bridge::pipes::TransferId;
use crate::bridge::workload::Job;

/// Time that a cancelled transfer may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Part of a command that a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Command,
    Data,
    Status,
}

/// A tag's transfers and command.
#[derive(Debug)]
pub(super) struct UasSlot {
    /// The transfers, indexed by [`Part`]. Without streams all slots share the status's.
    pub transfers: [TransferId; 3],
    pub busy: Option<Busy>,
}

impl UasSlot {
    /// Records that one of the transfers is back. Returns its command in flight, if there is one.
    pub fn take_back(&mut self, part: Part) -> Option<&mut Busy> {
        let busy = self.busy.as_mut()?;
        busy.is_out[part as usize] = false;
        Some(busy)
    }
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct Busy {
    pub job: Job,
    /// Start time, if the workload is timed.
    pub started: Option<Instant>,
    /// Deadline, set when the engine first waits for the command: reading the clock can cost as much as a transfer.
    pub deadline: Option<Instant>,
    pub timeout: Duration,
    /// Whether a transfer is in flight, indexed by [`Part`].
    pub is_out: [bool; 3],
    pub moved: usize,
    pub end: Option<(ScsiStatus, Option<Sense>)>,
    pub data_was_ready: bool,
    /// Whether the command's transfers were cancelled.
    pub is_cancelled: bool,
}

impl Busy {
    /// Records that the command's transfers were cancelled.
    pub fn cancel(&mut self, now: Instant) {
        self.is_cancelled = true;
        self.deadline = Some(now + CANCEL_TIMEOUT);
    }

    /// Whether the status has arrived and every transfer is back.
    pub fn has_ended(&self) -> bool {
        self.end.is_some() && !self.is_out.contains(&true)
    }
}
