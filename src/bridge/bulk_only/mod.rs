//! The Bulk-Only transport with complete error recovery: one command at a time, as command wrapper, data and status
//! wrapper.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0 ("BOT"): figure 1 (the command flow), figure 2
//! (the status flow), 5.3.3 and 5.3.4 (what to do on a stall, an invalid status, a phase error), 6.3 (what makes a
//! CSW valid and meaningful), 6.7 (the thirteen cases of host and device disagreeing about the data).

mod flight;
mod recovery;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use tracing::debug;

use super::error::{TransportError, TransportErrorKind};
use super::log;
use super::pipes::{Endpoint, PipeError, Pipes};
use super::transport::{Transport, TransportKind};
use super::workload::{Completion, JobData, Workload};
use crate::chip::Simulated;
use crate::scsi::bot::{CBW_LEN, CSW_LEN, CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use crate::scsi::{Cdb, Command, SENSE_LEN, ScsiStatus, Sense};
use flight::{TransferLane, TransferPurpose};

/// Fixed-format sense data (SPC-4, 4.5.3).
/// Time limit of REQUEST SENSE. It follows the command, whose own deadline may be used up.
const SENSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The Bulk-Only engine over a device's pipes.
///
/// A command's wrapper, data and status are submitted together, and the host controller keeps their order on each pipe.
/// The command does not wait for this process between them. The next command's wrapper is sent after the previous
/// status has arrived, as the specification demands.
///
/// Every method leaves the device ready for the next command, or returns an error if recovery failed.
#[derive(Debug)]
pub struct BulkOnly<P> {
    pipes: P,
    tag: u32,
    /// The transfers, indexed by [`TransferPurpose`].
    lanes: [TransferLane; TransferPurpose::COUNT],
}

/// Answer to one command wrapper.
struct EndedWrapper {
    transferred: usize,
    status: CswStatus,
}

/// The data of one command wrapper: its transfer, its endpoint and its length.
#[derive(Debug, Clone, Copy)]
struct Move {
    part: TransferPurpose,
    endpoint: Endpoint,
    len: usize,
}

impl<P: Pipes> BulkOnly<P> {
    /// Creates an engine over these pipes.
    ///
    /// # Errors
    /// [`PipeError`] if the transfers can't be allocated.
    pub fn new(mut pipes: P) -> Result<Self, PipeError> {
        let mut lane = |capacity: usize| pipes.add_transfer(capacity).map(TransferLane::new);
        // In the order of `TransferPurpose`.
        let lanes = [lane(CBW_LEN)?, lane(0)?, lane(SENSE_LEN.into())?, lane(CSW_LEN)?];
        Ok(Self { pipes, tag: 0, lanes })
    }

    /// The pipes, for requests outside Bulk-Only.
    pub fn pipes_mut(&mut self) -> &mut P {
        &mut self.pipes
    }

    /// Runs one command with its data. Fetches sense data if it failed.
    fn command(&mut self, cdb: &Cdb, data: JobData, timeout: Duration) -> Result<Completion, TransportError> {
        let data = data.transfer().map(|(endpoint, len)| Move { part: TransferPurpose::Data, endpoint, len });
        let answer = self.transaction(cdb, data, timeout)?;
        let (status, sense) = match answer.status {
            CswStatus::Passed => (ScsiStatus::Good, None),
            CswStatus::Failed => (ScsiStatus::CheckCondition, self.request_sense(cdb)?),
            CswStatus::PhaseError => {
                self.reset_recovery(cdb)?;
                return Err(TransportErrorKind::PhaseError.during(cdb));
            }
        };
        Ok(Completion { transferred: answer.transferred, status, sense })
    }

    /// Runs command wrapper, data and status wrapper: BOT figure 1.
    fn transaction(
        &mut self,
        cdb: &Cdb,
        data: Option<Move>,
        timeout: Duration,
    ) -> Result<EndedWrapper, TransportError> {
        let deadline = CommandDeadline::after(timeout);
        let expected = data.map_or(0, |data| data.len);
        let transfer_length = u32::try_from(expected).map_err(|_| {
            let what = format!("{expected} bytes do not fit a command wrapper's 32-bit length");
            TransportErrorKind::Protocol(what).during(cdb)
        })?;
        self.tag = self.tag.wrapping_add(1);
        let tag = self.tag;
        let is_out = data.is_some_and(|data| data.endpoint == Endpoint::DataOut);
        let direction = if is_out { Direction::Out } else { Direction::In };
        let wrapper = CommandBlockWrapper { tag, transfer_length, direction, lun: 0, cdb: *cdb };
        let transfer = self.transfer(TransferPurpose::Wrapper);
        self.pipes.put(transfer, &wrapper.to_bytes()).map_err(|error| TransportErrorKind::from(error).during(cdb))?;

        self.send_wrapper(cdb, data, &deadline)?;
        let mut moved = self.move_data(cdb, data, &deadline)?;
        let csw = match data.and_then(|data| self.status_in_data(data, moved, tag)) {
            Some(csw) => {
                moved -= CSW_LEN;
                self.withdraw_status().map_err(|error| self.failed(cdb, error, &deadline))?;
                csw
            }
            None => self.read_status(cdb, &deadline)?,
        };
        self.check_status(cdb, tag, transfer_length, &csw)?;

        // Bytes that the device reports as moved but the pipe has not seen did not move.
        let transferred = moved.min(expected.saturating_sub(csw.residue as usize));
        Ok(EndedWrapper { transferred, status: csw.status })
    }

    /// Submits all three transfers, and waits until the device has taken the first.
    ///
    /// A device stalls the OUT pipe on a wrapper that it can't take (6.6.1). It has not begun the command then, so one
    /// reset recovery and one retry are safe.
    fn send_wrapper(
        &mut self,
        cdb: &Cdb,
        data: Option<Move>,
        deadline: &CommandDeadline,
    ) -> Result<(), TransportError> {
        let mut outcome = self.submit_all(data).and_then(|()| self.wait(TransferPurpose::Wrapper, deadline));
        if outcome == Err(PipeError::Stall) {
            self.reset_recovery(cdb)?;
            outcome = self.submit_all(data).and_then(|()| self.wait(TransferPurpose::Wrapper, deadline));
        }
        match outcome {
            Ok(CBW_LEN) => Ok(()),
            Ok(sent) => Err(self.broken(cdb, format!("the unit took {sent} of the command wrapper's {CBW_LEN} bytes"))),
            Err(error) => Err(self.failed(cdb, error, deadline)),
        }
    }

    /// Waits for the data. Returns the bytes moved, all of them or those up to a stall.
    fn move_data(
        &mut self,
        cdb: &Cdb,
        data: Option<Move>,
        deadline: &CommandDeadline,
    ) -> Result<usize, TransportError> {
        let Some(Move { part, endpoint, .. }) = data else { return Ok(0) };
        match self.wait(part, deadline) {
            Ok(moved) => Ok(moved),
            Err(PipeError::Stall) => match self.clear_data_halt(endpoint) {
                Ok(()) => Ok(self.moved(part)),
                Err(error) => Err(self.failed(cdb, error, deadline)),
            },
            Err(error) => Err(self.failed(cdb, error, deadline)),
        }
    }

    /// Looks for this command's status at the end of its data. If a device ends its data early after whole packets and
    /// sends no empty packet, the data transfer stays open, and the status is the short packet that ends it (6.7.2,
    /// case 5).
    fn status_in_data(&mut self, data: Move, moved: usize, tag: u32) -> Option<CommandStatusWrapper> {
        if data.endpoint != Endpoint::DataIn || moved >= data.len {
            return None;
        }
        let last = self.buffer(data.part).get(moved.checked_sub(CSW_LEN)?..moved)?;
        CommandStatusWrapper::parse(last).ok().filter(|csw| csw.tag == tag)
    }

    /// Clears the halt after a stall on the data. The status transfer waits on the same pipe as IN data, so it is
    /// cancelled while the halt is cleared.
    fn clear_data_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        if endpoint == Endpoint::DataOut {
            return self.pipes.clear_halt(endpoint);
        }
        let is_here = self.withdraw_status()?;
        self.pipes.clear_halt(endpoint)?;
        if is_here { Ok(()) } else { self.submit_status() }
    }

    /// Reads the status: BOT figure 2. Clears a stall in its place, and reads it once more.
    fn read_status(&mut self, cdb: &Cdb, deadline: &CommandDeadline) -> Result<CommandStatusWrapper, TransportError> {
        let mut stalled = false;
        let mut empty = false;
        let received = loop {
            let again = match self.wait(TransferPurpose::Status, deadline) {
                // A device may end data that fills whole packets with an empty packet, which then arrives here.
                Ok(0) if !empty => {
                    empty = true;
                    self.submit_status()
                }
                Ok(received) => break received,
                Err(PipeError::Stall) if !stalled => {
                    stalled = true;
                    self.pipes.clear_halt(Endpoint::DataIn).and_then(|()| self.submit_status())
                }
                Err(error) => Err(error),
            };
            again.map_err(|error| self.failed(cdb, error, deadline))?;
        };
        match CommandStatusWrapper::parse(&self.buffer(TransferPurpose::Status)[..received]) {
            Ok(csw) => Ok(csw),
            Err(error) => {
                self.reset_recovery(cdb)?;
                Err(TransportErrorKind::BadStatus(error).during(cdb))
            }
        }
    }

    /// Checks that a valid CSW is meaningful (6.3.2): it has this command's tag and a possible residue.
    fn check_status(
        &mut self,
        cdb: &Cdb,
        tag: u32,
        transfer_length: u32,
        csw: &CommandStatusWrapper,
    ) -> Result<(), TransportError> {
        if csw.tag != tag {
            self.reset_recovery(cdb)?;
            return Err(TransportErrorKind::TagMismatch { expected: tag, found: csw.tag }.during(cdb));
        }
        if csw.status != CswStatus::PhaseError && csw.residue > transfer_length {
            let residue = csw.residue;
            return Err(self.broken(cdb, format!("the unit left {residue} bytes of {transfer_length} unmoved")));
        }
        Ok(())
    }

    /// Fetches the sense data of the command that has just failed; `None` if the unit has none.
    fn request_sense(&mut self, failed: &Cdb) -> Result<Option<Sense>, TransportError> {
        let command = Command::RequestSense { len: SENSE_LEN };
        // Use a separate transfer: the command's data is still in the other.
        let data = Move { part: TransferPurpose::Sense, endpoint: Endpoint::DataIn, len: SENSE_LEN.into() };
        let answer = self.transaction(&command.cdb(), Some(data), SENSE_TIMEOUT)?;
        match answer.status {
            CswStatus::Passed => Ok(Sense::parse(&self.buffer(TransferPurpose::Sense)[..answer.transferred])),
            CswStatus::Failed => Ok(None),
            CswStatus::PhaseError => {
                self.reset_recovery(failed)?;
                Err(TransportErrorKind::PhaseError.during(command.cdb()))
            }
        }
    }
}

impl<P: Pipes> Transport for BulkOnly<P> {
    fn simulated(&self) -> Option<Simulated> {
        self.pipes.simulated()
    }

    fn kind(&self) -> TransportKind {
        TransportKind::BulkOnly
    }

    fn max_depth(&self) -> usize {
        1
    }

    fn run(&mut self, workload: &mut dyn Workload, _depth: usize, timeout: Duration) -> Result<(), TransportError> {
        let len = workload.buffer_len();
        let data = self.transfer(TransferPurpose::Data);
        self.pipes.reserve(data, len).map_err(|error| TransportErrorKind::from(error).during("preparing the queue"))?;
        let is_timed = workload.is_timed() || log::is_on();
        while let Some(job) = workload.next(&mut self.buffer(TransferPurpose::Data)[..len]) {
            let job = job.clamped(len);
            let started = is_timed.then(Instant::now);
            let completion =
                self.command(&job.cdb, job.data, timeout).inspect_err(|error| debug!("{}: {error}", job.cdb))?;
            let elapsed = started.map_or(Duration::ZERO, |started| started.elapsed());
            log::answered(&job, &completion, self.buffer(TransferPurpose::Data), elapsed);
            let brought = if matches!(job.data, JobData::In(_)) { completion.transferred } else { 0 };
            let data = &self.buffer(TransferPurpose::Data)[..brought];
            if !workload.complete(&job, &completion, data, elapsed) {
                break;
            }
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        self.bring_back()
    }

    fn answers_control(&mut self) -> bool {
        self.pipes.answers_control()
    }
}

impl<P: Pipes> BulkOnly<P> {
    /// Sends one TEST UNIT READY to check that the wire carries commands again. The unit's answer does not matter.
    fn probe(&mut self) -> Result<(), TransportError> {
        self.command(&Command::TestUnitReady.cdb(), JobData::None, SENSE_TIMEOUT).map(drop)
    }
}

/// Deadline of a command.
struct CommandDeadline {
    at: Instant,
    whole: Duration,
}

impl CommandDeadline {
    fn after(whole: Duration) -> Self {
        Self { at: Instant::now() + whole, whole }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}
