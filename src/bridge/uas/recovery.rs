//! What UAS does when something goes wrong: the device's tasks are ended, the host's transfers taken back.

use std::time::{Duration, Instant};

use super::slot::Pending;
use super::{PROBE_TIMEOUT, STATUS_LEN, Uas, depth_and_task_tag, lost, tag_of};
use crate::bridge::error::TransportError;
use crate::bridge::pipes::{Endpoint, PipeError, Pipes};
use crate::bridge::single::Single;
use crate::bridge::workload::DataPhase;
use crate::scsi::Command;
use crate::scsi::uas::{TASK_IU_LEN, Tag, TaskFunction, TaskIu};

/// How long a task management request may take.
const TASK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the host controller may take to give cancelled transfers back.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Response codes that mean success (UAS-3, table 20).
const COMPLETE: u8 = 0x00;
const SUCCEEDED: u8 = 0x08;

impl<P: Pipes> Uas<P> {
    /// Ends everything in flight after an error, and gives what the caller is to report: the error, or that the unit
    /// went away meanwhile.
    pub(super) fn failed(&mut self, error: TransportError) -> TransportError {
        if matches!(error, TransportError::Disconnected { .. }) {
            self.drain();
            return error;
        }
        match self.end_all() {
            Ok(()) => error,
            Err(gone @ TransportError::Disconnected { .. }) => gone,
            Err(_) => error,
        }
    }

    /// Aborts the task, or resets the logical unit where several are in flight; resets the port where that is
    /// refused or not answered, and where transfers do not come back.
    fn end_all(&mut self) -> Result<(), TransportError> {
        let is_quiet = self.in_flight == 0 || self.end_tasks();
        let is_drained = self.drain();
        if is_quiet && is_drained && self.clear_halted() { Ok(()) } else { self.reset() }
    }

    fn clear_halted(&mut self) -> bool {
        self.halted.take().is_none_or(|endpoint| self.pipes.clear_halt(endpoint).is_ok())
    }

    fn reset(&mut self) -> Result<(), TransportError> {
        let resetting = |error| lost("resetting the port".to_owned(), error);
        self.halted = None;
        self.pipes.reset_port().map_err(resetting)?;
        // What was not given back before comes back with the reset.
        if !self.drain() {
            return Err(resetting(PipeError::Other("the system does not give the transfers back".to_owned())));
        }
        if self.has_streams() {
            let streams = usize::from(self.pipes.streams());
            if streams == 0 {
                return Err(resetting(PipeError::Other("the system gives no streams any more".to_owned())));
            }
            (self.depth, self.task.tag) = depth_and_task_tag(streams, self.slots.len());
        }
        Ok(())
    }

    /// Whether the device has ended its tasks.
    fn end_tasks(&mut self) -> bool {
        let Some(tag) = self.task.tag else { return false };
        let mut busy = (0..self.slots.len()).filter(|at| self.slots[*at].busy.is_some());
        let request = match (busy.next(), busy.next()) {
            (Some(only), None) => TaskIu { tag, function: TaskFunction::AbortTask, managed: tag_of(only), lun: 0 },
            _ => TaskIu { tag, function: TaskFunction::LogicalUnitReset, managed: Tag(0), lun: 0 },
        };
        self.task.response = None;
        self.send_task(&request, tag).is_ok() && matches!(self.wait_for_response(), Some(COMPLETE | SUCCEEDED))
    }

    fn send_task(&mut self, request: &TaskIu, tag: Tag) -> Result<(), PipeError> {
        if self.has_streams() {
            self.pipes.submit(self.task.status, Endpoint::Status, tag.0, STATUS_LEN)?;
            self.task.pending.add(Pending::STATUS);
        } else if self.ask_for_status().is_err() {
            return Err(PipeError::Stall);
        }
        self.pipes.put(self.task.command, &request.to_bytes())?;
        self.pipes.submit(self.task.command, Endpoint::Command, 0, TASK_IU_LEN)?;
        self.task.pending.add(Pending::COMMAND);
        Ok(())
    }

    fn wait_for_response(&mut self) -> Option<u8> {
        let until = Instant::now() + TASK_TIMEOUT;
        while self.task.response.is_none() {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            let reaped = self.pipes.reap(rest).ok()?;
            // What else comes back belongs to commands that are given up.
            if let Some(reaped) = reaped {
                let _ = self.take(&reaped);
                self.ask_for_status().ok()?;
            }
        }
        self.task.response
    }

    /// Takes every transfer back. `false` where some did not come.
    fn drain(&mut self) -> bool {
        for slot in &self.slots {
            let Some(busy) = &slot.busy else { continue };
            let transfers = [
                (Pending::COMMAND, Some(slot.command)),
                (Pending::DATA, Some(slot.data)),
                (Pending::STATUS, slot.status),
            ];
            for (which, transfer) in transfers {
                if busy.pending.has(which)
                    && let Some(transfer) = transfer
                {
                    self.pipes.cancel(transfer);
                }
            }
        }
        if self.task.pending.has(Pending::COMMAND) {
            self.pipes.cancel(self.task.command);
        }
        if self.task.pending.has(Pending::STATUS) {
            self.pipes.cancel(self.task.status);
        }
        if let Some(shared) = self.shared_status.as_ref().filter(|shared| shared.is_out) {
            self.pipes.cancel(shared.transfer);
        }
        // A command whose status is still to come starts nothing more.
        let until = Instant::now() + DRAIN_TIMEOUT;
        while self.is_anything_out() {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            match self.pipes.reap(rest) {
                Ok(Some(reaped)) => self.forget(&reaped),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        if self.is_anything_out() {
            return false;
        }
        for slot in &mut self.slots {
            slot.busy = None;
        }
        self.in_flight = 0;
        self.task.pending = Pending::NONE;
        if let Some(shared) = &mut self.shared_status {
            shared.is_out = false;
        }
        true
    }

    fn is_anything_out(&self) -> bool {
        let is_busy = |slot: &super::Slot| slot.busy.as_ref().is_some_and(|busy| !busy.pending.is_none());
        !self.task.pending.is_none()
            || self.shared_status.as_ref().is_some_and(|shared| shared.is_out)
            || self.slots.iter().any(is_busy)
    }

    /// Notes that a transfer is back, and nothing else.
    fn forget(&mut self, reaped: &super::Reaped) {
        use super::Role;
        match self.roles.get(reaped.transfer.0) {
            Some(&Role::Command(at)) => drop(self.slots[at].take_pending(Pending::COMMAND)),
            Some(&Role::Status(at)) => drop(self.slots[at].take_pending(Pending::STATUS)),
            Some(&Role::Data(at)) => drop(self.slots[at].take_pending(Pending::DATA)),
            Some(Role::TaskCommand) => self.task.pending.remove(Pending::COMMAND),
            Some(Role::TaskStatus) => self.task.pending.remove(Pending::STATUS),
            Some(Role::SharedStatus) => {
                if let Some(shared) = &mut self.shared_status {
                    shared.is_out = false;
                }
            }
            None => {}
        }
    }

    /// Ends everything, proven by a command; then the port, proven again.
    pub(super) fn bring_back(&mut self) -> Result<(), TransportError> {
        self.end_all()?;
        match self.probe() {
            Ok(()) => Ok(()),
            Err(gone @ TransportError::Disconnected { .. }) => Err(gone),
            Err(_) => {
                self.reset()?;
                self.probe()
            }
        }
    }

    /// Sends one TEST UNIT READY: whether the wire carries commands again, whatever the unit answers.
    fn probe(&mut self) -> Result<(), TransportError> {
        let mut single = Single::new(Command::TestUnitReady.cdb(), DataPhase::None);
        match self.run_queue(&mut single, 1, PROBE_TIMEOUT) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }
}
