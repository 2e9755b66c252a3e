//! The transfers of one command: submitted together, and awaited one after the other.

use std::time::{Duration, Instant};

use asm2464::scsi::bot::{CBW_LEN, CSW_LEN};

use super::{BulkOnly, Move};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};

/// Time that the host controller may take to return cancelled transfers.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// Purpose of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferPurpose {
    Wrapper,
    Data,
    /// The data of the engine's own REQUEST SENSE.
    Sense,
    Status,
}

impl TransferPurpose {
    pub const COUNT: usize = 4;
}

/// A transfer and its state.
#[derive(Debug)]
pub(super) struct TransferLane {
    transfer: TransferId,
    state: LaneState,
    /// Bytes moved when the transfer was last in flight, however it ended.
    pub moved: usize,
}

#[derive(Debug)]
enum LaneState {
    Idle,
    InFlight,
    Back(TransferEnd),
}

impl TransferLane {
    pub const fn new(transfer: TransferId) -> Self {
        Self { transfer, state: LaneState::Idle, moved: 0 }
    }

    pub const fn is_in_flight(&self) -> bool {
        matches!(self.state, LaneState::InFlight)
    }
}

impl<P: Pipes> BulkOnly<P> {
    pub(super) const fn lane(&mut self, part: TransferPurpose) -> &mut TransferLane {
        &mut self.lanes[part as usize]
    }

    pub(super) const fn transfer(&self, part: TransferPurpose) -> TransferId {
        self.lanes[part as usize].transfer
    }

    /// Buffer of a part's transfer; empty while it is in flight.
    pub(super) fn buffer(&mut self, part: TransferPurpose) -> &mut [u8] {
        let transfer = self.transfer(part);
        self.pipes.buffer(transfer)
    }

    fn submit(&mut self, part: TransferPurpose, endpoint: Endpoint, len: usize) -> Result<(), PipeError> {
        let transfer = self.transfer(part);
        self.pipes.submit(transfer, endpoint, 0, len)?;
        self.lane(part).state = LaneState::InFlight;
        Ok(())
    }

    pub(super) fn submit_status(&mut self) -> Result<(), PipeError> {
        self.submit(TransferPurpose::Status, Endpoint::DataIn, CSW_LEN)
    }

    /// Submits the whole command, in the order in which its pipes move it.
    pub(super) fn submit_all(&mut self, data: Option<Move>) -> Result<(), PipeError> {
        self.submit(TransferPurpose::Wrapper, Endpoint::DataOut, CBW_LEN)?;
        if let Some(Move { part, endpoint, len }) = data {
            self.submit(part, endpoint, len)?;
        }
        self.submit_status()
    }

    /// Waits for one of the parts and returns the bytes moved. Records other parts as they return. Takes transfers that
    /// are already back even after the deadline, because the process may have been suspended meanwhile.
    pub(super) fn wait(&mut self, part: TransferPurpose, deadline: Instant) -> Result<usize, PipeError> {
        loop {
            let lane = self.lane(part);
            if !lane.is_in_flight() {
                return match std::mem::replace(&mut lane.state, LaneState::Idle) {
                    LaneState::Back(TransferEnd::Completed) => Ok(lane.moved),
                    LaneState::Back(TransferEnd::Failed(error)) => Err(error),
                    LaneState::Back(TransferEnd::Cancelled) | LaneState::Idle | LaneState::InFlight => {
                        Err(PipeError::Other("the transfer was cancelled".to_owned()))
                    }
                };
            }
            self.reap_one(deadline)?;
        }
    }

    fn reap_one(&mut self, deadline: Instant) -> Result<(), PipeError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match self.pipes.reap(remaining)? {
            Some(Reaped { transfer, moved, end }) => {
                if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.transfer == transfer) {
                    (lane.state, lane.moved) = (LaneState::Back(end), moved);
                }
            }
            None if remaining.is_zero() => return Err(PipeError::Timeout),
            None => {}
        }
        Ok(())
    }

    /// Cancels the status transfer. If it has received a status after all, keeps it and returns `true`.
    pub(super) fn withdraw_status(&mut self) -> Result<bool, PipeError> {
        self.withdraw()?;
        let lane = self.lane(TransferPurpose::Status);
        let has_status = lane.moved > 0 && matches!(lane.state, LaneState::Back(TransferEnd::Completed));
        if !has_status {
            lane.state = LaneState::Idle;
        }
        Ok(has_status)
    }

    /// Cancels all transfers and drops what they brought.
    pub(super) fn withdraw_all(&mut self) -> Result<(), PipeError> {
        self.withdraw()?;
        for lane in &mut self.lanes {
            lane.state = LaneState::Idle;
        }
        Ok(())
    }

    /// Cancels all transfers. After success nothing is in flight.
    ///
    /// Cancels the newest first. Otherwise the transfer behind a cancelled one would be next on its pipe for a
    /// moment, and data could arrive while the device waits for the wrapper.
    fn withdraw(&mut self) -> Result<(), PipeError> {
        for lane in self.lanes.iter().rev().filter(|lane| lane.is_in_flight()) {
            self.pipes.cancel(lane.transfer);
        }
        let deadline = Instant::now() + WITHDRAW_TIMEOUT;
        while self.lanes.iter().any(TransferLane::is_in_flight) {
            self.reap_one(deadline)?;
        }
        Ok(())
    }
}
