//! USB Attached SCSI: many commands in flight, each with a tag, ending in any order.
//!
//! With streams (SuperSpeed) a tag's data and status move on the stream of the same number, and their transfers are
//! submitted together with the command. Without (high speed) one status transfer serves every tag, and READ READY or
//! WRITE READY says whose data moves next. Source: UAS-3 (T10/2095-D), clauses 4 to 6.
//!
//! Each command in flight is in a tag's slot. Keeping the slots full is the hot path: nothing there allocates or copies
//! data.
//!
//! After an error the host's transfers are cancelled and the port is reset. Task management does not help: 240417 answers
//! ABORT TASK and LOGICAL UNIT RESET with "complete" and changes nothing. The command stays in its slot, its tag stays
//! taken, and its status may still arrive. Source: executed on the chip model.

use std::time::{Duration, Instant};

use asm2464::scsi::uas::{COMMAND_IU_LEN, CommandIu, StatusIu, Tag};
use asm2464::scsi::{Command, ScsiStatus, Sense};
use tracing::{debug, info};

use super::error::{PREPARING, TransportError, TransportErrorKind, still_in_flight};
use super::pipes::{self, Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};
use super::transport::{CommandEnd, DataPhase, Job, JobData, Workload};
use super::{Transport, TransportKind, log};

/// Name of the queue's activity in errors.
const QUEUE: &str = "the queue";
/// Name of the shared status transfer's activity in errors.
const WAITING: &str = "waiting for a status";
/// Maximum number of commands in flight. The chip has one more slot, because it may still hold a command whose end
/// the host has already seen.
const MAX_DEPTH: usize = 31;
/// A sense IU with 252 bytes of sense data, the most that SPC-4 allows, in whole packets of any speed.
const STATUS_LEN: usize = 1024;
/// Time that data may take after its status. Data that has not arrived by then does not come.
const DATA_AFTER_STATUS: Duration = Duration::from_millis(500);
/// Time limit of one of the engine's own commands.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a cancelled transfer may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the host controller may take to return cancelled transfers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait if no transfer in flight has an earlier deadline.
const IDLE: Duration = Duration::from_secs(1);

/// The UAS engine over a device's pipes.
#[derive(Debug)]
pub struct Uas<P> {
    pipes: P,
    /// Slot n has tag n + 1.
    slots: Vec<UasSlot>,
    /// Purpose of each transfer, by its number.
    roles: Vec<Role>,
    /// Without streams: the one transfer that receives every tag's status.
    shared_status: Option<TransferId>,
    is_shared_status_out: bool,
    free: Vec<usize>,
    /// Number of slots with a stream: all of them, until a port reset leaves fewer.
    depth: usize,
    in_flight: usize,
}

/// Purpose of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// One of the transfers of this slot.
    Own(usize, CommandPart),
    SharedStatus,
}

/// Part of a command that a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandPart {
    Command,
    Data,
    Status,
}

/// A tag's transfers and command.
#[derive(Debug)]
struct UasSlot {
    /// The transfers, indexed by [`CommandPart`]. Without streams all slots share the status's.
    transfers: [TransferId; 3],
    busy: Option<Busy>,
}

impl UasSlot {
    /// Records that one of the transfers is back. Returns its command in flight, if there is one.
    fn take_back(&mut self, part: CommandPart) -> Option<&mut Busy> {
        let busy = self.busy.as_mut()?;
        busy.is_out[part as usize] = false;
        Some(busy)
    }
}

/// A command in flight.
#[derive(Debug)]
struct Busy {
    job: Job,
    /// Start time, if the workload is timed.
    started: Option<Instant>,
    /// Deadline, set when the engine first waits for the command: reading the clock can cost as much as a transfer.
    deadline: Option<Instant>,
    timeout: Duration,
    /// Whether a transfer is in flight, indexed by [`CommandPart`].
    is_out: [bool; 3],
    moved: usize,
    end: Option<(ScsiStatus, Option<Sense>)>,
    data_was_ready: bool,
    /// Whether the command's transfers were cancelled.
    is_cancelled: bool,
}

impl Busy {
    /// Records that the command's transfers were cancelled.
    fn cancel(&mut self, now: Instant) {
        self.is_cancelled = true;
        self.deadline = Some(now + CANCEL_TIMEOUT);
    }

    /// Whether the status has arrived and every transfer is back.
    fn has_ended(&self) -> bool {
        self.end.is_some() && !self.is_out.contains(&true)
    }
}

impl<P> Uas<P> {
    /// Returns the device's pipes.
    pub fn pipes(&self) -> &P {
        &self.pipes
    }
}

impl<P: Pipes> Uas<P> {
    /// Creates an engine over these pipes.
    ///
    /// # Errors
    /// [`PipeError`] if the transfers can't be allocated.
    pub fn new(mut pipes: P) -> Result<Self, PipeError> {
        let streams = usize::from(pipes.streams());
        let depth = depth_with(streams, MAX_DEPTH);
        let mut roles = Vec::new();
        let mut add = |role: Role, capacity: usize| -> Result<TransferId, PipeError> {
            let transfer = pipes.add_transfer(capacity)?;
            roles.resize(roles.len().max(transfer.0 + 1), role);
            roles[transfer.0] = role;
            Ok(transfer)
        };
        let shared_status = if streams == 0 { Some(add(Role::SharedStatus, STATUS_LEN)?) } else { None };
        let mut slots = Vec::with_capacity(depth);
        for slot in 0..depth {
            let command = add(Role::Own(slot, CommandPart::Command), COMMAND_IU_LEN)?;
            let data = add(Role::Own(slot, CommandPart::Data), 0)?;
            let status = match shared_status {
                Some(shared) => shared,
                None => add(Role::Own(slot, CommandPart::Status), STATUS_LEN)?,
            };
            slots.push(UasSlot { transfers: [command, data, status], busy: None });
        }
        let free = Vec::with_capacity(depth);
        Ok(Self { pipes, slots, roles, shared_status, is_shared_status_out: false, free, depth, in_flight: 0 })
    }

    const fn has_streams(&self) -> bool {
        self.shared_status.is_none()
    }

    /// Sends one command and submits the transfers of its status and data.
    fn start(&mut self, at: usize, job: Job, timeout: Duration, is_timed: bool) -> Result<(), TransportError> {
        let started = is_timed.then(Instant::now);
        self.slots[at].busy = Some(Busy {
            job,
            started,
            deadline: None,
            timeout,
            is_out: [false; 3],
            moved: 0,
            end: None,
            data_was_ready: false,
            is_cancelled: false,
        });
        self.in_flight += 1;

        // Submit status and data first: the device may answer before the command's own transfer returns.
        if self.has_streams() {
            self.submit(at, Endpoint::Status, STATUS_LEN)?;
            if let Some((endpoint, len)) = job.data.transfer() {
                self.submit(at, endpoint, len)?;
            }
        } else {
            self.ask_for_status()?;
        }
        let unit = CommandIu { tag: tag_of(at), lun: job.lun.into(), cdb: job.cdb }.to_bytes();
        let command = self.transfer(at, CommandPart::Command);
        self.pipes.put(command, &unit).map_err(|error| self.error_at(at, error))?;
        self.submit(at, Endpoint::Command, unit.len())
    }

    fn transfer(&self, at: usize, part: CommandPart) -> TransferId {
        self.slots[at].transfers[part as usize]
    }

    /// Submits a slot's transfer for this endpoint.
    fn submit(&mut self, at: usize, endpoint: Endpoint, len: usize) -> Result<(), TransportError> {
        let part = match endpoint {
            Endpoint::Command => CommandPart::Command,
            Endpoint::DataIn | Endpoint::DataOut => CommandPart::Data,
            Endpoint::Status => CommandPart::Status,
        };
        let transfer = self.transfer(at, part);
        let stream = if self.has_streams() && endpoint != Endpoint::Command { tag_of(at).0 } else { 0 };
        self.pipes.submit(transfer, endpoint, stream, len).map_err(|error| self.error_at(at, error))?;
        if let Some(busy) = &mut self.slots[at].busy {
            busy.is_out[part as usize] = true;
        }
        Ok(())
    }

    /// Without streams: submits the status transfer whenever a command is in flight.
    fn ask_for_status(&mut self) -> Result<(), TransportError> {
        if self.is_shared_status_out {
            return Ok(());
        }
        let Some(shared) = self.shared_status else { return Ok(()) };
        self.pipes
            .submit(shared, Endpoint::Status, 0, STATUS_LEN)
            .map_err(|error| error.during("asking for a status"))?;
        self.is_shared_status_out = true;
        Ok(())
    }

    /// Handles a returned transfer. Returns the slot of the command that ended with it.
    fn take(&mut self, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        match self.roles.get(reaped.transfer.0) {
            Some(&Role::Own(at, part)) => self.take_own(at, part, reaped),
            Some(Role::SharedStatus) => self.take_shared_status(reaped),
            None => Ok(None),
        }
    }

    fn take_own(&mut self, at: usize, part: CommandPart, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        let Some(busy) = self.slots[at].take_back(part) else { return Ok(None) };
        if part == CommandPart::Data {
            busy.moved = reaped.moved;
        }
        let ended = busy.has_ended().then_some(at);
        let failed = match &reaped.end {
            TransferEnd::Completed if part == CommandPart::Status => return self.take_own_status(at, reaped),
            TransferEnd::Completed if part == CommandPart::Command && reaped.moved != COMMAND_IU_LEN => {
                let what = format!("the unit took {} of the command IU's {COMMAND_IU_LEN} bytes", reaped.moved);
                TransportErrorKind::Protocol(what)
            }
            TransferEnd::Completed => return Ok(ended),
            TransferEnd::Cancelled if part == CommandPart::Data && busy.is_cancelled => return Ok(ended),
            // Nobody cancelled it. macOS cancels all transfers of an endpoint, or of its stream, together; without
            // streams these are every command's. Source: libusb 1.0.27, `darwin_abort_transfers`.
            TransferEnd::Cancelled => {
                PipeError::Other("the system cancelled it together with another command".to_owned()).into()
            }
            // The device sends no more on this pipe. Its status says why.
            TransferEnd::Failed(PipeError::Stall) if part == CommandPart::Data => {
                let endpoint = busy.job.data.transfer().map_or(Endpoint::DataIn, |(endpoint, _)| endpoint);
                if self.has_data_on(endpoint) {
                    // The other commands' data can't stay on a pipe that starts over, so all commands end.
                    return Err(self.error_at(at, PipeError::Stall));
                }
                self.pipes.clear_halt(endpoint).map_err(|error| self.error_at(at, error))?;
                return Ok(ended);
            }
            TransferEnd::Failed(error) => error.clone().into(),
        };
        Err(self.error_at(at, failed))
    }

    fn take_own_status(&mut self, at: usize, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        let unit = self.unit_in(reaped).map_err(|kind| self.error_at(at, kind))?;
        let (expected, found) = (tag_of(at), tag_in(&unit));
        if found != expected {
            let (expected, found) = (expected.0.into(), found.0.into());
            return Err(self.error_at(at, TransportErrorKind::TagMismatch { expected, found }));
        }
        self.take_unit(at, unit)
    }

    fn take_shared_status(&mut self, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        self.is_shared_status_out = false;
        match &reaped.end {
            TransferEnd::Completed => {}
            TransferEnd::Cancelled => return Ok(None),
            TransferEnd::Failed(error) => return Err(error.clone().during(WAITING)),
        }
        let unit = self.unit_in(reaped).map_err(|kind| kind.during(WAITING))?;
        let found = tag_in(&unit);
        let at = usize::from(found.0).wrapping_sub(1);
        if self.slots.get(at).is_none_or(|slot| slot.busy.is_none()) {
            let what = format!("the unit answered tag {:#x}, which was not sent", found.0);
            return Err(TransportErrorKind::Protocol(what).during(WAITING));
        }
        let ended = self.take_unit(at, unit)?;
        if self.in_flight > usize::from(ended.is_some()) {
            self.ask_for_status()?;
        }
        Ok(ended)
    }

    fn unit_in(&mut self, reaped: &Reaped) -> Result<StatusIu, TransportErrorKind> {
        let buffer = self.pipes.buffer(reaped.transfer);
        let unit = StatusIu::parse(&buffer[..reaped.moved.min(buffer.len())]);
        unit.map_err(|error| TransportErrorKind::Protocol(error.to_string()))
    }

    /// Handles an information unit for a command in flight.
    fn take_unit(&mut self, at: usize, unit: StatusIu) -> Result<Option<usize>, TransportError> {
        let data = self.transfer(at, CommandPart::Data);
        let Some(busy) = &mut self.slots[at].busy else { return Ok(None) };
        match unit {
            StatusIu::Sense { status, sense, .. } => {
                let sense = if status == ScsiStatus::CheckCondition { Sense::parse(&sense) } else { None };
                busy.end = Some((status, sense));
                if busy.has_ended() {
                    return Ok(Some(at));
                }
                if busy.is_out[CommandPart::Data as usize] {
                    if status == ScsiStatus::Good {
                        let until = Instant::now() + DATA_AFTER_STATUS;
                        busy.deadline = Some(busy.deadline.map_or(until, |deadline| deadline.min(until)));
                    } else {
                        busy.cancel(Instant::now());
                        self.pipes.cancel(data);
                    }
                }
                Ok(None)
            }
            StatusIu::Response { code, .. } => {
                let what = format!("the unit refused the command IU: {}", response_meaning(code));
                Err(self.error_at(at, TransportErrorKind::Protocol(what)))
            }
            StatusIu::ReadReady(_) => self.data_is_ready(at, Endpoint::DataIn),
            StatusIu::WriteReady(_) => self.data_is_ready(at, Endpoint::DataOut),
        }
    }

    /// Without streams: handles the device's message that this command's data moves now.
    fn data_is_ready(&mut self, at: usize, endpoint: Endpoint) -> Result<Option<usize>, TransportError> {
        let has_streams = self.has_streams();
        let wanted = self.slots[at].busy.as_mut().and_then(|busy| {
            let was_ready = std::mem::replace(&mut busy.data_was_ready, true);
            busy.job.data.transfer().filter(|(wanted, _)| *wanted == endpoint && !was_ready && !has_streams)
        });
        let Some((endpoint, len)) = wanted else {
            let what = "the unit is ready for data that the command does not move".to_owned();
            return Err(self.error_at(at, TransportErrorKind::Protocol(what)));
        };
        self.submit(at, endpoint, len)?;
        Ok(None)
    }

    /// Whether any command's data is in flight on this endpoint.
    fn has_data_on(&self, endpoint: Endpoint) -> bool {
        self.slots.iter().filter_map(|slot| slot.busy.as_ref()).any(|busy| {
            busy.is_out[CommandPart::Data as usize] && busy.job.data.transfer().is_some_and(|(on, _)| on == endpoint)
        })
    }

    /// The error of a slot's command.
    fn error_at(&self, at: usize, kind: impl Into<TransportErrorKind>) -> TransportError {
        let kind = kind.into();
        match &self.slots[at].busy {
            Some(busy) => kind.during(busy.job.cdb.name()),
            None => kind.during("a command"),
        }
    }
}

impl<P: Pipes> Transport for Uas<P> {
    fn pipes(&mut self) -> Option<&mut dyn Pipes> {
        Some(&mut self.pipes)
    }

    fn kind(&self) -> TransportKind {
        if self.has_streams() { TransportKind::UasStreams } else { TransportKind::Uas }
    }

    fn max_depth(&self) -> usize {
        self.depth
    }

    fn run(&mut self, workload: &mut dyn Workload, depth: usize, timeout: Duration) -> Result<(), TransportError> {
        self.run_queue(workload, depth.clamp(1, self.depth), timeout).map_err(|error| {
            debug!("{error}");
            self.failed(error)
        })
    }

    /// Ends everything and checks the wire with TEST UNIT READY, whose answer does not matter. If that fails, resets
    /// the port and checks again.
    fn recover(&mut self) -> Result<(), TransportError> {
        let probe =
            |engine: &mut Self| engine.execute(&Command::TestUnitReady.cdb(), DataPhase::None, PROBE_TIMEOUT).map(drop);
        self.end_all()?;
        match probe(self) {
            Err(error) if !error.is_gone() => {
                self.reset()?;
                probe(self)
            }
            outcome => outcome,
        }
    }
}

impl<P: Pipes> Uas<P> {
    fn run_queue(
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
            let data = self.transfer(at, CommandPart::Data);
            self.pipes.reserve(data, len).map_err(|error| error.during(PREPARING))?;
        }
        self.free.clear();
        self.free.extend((0..depth).rev());
        let mut has_more = true;
        let is_timed = workload.is_timed() || log::is_on();
        loop {
            while has_more && let Some(&at) = self.free.last() {
                let data = self.transfer(at, CommandPart::Data);
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
        let buffer = self.pipes.buffer(self.transfer(at, CommandPart::Data));
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
            let data = self.transfer(at, CommandPart::Data);
            let Some(busy) = self.slots[at].busy.as_mut().filter(|busy| busy.deadline.is_some_and(|at| at <= now))
            else {
                continue;
            };
            if busy.end.is_none() || busy.is_cancelled || busy.is_out[CommandPart::Command as usize] {
                let deadline = busy.timeout;
                return Err(TransportErrorKind::Timeout { deadline }.during(busy.job.cdb.name()));
            }
            busy.cancel(now);
            self.pipes.cancel(data);
        }
        Ok(())
    }
}

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
    fn end_all(&mut self) -> Result<(), TransportError> {
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

/// Number of commands that can be in flight, at most `most`. `streams` is 0 if the pipes have none.
fn depth_with(streams: usize, most: usize) -> usize {
    if streams == 0 { most } else { (streams - 1).clamp(1, most) }
}

const fn tag_of(slot: usize) -> Tag {
    Tag(slot as u16 + 1)
}

const fn tag_in(unit: &StatusIu) -> Tag {
    match unit {
        StatusIu::Sense { tag, .. }
        | StatusIu::Response { tag, .. }
        | StatusIu::ReadReady(tag)
        | StatusIu::WriteReady(tag) => *tag,
    }
}

/// Meaning of a response code: UAS-3, table 20.
const fn response_meaning(code: u8) -> &'static str {
    match code {
        0x00 => "task management complete, though none was requested",
        0x02 => "invalid information unit",
        0x04 => "task management function not supported",
        0x05 => "task management function failed",
        0x08 => "task management succeeded, though none was requested",
        0x09 => "incorrect logical unit number",
        0x0A => "overlapped tag",
        _ => "a response code that the standard does not know",
    }
}
