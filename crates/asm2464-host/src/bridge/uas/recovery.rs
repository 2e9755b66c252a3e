//! Error recovery of UAS: cancels the host's transfers and resets the port.
//!
//! Task management does not help: 240417 answers ABORT TASK and LOGICAL UNIT RESET with "complete" and changes nothing.
//! The command stays in its slot, its tag stays taken, and its status may still arrive. Source: executed on the chip
//! model.

use std::time::{Duration, Instant};

use tracing::info;

use super::queue::UasSlot;
use super::{Role, Uas, depth_with};
use crate::bridge::error::TransportError;
use crate::bridge::pipes::{PipeError, Pipes, Reaped, TransferId};

/// Time that the host controller may take to return cancelled transfers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl<P: Pipes> Uas<P> {
    /// Ends everything in flight after an error. Returns the error to report: this one, or that the unit went away
    /// meanwhile.
    pub(super) fn failed(&mut self, error: TransportError) -> TransportError {
        if error.is_gone() {
            self.drain();
            return error;
        }
        match self.end_all() {
            Err(gone) if gone.is_gone() => gone,
            _ => error,
        }
    }

    /// Cancels every transfer. Resets the port if the unit has commands in progress or transfers do not return.
    pub(super) fn end_all(&mut self) -> Result<(), TransportError> {
        let is_quiet = self.in_flight == 0;
        let is_drained = self.drain();
        if is_quiet && is_drained { Ok(()) } else { self.reset() }
    }

    pub(super) fn reset(&mut self) -> Result<(), TransportError> {
        info!("UAS: {} commands in flight: port reset", self.in_flight);
        let resetting = |error: PipeError| error.during("resetting the port");
        self.pipes.reset_port().map_err(resetting)?;
        // Transfers that have not returned before return with the reset.
        if !self.drain() {
            return Err(resetting(PipeError::Other("the system doesn't return the transfers".to_owned())));
        }
        if self.has_streams() {
            let streams = usize::from(self.pipes.streams());
            if streams == 0 {
                return Err(resetting(PipeError::Other("the system gives no streams any more".to_owned())));
            }
            self.depth = depth_with(streams, self.slots.len());
        }
        Ok(())
    }

    /// Cancels every transfer. Returns `false` if some did not return.
    fn drain(&mut self) -> bool {
        for transfer in 0..self.roles.len() {
            self.pipes.cancel(TransferId(transfer));
        }
        // From here on a returned transfer is only recorded, so no command starts another one.
        let until = Instant::now() + DRAIN_TIMEOUT;
        while self.is_anything_out()
            && let Ok(Some(reaped)) = self.pipes.reap(until.saturating_duration_since(Instant::now()))
        {
            self.forget(&reaped);
        }
        if self.is_anything_out() {
            return false;
        }
        for slot in &mut self.slots {
            slot.busy = None;
        }
        self.in_flight = 0;
        true
    }

    fn is_anything_out(&self) -> bool {
        let is_out = |slot: &UasSlot| slot.busy.as_ref().is_some_and(|busy| busy.is_out.contains(&true));
        self.is_shared_status_out || self.slots.iter().any(is_out)
    }

    /// Only records that a transfer is back.
    fn forget(&mut self, reaped: &Reaped) {
        match self.roles.get(reaped.transfer.0) {
            Some(&Role::Own(at, part)) => drop(self.slots[at].take_back(part)),
            Some(Role::SharedStatus) => self.is_shared_status_out = false,
            None => {}
        }
    }
}
