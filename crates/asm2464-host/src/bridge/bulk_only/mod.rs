//! The Bulk-Only transport with complete error recovery: one command at a time, as command wrapper, data and status
//! wrapper.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0 ("BOT"): figure 1 (the command flow), figure 2
//! (the status flow), 5.3.3 and 5.3.4 (what to do on a stall, an invalid status, a phase error), 6.3 (what makes a
//! CSW valid and meaningful), 6.7 (the thirteen cases of what host and device expect of the data).

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use asm2464::scsi::bot::{CBW_LEN, CSW_LEN, CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464::scsi::{Cdb, Command, Lun, SENSE_LEN, ScsiStatus, Sense};
use tracing::{debug, info};

use super::error::{PREPARING, TransportError, TransportErrorKind, still_in_flight};
use super::pipes::{self, Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};
use super::transport::{CommandEnd, JobData, Workload};
use super::{Transport, TransportKind, log};

/// Time limit of the class reset, a control request without data.
const RESET_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of REQUEST SENSE. It follows the command, whose own deadline may be used up.
const SENSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the host controller may take to return cancelled transfers.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// The Bulk-Only engine over a device's pipes.
///
/// A command's wrapper, data and status are submitted together, and the host controller keeps their order on each pipe.
/// So the unit never waits for this process between them. The next command's wrapper is sent after the previous status
/// has arrived, as the specification demands.
///
/// Every method leaves the device ready for the next command, or returns an error if recovery failed.
#[derive(Debug)]
pub struct BulkOnly<P> {
    pipes: P,
    tag: u32,
    /// The transfers, indexed by [`CommandPart`].
    lanes: [TransferLane; 4],
    /// The unit has left the bus. If it comes back, it is another device.
    is_gone: bool,
}

/// Part of a command that a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandPart {
    Wrapper,
    Data,
    /// The data of the engine's own REQUEST SENSE.
    Sense,
    Status,
}

/// A transfer and its state.
#[derive(Debug)]
struct TransferLane {
    transfer: TransferId,
    state: LaneState,
    /// Bytes moved when the transfer was last in flight, however it ended.
    moved: usize,
}

#[derive(Debug)]
enum LaneState {
    Idle,
    InFlight,
    Back(TransferEnd),
}

impl TransferLane {
    const fn is_in_flight(&self) -> bool {
        matches!(self.state, LaneState::InFlight)
    }
}

/// The data of one command wrapper: its transfer, its endpoint and its length.
#[derive(Debug, Clone, Copy)]
struct Move {
    part: CommandPart,
    endpoint: Endpoint,
    len: usize,
}

impl<P: Pipes> BulkOnly<P> {
    /// Creates an engine over these pipes.
    ///
    /// # Errors
    /// [`PipeError`] if the transfers can't be allocated.
    pub fn new(mut pipes: P) -> Result<Self, PipeError> {
        let mut lane = |capacity: usize| -> Result<TransferLane, PipeError> {
            Ok(TransferLane { transfer: pipes.add_transfer(capacity)?, state: LaneState::Idle, moved: 0 })
        };
        // In the order of `CommandPart`.
        let lanes = [lane(CBW_LEN)?, lane(0)?, lane(SENSE_LEN.into())?, lane(CSW_LEN)?];
        Ok(Self { pipes, tag: 0, lanes, is_gone: false })
    }

    /// Runs one command with its data. Fetches sense data if it failed.
    fn command(&mut self, lun: Lun, cdb: &Cdb, data: JobData, timeout: Duration) -> Result<CommandEnd, TransportError> {
        let data = data.transfer().map(|(endpoint, len)| Move { part: CommandPart::Data, endpoint, len });
        let (transferred, has_passed) = self.transaction(lun, cdb, data, timeout)?;
        if has_passed {
            return Ok(CommandEnd { transferred, status: ScsiStatus::Good, sense: None });
        }
        // Use a separate transfer: the command's data is still in the other.
        let data = Move { part: CommandPart::Sense, endpoint: Endpoint::DataIn, len: SENSE_LEN.into() };
        let request_sense = Command::RequestSense { len: SENSE_LEN }.cdb();
        let (len, has_sense) = self.transaction(lun, &request_sense, Some(data), SENSE_TIMEOUT)?;
        let sense = if has_sense { Sense::parse(&self.buffer(data.part)[..len]) } else { None };
        Ok(CommandEnd { transferred, status: ScsiStatus::CheckCondition, sense })
    }

    /// Runs command wrapper, data and status wrapper: BOT figure 1. Returns the bytes moved, and whether the command
    /// passed. Recovers the device from any error after something was sent, unless the unit is gone.
    fn transaction(
        &mut self,
        lun: Lun,
        cdb: &Cdb,
        data: Option<Move>,
        timeout: Duration,
    ) -> Result<(usize, bool), TransportError> {
        let deadline = pipes::deadline(timeout);
        let expected = data.map_or(0, |data| data.len);
        let transfer_length = u32::try_from(expected).map_err(|_| {
            let what = format!("{expected} bytes do not fit a command wrapper's 32-bit length");
            TransportErrorKind::Protocol(what).during(cdb.name())
        })?;
        self.tag = self.tag.wrapping_add(1);
        let is_out = data.is_some_and(|data| data.endpoint == Endpoint::DataOut);
        let direction = if is_out { Direction::Out } else { Direction::In };
        let wrapper = CommandBlockWrapper { tag: self.tag, transfer_length, direction, lun: lun.into(), cdb: *cdb };
        let transfer = self.transfer(CommandPart::Wrapper);
        self.pipes.put(transfer, &wrapper.to_bytes()).map_err(|error| error.during(cdb.name()))?;

        // A device stalls the OUT pipe on a wrapper that it can't take (6.6.1). It has not begun the command then, so
        // one reset recovery and one retry are safe.
        let mut sent = self.send(data, deadline);
        if sent == Err(PipeError::Stall) {
            self.reset_recovery(cdb)?;
            sent = self.send(data, deadline);
        }
        let answer = sent.map_err(TransportErrorKind::from).and_then(|sent| self.answer(sent, data, deadline));
        answer.map_err(|kind| self.failed(cdb, kind, timeout))
    }

    /// Submits all three transfers, and waits until the device has taken the first. Returns the bytes that it took.
    fn send(&mut self, data: Option<Move>, deadline: Instant) -> Result<usize, PipeError> {
        self.submit_all(data)?;
        self.wait(CommandPart::Wrapper, deadline)
    }

    /// Waits for the data and the status, and checks that the status is meaningful (6.3.2): it has this command's tag
    /// and a possible residue.
    fn answer(
        &mut self,
        sent: usize,
        data: Option<Move>,
        deadline: Instant,
    ) -> Result<(usize, bool), TransportErrorKind> {
        if sent != CBW_LEN {
            let what = format!("the unit took {sent} of the command wrapper's {CBW_LEN} bytes");
            return Err(TransportErrorKind::Protocol(what));
        }
        let mut moved = data.map_or(Ok(0), |data| self.move_data(data, deadline))?;
        let csw = match data.and_then(|data| self.status_in_data(data, moved)) {
            Some(csw) => {
                moved -= CSW_LEN;
                self.withdraw_status()?;
                csw
            }
            None => self.read_status(deadline)?,
        };
        let (expected, residue) = (data.map_or(0, |data| data.len), csw.residue as usize);
        if csw.tag != self.tag {
            return Err(TransportErrorKind::TagMismatch { expected: self.tag, found: csw.tag });
        }
        if csw.status == CswStatus::PhaseError {
            return Err(TransportErrorKind::PhaseError);
        }
        if residue > expected {
            let what = format!("the unit left {residue} bytes of {expected} unmoved");
            return Err(TransportErrorKind::Protocol(what));
        }
        // Don't count bytes that the device reports as moved, but that the pipe has not seen.
        Ok((moved.min(expected - residue), csw.status == CswStatus::Passed))
    }

    /// Waits for the data. Returns the bytes moved, all of them or those up to a stall.
    fn move_data(&mut self, Move { part, endpoint, .. }: Move, deadline: Instant) -> Result<usize, PipeError> {
        match self.wait(part, deadline) {
            Err(PipeError::Stall) => self.clear_data_halt(endpoint).map(|()| self.lane(part).moved),
            outcome => outcome,
        }
    }

    /// Looks for this command's status at the end of its data. If a device ends its data early after whole packets and
    /// sends no empty packet, the data transfer stays open, and the status is the short packet that ends it (6.7.2,
    /// case 5).
    fn status_in_data(&mut self, data: Move, moved: usize) -> Option<CommandStatusWrapper> {
        if data.endpoint != Endpoint::DataIn || moved >= data.len {
            return None;
        }
        let last = self.buffer(data.part).get(moved.checked_sub(CSW_LEN)?..moved)?;
        CommandStatusWrapper::parse(last).ok().filter(|csw| csw.tag == self.tag)
    }

    /// Clears the halt after a stall on the data. The status transfer waits on the same pipe as IN data, so it is
    /// cancelled while the halt is cleared.
    fn clear_data_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        if endpoint == Endpoint::DataOut {
            return self.pipes.clear_halt(endpoint);
        }
        let has_status = self.withdraw_status()?;
        self.pipes.clear_halt(endpoint)?;
        if has_status { Ok(()) } else { self.submit_status() }
    }

    /// Reads the status: BOT figure 2. After a stall, clears the halt and reads once more.
    fn read_status(&mut self, deadline: Instant) -> Result<CommandStatusWrapper, TransportErrorKind> {
        let mut stalled = false;
        let mut empty = false;
        let received = loop {
            match self.wait(CommandPart::Status, deadline) {
                // A device may end data that fills whole packets with an empty packet, which then arrives here.
                Ok(0) if !empty => empty = true,
                Ok(received) => break received,
                Err(PipeError::Stall) if !stalled => {
                    stalled = true;
                    self.pipes.clear_halt(Endpoint::DataIn)?;
                }
                Err(error) => return Err(error.into()),
            }
            self.submit_status()?;
        };
        let status = &self.buffer(CommandPart::Status)[..received];
        CommandStatusWrapper::parse(status).map_err(TransportErrorKind::BadStatus)
    }

    /// Does a reset recovery (BOT 5.3.4): the class reset, then clears both halts. Resets the port if the unit does not
    /// accept that, or if the system does not return the transfers.
    ///
    /// Cancels the command's transfers first. A transfer still on a pipe would move when its halt is cleared, and data
    /// would arrive while the device waits for a wrapper.
    fn reset_recovery(&mut self, cdb: &Cdb) -> Result<(), TransportError> {
        info!("{}: reset recovery: Bulk-Only reset, both pipes' halts cleared", cdb.name());
        let by_class = self
            .withdraw_all()
            .and_then(|()| self.pipes.mass_storage_reset(RESET_TIMEOUT))
            .and_then(|()| self.pipes.clear_halt(Endpoint::DataIn))
            .and_then(|()| self.pipes.clear_halt(Endpoint::DataOut));
        match by_class {
            Ok(()) => Ok(()),
            Err(gone @ PipeError::Disconnected) => Err(gone.during(cdb.name())),
            Err(_) => self.reset_port(cdb),
        }
    }

    fn reset_port(&mut self, cdb: &Cdb) -> Result<(), TransportError> {
        info!("{}: port reset", cdb.name());
        // Transfers that could not be cancelled before return with the reset.
        let reset = self.pipes.reset_port().and_then(|()| self.withdraw_all());
        reset.map_err(|error| error.during(cdb.name()))
    }

    /// Recovers from an error and returns the error to report. Does not recover a device that is gone, and reports one
    /// that leaves during recovery as gone.
    fn failed(&mut self, cdb: &Cdb, kind: TransportErrorKind, timeout: Duration) -> TransportError {
        let kind = match kind {
            TransportErrorKind::Disconnected => {
                // The transfers return by themselves. Those that don't stay in flight: see `run`.
                let _ = self.withdraw_all();
                return kind.during(cdb.name());
            }
            TransportErrorKind::Io(PipeError::Timeout) => TransportErrorKind::Timeout { deadline: timeout },
            kind => kind,
        };
        self.reset_recovery(cdb).err().unwrap_or_else(|| kind.during(cdb.name()))
    }
}

impl<P: Pipes> Transport for BulkOnly<P> {
    fn pipes(&mut self) -> Option<&mut dyn Pipes> {
        Some(&mut self.pipes)
    }

    fn kind(&self) -> TransportKind {
        TransportKind::BulkOnly
    }

    fn max_depth(&self) -> usize {
        1
    }

    fn run(&mut self, workload: &mut dyn Workload, _depth: usize, timeout: Duration) -> Result<(), TransportError> {
        // Happens only if the system returned transfers neither after they were cancelled nor with the port reset. A
        // unit that is gone gets no port reset.
        if self.lanes.iter().any(TransferLane::is_in_flight) {
            return Err(if self.is_gone { PipeError::Disconnected.during(PREPARING) } else { still_in_flight() });
        }
        let len = workload.buffer_len();
        let data = self.transfer(CommandPart::Data);
        self.pipes.reserve(data, len).map_err(|error| error.during(PREPARING))?;
        let is_timed = workload.is_timed() || log::is_on();
        while let Some(job) = workload.next(&mut self.buffer(CommandPart::Data)[..len]) {
            let job = job.clamped(len);
            let started = is_timed.then(Instant::now);
            let completion = self.command(job.lun, &job.cdb, job.data, timeout).inspect_err(|error| {
                debug!("{}: {error}", job.cdb);
                self.is_gone |= error.is_gone();
            })?;
            let elapsed = started.map_or(Duration::ZERO, |started| started.elapsed());
            log::answered(&job, &completion, self.buffer(CommandPart::Data), elapsed);
            let brought = if matches!(job.data, JobData::In(_)) { completion.transferred } else { 0 };
            let data = &self.buffer(CommandPart::Data)[..brought];
            if !workload.complete(&job, &completion, data, elapsed) {
                break;
            }
        }
        Ok(())
    }

    /// Does a reset recovery and checks it with TEST UNIT READY, whose answer does not matter. If that fails, resets
    /// the port and checks again.
    fn recover(&mut self) -> Result<(), TransportError> {
        let cdb = Command::TestUnitReady.cdb();
        let probe = |engine: &mut Self| engine.command(Lun::ZERO, &cdb, JobData::None, SENSE_TIMEOUT).map(drop);
        self.reset_recovery(&cdb)?;
        match probe(self) {
            Err(error) if !error.is_gone() => {
                self.reset_port(&cdb)?;
                probe(self)
            }
            outcome => outcome,
        }
    }
}

impl<P: Pipes> BulkOnly<P> {
    const fn lane(&mut self, part: CommandPart) -> &mut TransferLane {
        &mut self.lanes[part as usize]
    }

    const fn transfer(&self, part: CommandPart) -> TransferId {
        self.lanes[part as usize].transfer
    }

    /// Buffer of a part's transfer; empty while it is in flight.
    fn buffer(&mut self, part: CommandPart) -> &mut [u8] {
        let transfer = self.transfer(part);
        self.pipes.buffer(transfer)
    }

    fn submit(&mut self, part: CommandPart, endpoint: Endpoint, len: usize) -> Result<(), PipeError> {
        let transfer = self.transfer(part);
        self.pipes.submit(transfer, endpoint, 0, len)?;
        self.lane(part).state = LaneState::InFlight;
        Ok(())
    }

    fn submit_status(&mut self) -> Result<(), PipeError> {
        self.submit(CommandPart::Status, Endpoint::DataIn, CSW_LEN)
    }

    /// Submits the whole command, in the order in which its pipes move it.
    fn submit_all(&mut self, data: Option<Move>) -> Result<(), PipeError> {
        self.submit(CommandPart::Wrapper, Endpoint::DataOut, CBW_LEN)?;
        if let Some(Move { part, endpoint, len }) = data {
            self.submit(part, endpoint, len)?;
        }
        self.submit_status()
    }

    /// Waits for one of the parts and returns the bytes moved. Records other parts as they return. Takes transfers that
    /// are already back even after the deadline, because the process may have been suspended meanwhile.
    fn wait(&mut self, part: CommandPart, deadline: Instant) -> Result<usize, PipeError> {
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
    fn withdraw_status(&mut self) -> Result<bool, PipeError> {
        self.withdraw()?;
        let lane = self.lane(CommandPart::Status);
        let has_status = lane.moved > 0 && matches!(lane.state, LaneState::Back(TransferEnd::Completed));
        if !has_status {
            lane.state = LaneState::Idle;
        }
        Ok(has_status)
    }

    /// Cancels all transfers and drops what they brought.
    fn withdraw_all(&mut self) -> Result<(), PipeError> {
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
