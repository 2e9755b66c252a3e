//! One tag: its transfers, and the command that has them now.

use std::time::{Duration, Instant};

use crate::bridge::pipes::TransferId;
use crate::bridge::workload::Job;
use crate::scsi::{ScsiStatus, Sense};

/// How long a cancelled transfer may take to come back.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A tag's transfers.
#[derive(Debug)]
pub(super) struct Slot {
    pub command: TransferId,
    /// `None` without streams.
    pub status: Option<TransferId>,
    pub data: TransferId,
    pub busy: Option<Busy>,
}

impl Slot {
    /// The command in flight, one of whose transfers is back.
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
    /// Where somebody wants to know how long it took.
    pub started: Option<Instant>,
    /// Set when the engine first waits for it: a clock can cost as much as a transfer.
    pub deadline: Option<Instant>,
    pub timeout: Duration,
    pub pending: Pending,
    pub moved: usize,
    pub end: Option<(ScsiStatus, Option<Sense>)>,
    pub data_was_ready: bool,
    /// Whether its transfers were asked back.
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

    /// Notes that its transfers are asked back.
    pub fn cancel(&mut self, now: Instant) {
        self.is_cancelled = true;
        self.deadline = Some(now + CANCEL_TIMEOUT);
    }

    /// Status there and every transfer back.
    pub const fn has_ended(&self) -> bool {
        self.end.is_some() && self.pending.is_none()
    }
}

/// Which of a tag's transfers are in flight.
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
