//! USB Attached SCSI: many commands in flight, each with a tag, ending in any order.
//!
//! With streams (SuperSpeed) a tag's data and status move on the stream of the same number, and their transfers are
//! submitted together with the command. Without (high speed) one status transfer serves every tag, and READ READY or
//! WRITE READY says whose data moves next. Source: UAS-3 (T10/2095-D), clauses 4 to 6.

mod queue;
mod recovery;
mod slot;
mod stream;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use tracing::debug;

use super::error::{Activity, TransportError, TransportErrorKind};
use super::pipes::{Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};
use super::transport::{Transport, TransportKind};
use super::workload::{Job, Workload};
use crate::chip::Simulated;
use crate::scsi::uas::{COMMAND_IU_LEN, CommandIu, StatusIu, Tag};
use crate::scsi::{ScsiStatus, Sense};
use slot::{Busy, Pending, UasSlot};

/// Name of the shared status transfer's activity in errors.
const WAITING: &str = "waiting for a status";
/// Maximum number of commands in flight. The chip has one more slot. It stays free until the unit has seen that an
/// earlier command has ended.
const MAX_DEPTH: usize = 31;
/// A sense IU with 252 bytes of sense data, the most that SPC-4 allows, in whole packets of any speed.
const STATUS_LEN: usize = 1024;
/// Time that data may take after its status. Data that has not arrived by then does not come.
const DATA_AFTER_STATUS: Duration = Duration::from_millis(500);
/// Time limit of one of the engine's own commands.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The UAS engine over a device's pipes.
#[derive(Debug)]
pub struct Uas<P> {
    pipes: P,
    /// Slot n has tag n + 1.
    slots: Vec<UasSlot>,
    /// Purpose of each transfer, by its number.
    roles: Vec<Role>,
    /// Without streams: the one transfer that receives every tag's status.
    shared_status: Option<SharedStatus>,
    /// Transfer for a stream that belongs to no command, once one was read.
    spare: Option<TransferId>,
    free: Vec<usize>,
    /// Number of slots with a stream: all of them, until a port reset leaves fewer.
    depth: usize,
    in_flight: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Command(usize),
    Status(usize),
    Data(usize),
    SharedStatus,
    Spare,
}

#[derive(Debug)]
struct SharedStatus {
    transfer: TransferId,
    is_out: bool,
}

/// Number of commands that can be in flight. 0 streams means that there are no streams.
fn depth_with(streams: usize, most: usize) -> usize {
    if streams == 0 { most } else { (streams - 1).clamp(1, most) }
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
        let mut add = |pipes: &mut P, role: Role, capacity: usize| -> Result<TransferId, PipeError> {
            let transfer = pipes.add_transfer(capacity)?;
            roles.resize(roles.len().max(transfer.0 + 1), role);
            roles[transfer.0] = role;
            Ok(transfer)
        };
        let mut slots = Vec::with_capacity(depth);
        for slot in 0..depth {
            slots.push(UasSlot {
                command: add(&mut pipes, Role::Command(slot), COMMAND_IU_LEN)?,
                // Without streams a command has no status transfer of its own.
                status: if streams == 0 { None } else { Some(add(&mut pipes, Role::Status(slot), STATUS_LEN)?) },
                data: add(&mut pipes, Role::Data(slot), 0)?,
                busy: None,
            });
        }
        let shared_status = if streams == 0 {
            Some(SharedStatus { transfer: add(&mut pipes, Role::SharedStatus, STATUS_LEN)?, is_out: false })
        } else {
            None
        };
        Ok(Self {
            pipes,
            slots,
            roles,
            shared_status,
            spare: None,
            free: Vec::with_capacity(depth),
            depth,
            in_flight: 0,
        })
    }

    /// The pipes, for requests outside UAS.
    pub fn pipes_mut(&mut self) -> &mut P {
        &mut self.pipes
    }

    const fn has_streams(&self) -> bool {
        self.shared_status.is_none()
    }

    /// Sends one command and submits the transfers of its status and data.
    fn start(&mut self, at: usize, job: Job, timeout: Duration, is_timed: bool) -> Result<(), TransportError> {
        let tag = tag_of(at);
        let stream = if self.has_streams() { tag.0 } else { 0 };
        let started = is_timed.then(Instant::now);
        let slot = &mut self.slots[at];
        let (command, data, status) = (slot.command, slot.data, slot.status);
        slot.busy = Some(Busy::new(job, started, timeout));
        self.in_flight += 1;

        // Submit status and data first: the device may answer before the command's own transfer returns.
        match status {
            Some(status) => {
                self.submit(at, status, Endpoint::Status, stream, STATUS_LEN, Pending::STATUS)?;
                if let Some((endpoint, len)) = job.data.transfer() {
                    self.submit(at, data, endpoint, stream, len, Pending::DATA)?;
                }
            }
            None => self.ask_for_status()?,
        }
        let unit = CommandIu { tag, lun: 0, cdb: job.cdb }.to_bytes();
        self.pipes.put(command, &unit).map_err(|error| self.error_at(at, error))?;
        self.submit(at, command, Endpoint::Command, 0, unit.len(), Pending::COMMAND)
    }

    fn submit(
        &mut self,
        at: usize,
        transfer: TransferId,
        endpoint: Endpoint,
        stream: u16,
        len: usize,
        pending: Pending,
    ) -> Result<(), TransportError> {
        match self.pipes.submit(transfer, endpoint, stream, len) {
            Ok(()) => {
                if let Some(busy) = &mut self.slots[at].busy {
                    busy.pending.add(pending);
                }
                Ok(())
            }
            Err(error) => Err(self.error_at(at, error)),
        }
    }

    /// Without streams: submits the status transfer whenever a command is in flight.
    fn ask_for_status(&mut self) -> Result<(), TransportError> {
        let Some(shared) = &mut self.shared_status else { return Ok(()) };
        if shared.is_out {
            return Ok(());
        }
        self.pipes
            .submit(shared.transfer, Endpoint::Status, 0, STATUS_LEN)
            .map_err(|error| TransportErrorKind::from(error).during("asking for a status"))?;
        shared.is_out = true;
        Ok(())
    }

    /// Handles a returned transfer. Returns the slot of the command that ended with it.
    fn take(&mut self, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        match self.roles.get(reaped.transfer.0) {
            Some(&Role::Command(at)) => self.take_command(at, reaped),
            Some(&Role::Data(at)) => self.take_data(at, reaped),
            Some(&Role::Status(at)) => self.take_status(at, reaped),
            Some(Role::SharedStatus) => self.take_shared_status(reaped),
            Some(Role::Spare) | None => Ok(None),
        }
    }

    fn take_command(&mut self, at: usize, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        let Some(busy) = self.slots[at].take_pending(Pending::COMMAND) else { return Ok(None) };
        match &reaped.end {
            TransferEnd::Completed if reaped.moved == COMMAND_IU_LEN => Ok(busy.has_ended().then_some(at)),
            TransferEnd::Completed => {
                let what = format!("the unit took {} of the command IU's {COMMAND_IU_LEN} bytes", reaped.moved);
                Err(self.error_at(at, TransportErrorKind::Protocol(what)))
            }
            TransferEnd::Cancelled if busy.is_cancelled => Ok(None),
            TransferEnd::Cancelled => Err(self.error_at(at, taken_with_another())),
            TransferEnd::Failed(error) => Err(self.error_at(at, error.clone())),
        }
    }

    fn take_data(&mut self, at: usize, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        let Some(busy) = self.slots[at].take_pending(Pending::DATA) else { return Ok(None) };
        busy.moved = reaped.moved;
        let ended = busy.has_ended().then_some(at);
        match &reaped.end {
            TransferEnd::Completed => Ok(ended),
            TransferEnd::Cancelled if busy.is_cancelled => Ok(ended),
            TransferEnd::Cancelled => Err(self.error_at(at, taken_with_another())),
            // The device sends no more on this pipe. Its status says why.
            TransferEnd::Failed(PipeError::Stall) => {
                let endpoint = busy.job.data.transfer().map_or(Endpoint::DataIn, |(endpoint, _)| endpoint);
                if self.has_data_on(endpoint) {
                    // The other commands' data can't stay on a pipe that starts over, so all commands end.
                    return Err(self.error_at(at, PipeError::Stall));
                }
                self.pipes.clear_halt(endpoint).map_err(|error| self.error_at(at, error))?;
                Ok(ended)
            }
            TransferEnd::Failed(error) => Err(self.error_at(at, error.clone())),
        }
    }

    fn take_status(&mut self, at: usize, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        if self.slots[at].take_pending(Pending::STATUS).is_none() {
            return Ok(None);
        }
        match &reaped.end {
            TransferEnd::Completed => {}
            TransferEnd::Cancelled => return Ok(None),
            TransferEnd::Failed(error) => {
                return Err(self.error_at(at, error.clone()));
            }
        }
        let unit = self.unit_in(reaped).map_err(|what| self.error_at(at, TransportErrorKind::Protocol(what)))?;
        let found = tag_in(&unit);
        if found != tag_of(at) {
            let (expected, found) = (u32::from(tag_of(at).0), u32::from(found.0));
            return Err(self.error_at(at, TransportErrorKind::TagMismatch { expected, found }));
        }
        self.take_unit(at, unit)
    }

    fn take_shared_status(&mut self, reaped: &Reaped) -> Result<Option<usize>, TransportError> {
        if let Some(shared) = &mut self.shared_status {
            shared.is_out = false;
        }
        match &reaped.end {
            TransferEnd::Completed => {}
            TransferEnd::Cancelled => return Ok(None),
            TransferEnd::Failed(error) => return Err(TransportErrorKind::from(error.clone()).during(WAITING)),
        }
        let unit = self.unit_in(reaped).map_err(|what| TransportErrorKind::Protocol(what).during(WAITING))?;
        let found = tag_in(&unit);
        let at = usize::from(found.0).wrapping_sub(1);
        if self.slots.get(at).is_none_or(|slot| slot.busy.is_none()) {
            let what = format!("the unit answered tag {:#x}, which was not sent", found.0);
            return Err(TransportErrorKind::Protocol(what).during(WAITING));
        }
        let ended = self.take_unit(at, unit)?;
        let others = self.in_flight > usize::from(ended.is_some());
        let this_one_waits = ended.is_none() && self.slots[at].busy.as_ref().is_some_and(|busy| busy.end.is_none());
        if others || this_one_waits {
            self.ask_for_status()?;
        }
        Ok(ended)
    }

    fn unit_in(&mut self, reaped: &Reaped) -> Result<StatusIu, String> {
        let buffer = self.pipes.buffer(reaped.transfer);
        StatusIu::parse(&buffer[..reaped.moved.min(buffer.len())]).map_err(|error| error.to_string())
    }

    /// Handles an information unit for a command in flight.
    fn take_unit(&mut self, at: usize, unit: StatusIu) -> Result<Option<usize>, TransportError> {
        let data = self.slots[at].data;
        let Some(busy) = &mut self.slots[at].busy else { return Ok(None) };
        match unit {
            StatusIu::Sense { status, sense, .. } => {
                let sense = if status == ScsiStatus::CheckCondition { Sense::parse(&sense) } else { None };
                busy.end = Some((status, sense));
                if busy.has_ended() {
                    return Ok(Some(at));
                }
                if busy.pending.has(Pending::DATA) {
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
        let data = self.slots[at].data;
        let wanted = self.slots[at].busy.as_mut().and_then(|busy| {
            let wanted = busy.job.data.transfer().filter(|(wanted, _)| *wanted == endpoint && !busy.data_was_ready);
            busy.data_was_ready = true;
            wanted
        });
        match wanted {
            Some((endpoint, len)) if !self.has_streams() => {
                self.submit(at, data, endpoint, 0, len, Pending::DATA)?;
                Ok(None)
            }
            _ => {
                let what = "the unit is ready for data that the command does not move".to_owned();
                Err(self.error_at(at, TransportErrorKind::Protocol(what)))
            }
        }
    }

    /// Whether any command's data is in flight on this endpoint.
    fn has_data_on(&self, endpoint: Endpoint) -> bool {
        self.slots.iter().filter_map(|slot| slot.busy.as_ref()).any(|busy| {
            busy.pending.has(Pending::DATA) && busy.job.data.transfer().is_some_and(|(on, _)| on == endpoint)
        })
    }

    /// The error of a slot's command.
    fn error_at(&self, at: usize, kind: impl Into<TransportErrorKind>) -> TransportError {
        let command = self.slots[at].busy.as_ref().map_or(Activity::Named("a command"), |busy| busy.job.cdb.into());
        kind.into().during(command)
    }
}

impl<P: Pipes> Transport for Uas<P> {
    fn simulated(&self) -> Option<Simulated> {
        self.pipes.simulated()
    }

    fn kind(&self) -> TransportKind {
        if self.has_streams() { TransportKind::UasStreams } else { TransportKind::Uas }
    }

    fn max_depth(&self) -> usize {
        self.depth
    }

    fn run(&mut self, workload: &mut dyn Workload, depth: usize, timeout: Duration) -> Result<(), TransportError> {
        match self.run_queue(workload, depth.clamp(1, self.depth), timeout) {
            Ok(()) => Ok(()),
            Err(error) => {
                debug!("{error}");
                Err(self.failed(error))
            }
        }
    }

    fn spare_stream(&self) -> Option<u16> {
        self.stream_of_nobody()
    }

    fn read_spare_stream(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        self.read_stream_of_nobody(buffer, timeout)
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        self.bring_back()
    }

    fn answers_control(&mut self) -> bool {
        self.pipes.answers_control()
    }
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

/// The error of a transfer that returned cancelled although nobody cancelled it. macOS cancels all transfers of an
/// endpoint, or of its stream, together; without streams these are every command's. Source: libusb 1.0.27,
/// `darwin_abort_transfers`.
fn taken_with_another() -> PipeError {
    PipeError::Other("the system took it back together with another command".to_owned())
}

/// Meaning of a response code: UAS-3, table 20.
const fn response_meaning(code: u8) -> &'static str {
    match code {
        0x00 => "task management complete, which nobody asked for",
        0x02 => "invalid information unit",
        0x04 => "task management function not supported",
        0x05 => "task management function failed",
        0x08 => "task management succeeded, which nobody asked for",
        0x09 => "incorrect logical unit number",
        0x0A => "overlapped tag",
        _ => "a response code that the standard does not know",
    }
}
