//! The transfers of one command: submitted together, waited for one after the other.

use std::time::Duration;

use super::{BulkOnly, Deadline, Move};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};
use crate::scsi::bot::{CBW_LEN, CSW_LEN};

/// How long the host controller may take to give cancelled transfers back.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// What a transfer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Wrapper,
    Data,
    /// The data of the engine's own REQUEST SENSE.
    Sense,
    Status,
}

impl Part {
    pub const COUNT: usize = 4;
    const ALL: [Self; Self::COUNT] = [Self::Wrapper, Self::Data, Self::Sense, Self::Status];
}

/// A transfer, and where it is.
#[derive(Debug)]
pub(super) struct Lane {
    transfer: TransferId,
    state: State,
    /// Bytes that it moved when it was last in flight, however that ended.
    moved: usize,
}

#[derive(Debug)]
enum State {
    Idle,
    InFlight,
    Back(TransferEnd),
}

impl Lane {
    pub const fn new(transfer: TransferId) -> Self {
        Self { transfer, state: State::Idle, moved: 0 }
    }

    const fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight)
    }
}

impl<P: Pipes> BulkOnly<P> {
    const fn lane(&mut self, part: Part) -> &mut Lane {
        &mut self.lanes[part as usize]
    }

    pub(super) const fn transfer(&self, part: Part) -> TransferId {
        self.lanes[part as usize].transfer
    }

    /// A part's buffer; empty while it is in flight.
    pub(super) fn buffer(&mut self, part: Part) -> &mut [u8] {
        let transfer = self.transfer(part);
        self.pipes.buffer(transfer)
    }

    pub(super) const fn moved(&self, part: Part) -> usize {
        self.lanes[part as usize].moved
    }

    fn submit(&mut self, part: Part, endpoint: Endpoint, len: usize) -> Result<(), PipeError> {
        let transfer = self.transfer(part);
        self.pipes.submit(transfer, endpoint, 0, len)?;
        self.lane(part).state = State::InFlight;
        Ok(())
    }

    pub(super) fn submit_status(&mut self) -> Result<(), PipeError> {
        self.submit(Part::Status, Endpoint::DataIn, CSW_LEN)
    }

    /// The whole command, in the order in which its pipes move it.
    pub(super) fn submit_all(&mut self, data: Option<Move>) -> Result<(), PipeError> {
        self.submit(Part::Wrapper, Endpoint::DataOut, CBW_LEN)?;
        if let Some(Move { part, endpoint, len }) = data {
            self.submit(part, endpoint, len)?;
        }
        self.submit_status()
    }

    /// Waits for one of the parts; the others are noted as they come. Gives the bytes moved. What is back when the
    /// deadline passes counts: a process that was not run for a while finds its answers there.
    pub(super) fn wait(&mut self, part: Part, deadline: &Deadline) -> Result<usize, PipeError> {
        loop {
            let lane = self.lane(part);
            if !lane.is_in_flight() {
                return match std::mem::replace(&mut lane.state, State::Idle) {
                    State::Back(TransferEnd::Completed) => Ok(lane.moved),
                    State::Back(TransferEnd::Failed(error)) => Err(error),
                    State::Back(TransferEnd::Cancelled) | State::Idle | State::InFlight => {
                        Err(PipeError::Other("the transfer was taken back".to_owned()))
                    }
                };
            }
            self.reap_one(deadline)?;
        }
    }

    fn reap_one(&mut self, deadline: &Deadline) -> Result<(), PipeError> {
        let left = deadline.left();
        match self.pipes.reap(left)? {
            Some(reaped) => self.note(reaped),
            None if left.is_zero() => return Err(PipeError::Timeout),
            None => {}
        }
        Ok(())
    }

    fn note(&mut self, Reaped { transfer, moved, end }: Reaped) {
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.transfer == transfer) {
            (lane.state, lane.moved) = (State::Back(end), moved);
        }
    }

    /// Takes the status transfer back; gives whether it has come with something after all, which is then kept.
    pub(super) fn withdraw_status(&mut self) -> Result<bool, PipeError> {
        self.withdraw()?;
        let lane = self.lane(Part::Status);
        let is_here = lane.moved > 0 && matches!(lane.state, State::Back(TransferEnd::Completed));
        if !is_here {
            lane.state = State::Idle;
        }
        Ok(is_here)
    }

    /// Takes everything back and forgets it.
    pub(super) fn withdraw_all(&mut self) -> Result<(), PipeError> {
        self.withdraw()?;
        for part in Part::ALL {
            self.lane(part).state = State::Idle;
        }
        Ok(())
    }

    /// After this nothing is in flight, or an error says why not.
    ///
    /// The youngest is cancelled first: else what is behind a cancelled transfer is the next on its pipe for a moment,
    /// and data could arrive where the device waits for the wrapper.
    fn withdraw(&mut self) -> Result<(), PipeError> {
        for lane in self.lanes.iter().rev().filter(|lane| lane.is_in_flight()) {
            self.pipes.cancel(lane.transfer);
        }
        let deadline = Deadline::after(WITHDRAW_TIMEOUT);
        while self.lanes.iter().any(Lane::is_in_flight) {
            self.reap_one(&deadline)?;
        }
        Ok(())
    }
}
