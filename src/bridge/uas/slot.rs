//! A tag's slot: its transfers and its current command.

use std::time::{Duration, Instant};

use crate::bridge::pipes::TransferId;
use crate::bridge::workload::Job;
use crate::scsi::{ScsiStatus, Sense};

/// Time that a cancelled transfer may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A tag's transfers.
#[derive(Debug)]
pub(super) struct UasSlot {
    pub command: TransferId,
    pub data: TransferId,
    /// Transfer of the status; without streams the one that all slots share.
    pub status: TransferId,
    pub busy: Option<Busy>,
}

impl UasSlot {
    /// Records that one of the transfers is back. Returns its command in flight, if there is one.
    pub fn take_pending(&mut self, which: Pending) -> Option<&mut Busy> {
        let busy = self.busy.as_mut()?;
        busy.pending.remove(which);
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
    pub pending: Pending,
    pub moved: usize,
    pub end: Option<(ScsiStatus, Option<Sense>)>,
    pub data_was_ready: bool,
    /// Whether the command's transfers were cancelled.
    pub is_cancelled: bool,
}

impl Busy {
    pub const fn new(job: Job, started: Option<Instant>, timeout: Duration) -> Self {
        Self {
            job,
            started,
            deadline: None,
            timeout,
            pending: Pending::NONE,
            moved: 0,
            end: None,
            data_was_ready: false,
            is_cancelled: false,
        }
    }

    /// Records that the command's transfers were cancelled.
    pub fn cancel(&mut self, now: Instant) {
        self.is_cancelled = true;
        self.deadline = Some(now + CANCEL_TIMEOUT);
    }

    /// Whether the status has arrived and every transfer is back.
    pub const fn has_ended(&self) -> bool {
        self.end.is_some() && self.pending.is_none()
    }
}

/// The set of a tag's transfers that are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending(u8);

impl Pending {
    pub const NONE: Self = Self(0);
    pub const COMMAND: Self = Self(1);
    pub const STATUS: Self = Self(2);
    pub const DATA: Self = Self(4);

    pub const fn add(&mut self, which: Self) {
        self.0 |= which.0;
    }

    pub const fn remove(&mut self, which: Self) {
        self.0 &= !which.0;
    }

    pub const fn has(self, which: Self) -> bool {
        self.0 & which.0 != 0
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}
