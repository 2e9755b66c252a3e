//! The plain responder on the wire: Bulk-Only, and UAS with streams.
//!
//! It has no halts and no phase errors: every command moves as much data as the host asks for, or less if the device
//! has less, and ends with its status.

use std::time::{Duration, Instant};

use asm2464::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464::scsi::uas::{HostIu, StatusIu, Tag};
use asm2464::scsi::{ScsiStatus, Sense};
use asm2464_dock::virtual_unit::{FaultPlan, Reply, Responder, STREAMS};
use asm2464_host::bridge::Endpoint;

use super::target::{Data, Target};

/// Response code "function not supported" (UAS-3, table 20).
const NOT_SUPPORTED: u8 = 0x04;
/// Response code "invalid information unit".
const INVALID_IU: u8 = 0x02;

/// A command in progress.
#[derive(Debug)]
struct Exchange {
    data: Data,
    moved: usize,
    sense: Option<Sense>,
    ready_at: Option<Instant>,
}

impl Exchange {
    fn rest(&self) -> usize {
        self.data.len() - self.moved
    }

    fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.rest().min(buffer.len());
        match &self.data {
            Data::Bytes(bytes) => buffer[..count].copy_from_slice(&bytes[self.moved..self.moved + count]),
            _ => buffer[..count].fill(0),
        }
        self.moved += count;
        count
    }

    fn take(&mut self, data: &[u8]) -> usize {
        let count = self.rest().min(data.len());
        self.moved += count;
        count
    }

    fn is_ready(&self) -> bool {
        self.ready_at.is_none_or(|at| at <= Instant::now())
    }
}

/// A Bulk-Only command in progress.
#[derive(Debug)]
struct Wrapped {
    tag: u32,
    /// Direction of the data that the host still expects.
    expects: Option<Direction>,
    host_len: usize,
    /// Bytes from the host so far, including those that the command does not take.
    received: usize,
    exchange: Exchange,
}

/// The plain responder.
#[derive(Debug)]
pub struct PlainResponder {
    target: Target,
    command_time: Duration,
    is_uas: bool,
    wrapped: Option<Wrapped>,
    /// The UAS commands in progress, by stream.
    tasks: Vec<Option<Exchange>>,
    responses: Vec<(Tag, u8)>,
}

impl PlainResponder {
    /// Makes a responder that sends each status at least `command_time` after the command.
    pub fn new(target: Target, command_time: Duration) -> Self {
        let tasks = (0..=STREAMS).map(|_| None).collect();
        Self { target, command_time, is_uas: false, wrapped: None, tasks, responses: Vec::new() }
    }

    fn start(&mut self, cdb: &[u8; 16], lun: u8) -> Exchange {
        let (data, sense) = match self.target.command(cdb, lun) {
            Ok(data) => (data, None),
            Err(sense) => (Data::None, Some(sense)),
        };
        let ready_at = (!self.command_time.is_zero()).then(|| Instant::now() + self.command_time);
        Exchange { data, moved: 0, sense, ready_at }
    }

    fn bulk_only_out(&mut self, data: &[u8]) -> Reply {
        if let Some(wrapped) = &mut self.wrapped {
            if wrapped.expects != Some(Direction::Out) {
                return Reply::Silent;
            }
            let count = data.len().min(wrapped.host_len - wrapped.received);
            wrapped.received += count;
            wrapped.exchange.take(&data[..count]);
            if wrapped.received == wrapped.host_len {
                wrapped.expects = None;
            }
            return Reply::taken(count, data.len());
        }
        let Some(cbw) = CommandBlockWrapper::parse(data) else { return Reply::Stall };
        let exchange = self.start(cbw.cdb.padded(), cbw.lun);
        let host_len = cbw.transfer_length as usize;
        let expects = (host_len > 0).then_some(cbw.direction);
        self.wrapped = Some(Wrapped { tag: cbw.tag, expects, host_len, received: 0, exchange });
        Reply::Done(data.len())
    }

    fn bulk_only_in(&mut self, buffer: &mut [u8]) -> Reply {
        let Some(wrapped) = &mut self.wrapped else { return Reply::Silent };
        match wrapped.expects {
            Some(Direction::Out) => return Reply::Silent,
            Some(Direction::In) => {
                let count = wrapped.exchange.fill(buffer);
                if count < buffer.len() || wrapped.exchange.moved == wrapped.host_len {
                    wrapped.expects = None;
                }
                return Reply::Done(count);
            }
            None if !wrapped.exchange.is_ready() => return Reply::Silent,
            None => {}
        }
        let status = if let Some(sense) = wrapped.exchange.sense {
            self.target.sense = sense;
            CswStatus::Failed
        } else {
            CswStatus::Passed
        };
        let residue = wrapped.host_len.saturating_sub(wrapped.exchange.moved) as u32;
        let csw = CommandStatusWrapper { tag: wrapped.tag, residue, status }.to_bytes();
        self.wrapped = None;
        Reply::packet(buffer, &csw)
    }

    fn information_unit(&mut self, data: &[u8]) -> Reply {
        match HostIu::parse(data) {
            Some(HostIu::Command(command)) => {
                let exchange = self.start(command.cdb.padded(), command.lun);
                match self.tasks.get_mut(usize::from(command.tag.0)) {
                    Some(task) if task.is_none() => *task = Some(exchange),
                    _ => self.responses.push((command.tag, INVALID_IU)),
                }
            }
            Some(HostIu::Task { tag, .. }) => self.responses.push((tag, NOT_SUPPORTED)),
            None => return Reply::Stall,
        }
        Reply::Done(data.len())
    }

    /// The command whose data moves on this stream in this direction.
    fn task(&mut self, stream: u16, direction: Direction) -> Option<&mut Exchange> {
        let task = self.tasks.get_mut(usize::from(stream))?.as_mut()?;
        (task.data.direction() == Some(direction) && task.rest() > 0).then_some(task)
    }

    fn status(&mut self, stream: u16, buffer: &mut [u8]) -> Reply {
        if let Some(at) = self.responses.iter().position(|(tag, _)| tag.0 == stream) {
            let (tag, code) = self.responses.remove(at);
            return Reply::packet(buffer, &StatusIu::Response { tag, code }.to_bytes());
        }
        let Some(task) = self.tasks.get_mut(usize::from(stream)) else { return Reply::Silent };
        let Some(exchange) = task.take_if(|task| task.rest() == 0 && task.is_ready()) else { return Reply::Silent };
        let tag = Tag(stream);
        let (status, sense) = match exchange.sense {
            Some(sense) => (ScsiStatus::CheckCondition, sense.to_fixed().to_vec()),
            None => (ScsiStatus::Good, Vec::new()),
        };
        Reply::packet(buffer, &StatusIu::Sense { tag, status, sense }.to_bytes())
    }
}

impl Responder for PlainResponder {
    fn set_configuration(&mut self, value: u8) -> bool {
        value <= 1 && self.set_alternate(0)
    }

    fn alternate(&self) -> u8 {
        self.is_uas.into()
    }

    fn set_alternate(&mut self, alternate: u8) -> bool {
        if alternate > 1 {
            return false;
        }
        self.is_uas = alternate == 1;
        self.wrapped = None;
        self.tasks.iter_mut().for_each(|task| *task = None);
        self.responses.clear();
        true
    }

    fn clear_halt(&mut self, _endpoint: Endpoint) {}

    fn mass_storage_reset(&mut self) -> bool {
        !self.is_uas && self.set_alternate(0)
    }

    fn bus_reset(&mut self) {
        self.set_configuration(0);
    }

    fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8], _faults: &mut FaultPlan) -> Reply {
        match (self.is_uas, endpoint) {
            (false, Endpoint::DataOut) => self.bulk_only_out(data),
            (true, Endpoint::Command) => self.information_unit(data),
            (true, Endpoint::DataOut) => {
                let task = self.task(stream, Direction::Out);
                task.map_or(Reply::Silent, |task| Reply::taken(task.take(data), data.len()))
            }
            _ => Reply::Stall,
        }
    }

    fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply {
        match (self.is_uas, endpoint) {
            (false, Endpoint::DataIn) => self.bulk_only_in(buffer),
            (true, Endpoint::Status) => self.status(stream, buffer),
            (true, Endpoint::DataIn) => {
                let task = self.task(stream, Direction::In);
                task.map_or(Reply::Silent, |task| Reply::Done(task.fill(buffer)))
            }
            _ => Reply::Stall,
        }
    }

    fn ready_at(&self) -> Option<Instant> {
        let wrapped =
            self.wrapped.as_ref().filter(|wrapped| wrapped.expects.is_none()).map(|wrapped| &wrapped.exchange);
        let tasks = self.tasks.iter().flatten().filter(|task| task.rest() == 0);
        wrapped.into_iter().chain(tasks).filter_map(|exchange| exchange.ready_at).min()
    }
}
