//! Bulk-Only: one command at a time, as command wrapper, data, status wrapper, with the whole error recovery.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0 ("BOT"): figure 1 (the command flow), figure 2
//! (the status flow), 5.3.3 and 5.3.4 (what to do on a stall, an invalid status, a phase error), 6.3 (what makes a
//! CSW valid and meaningful), 6.7 (the thirteen cases of host and device disagreeing about the data).

mod recovery;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::error::TransportError;
use super::pipes::{BulkPipes, Endpoint, PipeError};
use super::transport::{Completion, DataPhase, JobData, Transport, TransportKind, Workload};
use crate::scsi::bot::{CSW_LEN, CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use crate::scsi::{Cdb, Command, DataLength, ScsiStatus, Sense};

/// Fixed-format sense data (SPC-4, 4.5.3).
const SENSE_LEN: u8 = 18;
/// How long REQUEST SENSE may take: it comes after the command, whose own deadline may be used up.
const SENSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The Bulk-Only engine over a device's two pipes.
///
/// Every method leaves the device ready for the next command, or says that nothing helped.
#[derive(Debug)]
pub struct BulkOnly<P> {
    pipes: P,
    tag: u32,
    buffer: Vec<u8>,
}

/// How one command wrapper was answered.
struct Answer {
    transferred: usize,
    status: CswStatus,
}

impl<P: BulkPipes> BulkOnly<P> {
    /// An engine over these pipes.
    pub fn new(pipes: P) -> Self {
        Self { pipes, tag: 0, buffer: Vec::new() }
    }

    /// The pipes, for what is not Bulk-Only's.
    pub fn pipes_mut(&mut self) -> &mut P {
        &mut self.pipes
    }

    /// Gives the pipes back.
    pub fn into_pipes(self) -> P {
        self.pipes
    }

    /// One command with its data, and its sense data where it failed.
    fn command(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<Completion, TransportError> {
        let answer = self.transaction(cdb, data, timeout)?;
        let (status, sense) = match answer.status {
            CswStatus::Passed => (ScsiStatus::Good, None),
            CswStatus::Failed => (ScsiStatus::CheckCondition, self.request_sense(cdb)?),
            CswStatus::PhaseError => {
                self.reset_recovery(cdb)?;
                return Err(TransportError::PhaseError { command: cdb.name() });
            }
        };
        Ok(Completion { transferred: answer.transferred, status, sense })
    }

    /// Command wrapper, data, status wrapper: BOT figure 1.
    fn transaction(&mut self, cdb: &Cdb, mut data: DataPhase<'_>, timeout: Duration) -> Result<Answer, TransportError> {
        let deadline = Deadline::after(timeout);
        let expected = data.len();
        let transfer_length = u32::try_from(expected).map_err(|_| TransportError::Protocol {
            command: cdb.name(),
            what: format!("{expected} bytes do not fit a command wrapper's 32-bit length"),
        })?;
        self.tag = self.tag.wrapping_add(1);
        let tag = self.tag;
        let direction = if matches!(data, DataPhase::Out(_)) { Direction::Out } else { Direction::In };
        let wrapper = CommandBlockWrapper { tag, transfer_length, direction, lun: 0, cdb: *cdb };

        self.send_wrapper(cdb, &wrapper, &deadline)?;
        let moved = self.move_data(cdb, &mut data, &deadline)?;
        let csw = self.read_status(cdb, &deadline)?;
        self.check_status(cdb, tag, transfer_length, &csw)?;

        // After a stall the pipe does not say how much it moved: the residue does.
        let by_residue = expected.saturating_sub(csw.residue as usize);
        let transferred = moved.map_or(by_residue, |moved| moved.min(by_residue));
        Ok(Answer { transferred, status: csw.status })
    }

    /// A device stalls the OUT pipe on a wrapper that it can't take (6.6.1): it has not begun the command, so one
    /// reset recovery and one more try are safe.
    fn send_wrapper(
        &mut self,
        cdb: &Cdb,
        wrapper: &CommandBlockWrapper,
        deadline: &Deadline,
    ) -> Result<(), TransportError> {
        let bytes = wrapper.to_bytes();
        let mut outcome = self.pipes.write(&bytes, deadline.left());
        if outcome == Err(PipeError::Stall) {
            self.reset_recovery(cdb)?;
            outcome = self.pipes.write(&bytes, deadline.left());
        }
        match outcome {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(sent) => Err(self.broken(cdb, format!("the unit took {sent} of the command wrapper's 31 bytes"))),
            Err(error) => Err(self.failed(cdb, error, deadline)),
        }
    }

    /// The bytes moved, or `None` where a stall ended the data and only the residue tells.
    fn move_data(
        &mut self,
        cdb: &Cdb,
        data: &mut DataPhase<'_>,
        deadline: &Deadline,
    ) -> Result<Option<usize>, TransportError> {
        let (outcome, endpoint) = match data {
            DataPhase::None => return Ok(Some(0)),
            DataPhase::In([]) => return Ok(Some(0)),
            DataPhase::Out([]) => return Ok(Some(0)),
            DataPhase::In(buffer) => (self.pipes.read(buffer, deadline.left()), Endpoint::DataIn),
            DataPhase::Out(data) => (self.pipes.write(data, deadline.left()), Endpoint::DataOut),
        };
        match outcome {
            Ok(moved) => Ok(Some(moved)),
            Err(PipeError::Stall) => match self.pipes.clear_halt(endpoint) {
                Ok(()) => Ok(None),
                Err(error) => Err(self.failed(cdb, error, deadline)),
            },
            Err(error) => Err(self.failed(cdb, error, deadline)),
        }
    }

    /// BOT figure 2: a stall in place of the status is cleared and the status read once more.
    fn read_status(&mut self, cdb: &Cdb, deadline: &Deadline) -> Result<CommandStatusWrapper, TransportError> {
        let mut bytes = [0; CSW_LEN];
        let mut stalled = false;
        let mut empty = false;
        let received = loop {
            match self.pipes.read(&mut bytes, deadline.left()) {
                // A device may end data that fill whole packets with an empty one, which then arrives here.
                Ok(0) if !empty => empty = true,
                Ok(received) => break received,
                Err(PipeError::Stall) if !stalled => {
                    stalled = true;
                    if let Err(error) = self.pipes.clear_halt(Endpoint::DataIn) {
                        return Err(self.failed(cdb, error, deadline));
                    }
                }
                Err(error) => return Err(self.failed(cdb, error, deadline)),
            }
        };
        match CommandStatusWrapper::parse(&bytes[..received]) {
            Ok(csw) => Ok(csw),
            Err(source) => {
                self.reset_recovery(cdb)?;
                Err(TransportError::BadStatus { command: cdb.name(), source })
            }
        }
    }

    /// What makes a valid CSW meaningful (6.3.2): the tag of this command, and a residue that fits it.
    fn check_status(
        &mut self,
        cdb: &Cdb,
        tag: u32,
        transfer_length: u32,
        csw: &CommandStatusWrapper,
    ) -> Result<(), TransportError> {
        if csw.tag != tag {
            self.reset_recovery(cdb)?;
            return Err(TransportError::TagMismatch { command: cdb.name(), expected: tag, found: csw.tag });
        }
        if csw.status != CswStatus::PhaseError && csw.residue > transfer_length {
            let residue = csw.residue;
            return Err(self.broken(cdb, format!("the unit left {residue} bytes of {transfer_length} unmoved")));
        }
        Ok(())
    }

    /// The sense data of the command that has just failed; `None` where the unit has none to give.
    fn request_sense(&mut self, failed: &Cdb) -> Result<Option<Sense>, TransportError> {
        let mut data = [0; SENSE_LEN as usize];
        let command = Command::RequestSense { len: SENSE_LEN };
        let answer = self.transaction(&command.cdb(), DataPhase::In(&mut data), SENSE_TIMEOUT)?;
        match answer.status {
            CswStatus::Passed => Ok(Sense::parse(&data[..answer.transferred])),
            CswStatus::Failed => Ok(None),
            CswStatus::PhaseError => {
                self.reset_recovery(failed)?;
                Err(TransportError::PhaseError { command: command.name().to_owned() })
            }
        }
    }
}

impl<P: BulkPipes> Transport for BulkOnly<P> {
    fn kind(&self) -> TransportKind {
        TransportKind::BulkOnly
    }

    fn max_depth(&self) -> usize {
        1
    }

    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<Completion, TransportError> {
        self.command(cdb, data, timeout)
    }

    fn run(&mut self, workload: &mut dyn Workload, _depth: usize, timeout: Duration) -> Result<(), TransportError> {
        // Taken out for the run, so that it can be lent together with the pipes; put back for the next one.
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(workload.buffer_len()), 0);
        let outcome = self.run_with(&mut buffer, workload, timeout);
        self.buffer = buffer;
        outcome
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        self.bring_back()
    }
}

impl<P: BulkPipes> BulkOnly<P> {
    fn run_with(
        &mut self,
        buffer: &mut [u8],
        workload: &mut dyn Workload,
        timeout: Duration,
    ) -> Result<(), TransportError> {
        let slot = workload.buffer_len();
        while let Some(job) = workload.next(&mut buffer[..slot]) {
            let started = Instant::now();
            let data = match job.data {
                JobData::None => DataPhase::None,
                JobData::In(len) => DataPhase::In(&mut buffer[..len.min(slot)]),
                JobData::Out(len) => DataPhase::Out(&buffer[..len.min(slot)]),
            };
            let completion = self.command(&job.cdb, data, timeout)?;
            let brought = if matches!(job.data, JobData::In(_)) { completion.transferred } else { 0 };
            if !workload.complete(&job, &completion, &buffer[..brought], started.elapsed()) {
                break;
            }
        }
        Ok(())
    }

    /// Sends one TEST UNIT READY: whether the wire carries commands again, whatever the unit answers.
    fn probe(&mut self) -> Result<(), TransportError> {
        let command = Command::TestUnitReady;
        debug_assert_eq!(command.data(), DataLength::None);
        self.command(&command.cdb(), DataPhase::None, SENSE_TIMEOUT).map(drop)
    }
}

/// When a command has to have ended.
struct Deadline {
    at: Instant,
    whole: Duration,
}

impl Deadline {
    fn after(whole: Duration) -> Self {
        Self { at: Instant::now() + whole, whole }
    }

    /// The time left, at least a millisecond: to libusb 0 means for ever.
    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}
