//! Keeps commands in flight, each in a tag's slot: the hot path. Nothing here allocates or copies data.

use std::time::{Duration, Instant};

use asm2464::scsi::{ScsiStatus, Sense};

use super::Uas;
use crate::bridge::error::{PREPARING, TransportError, TransportErrorKind, still_in_flight};
use crate::bridge::log;
use crate::bridge::pipes::{self, PipeError, Pipes, Reaped, TransferId};
use crate::bridge::workload::{CommandEnd, Job, JobData, Workload};

/// Maximum wait if no transfer in flight has an earlier deadline.
const IDLE: Duration = Duration::from_secs(1);
/// Name of the queue's activity in errors.
const QUEUE: &str = "the queue";

impl<P: Pipes> Uas<P> {
    pub(super) fn run_queue(
        &mut self,
        workload: &mut dyn Workload,
        depth: usize,
        timeout: Duration,
    ) -> Result<(), TransportError> {
        // Happens only if the system returned transfers neither after they were cancelled nor with the port reset. A
        // unit that is gone got no port reset: `failed` tries one now, and reports that the unit is gone.
        if self.in_flight > 0 {
            return Err(still_in_flight());
        }
        let len = workload.buffer_len();
        for at in 0..depth {
            let data = self.slots[at].transfers[Part::Data as usize];
            self.pipes.reserve(data, len).map_err(|error| error.during(PREPARING))?;
        }
        self.free.clear();
        self.free.extend((0..depth).rev());
        let mut has_more = true;
        let is_timed = workload.is_timed() || log::is_on();
        loop {
            while has_more && let Some(&at) = self.free.last() {
                let data = self.slots[at].transfers[Part::Data as usize];
                match workload.next(&mut self.pipes.buffer(data)[..len]) {
                    Some(job) => {
                        self.free.pop();
                        self.start(at, job.clamped(len), timeout, is_timed)?;
                    }
                    None => has_more = false,
                }
            }
            if self.in_flight == 0 {
                return Ok(());
            }
            // Check returned transfers before deadlines: they need no clock.
            if let Some(reaped) = self.pipes.reap_known() {
                has_more &= self.returned(&reaped, workload)?;
                continue;
            }
            let now = Instant::now();
            let next = self.next_deadline().unwrap_or(now + IDLE);
            if next <= now {
                // Take transfers that are already back: the process may have been suspended past the deadline.
                while let Some(reaped) = self.reap_now()? {
                    has_more &= self.returned(&reaped, workload)?;
                }
                self.expire(now)?;
                continue;
            }
            match self.pipes.reap(next - now) {
                Ok(Some(reaped)) => has_more &= self.returned(&reaped, workload)?,
                Ok(None) => {}
                Err(PipeError::Timeout) => self.expire(next)?,
                Err(error) => return Err(error.during(QUEUE)),
            }
        }
    }

    fn reap_now(&mut self) -> Result<Option<Reaped>, TransportError> {
        match self.pipes.reap(Duration::ZERO) {
            Err(PipeError::Timeout) => Ok(None),
            other => other.map_err(|error| error.during(QUEUE)),
        }
    }

    /// Handles a returned transfer. Returns whether the workload wants more.
    fn returned(&mut self, reaped: &Reaped, workload: &mut dyn Workload) -> Result<bool, TransportError> {
        Ok(self.take(reaped)?.is_none_or(|at| self.finish(at, workload)))
    }

    /// Passes an ended command to the workload. Returns whether it wants more.
    fn finish(&mut self, at: usize, workload: &mut dyn Workload) -> bool {
        let Some(busy) = self.slots[at].busy.take() else { return true };
        self.in_flight -= 1;
        self.free.push(at);
        let Busy { job, started, moved, end: Some((status, sense)), .. } = busy else { return true };
        let completion = CommandEnd { transferred: moved, status, sense };
        let buffer = self.pipes.buffer(self.slots[at].transfers[Part::Data as usize]);
        let data = if matches!(job.data, JobData::In(_)) { &buffer[..moved.min(buffer.len())] } else { &[] };
        let elapsed = started.map_or(Duration::ZERO, |started| started.elapsed());
        log::answered(&job, &completion, buffer, elapsed);
        workload.complete(&job, &completion, data, elapsed)
    }

    /// The earliest deadline of the commands in flight. A command without a deadline gets one from now on.
    fn next_deadline(&mut self) -> Option<Instant> {
        let busy = self.slots.iter_mut().filter_map(|slot| slot.busy.as_mut());
        busy.map(|busy| *busy.deadline.get_or_insert(pipes::deadline(busy.timeout))).min()
    }

    /// Handles expired commands: one that has its status loses its missing data; one without a status, or which the
    /// unit did not take, has timed out.
    fn expire(&mut self, now: Instant) -> Result<(), TransportError> {
        for at in 0..self.slots.len() {
            let data = self.slots[at].transfers[Part::Data as usize];
            let Some(busy) = self.slots[at].busy.as_mut().filter(|busy| busy.deadline.is_some_and(|at| at <= now))
            else {
                continue;
            };
            if busy.end.is_none() || busy.is_cancelled || busy.is_out[Part::Command as usize] {
                let deadline = busy.timeout;
                return Err(TransportErrorKind::Timeout { deadline }.during(busy.job.cdb));
            }
            busy.cancel(now);
            self.pipes.cancel(data);
        }
        Ok(())
    }
}

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
