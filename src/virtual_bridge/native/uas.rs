//! UAS, the device's side: many tags in flight, each with its own data and status.
//!
//! With streams (SuperSpeed) a tag's data and status move on the stream of the same number, in whatever order the host
//! asks. Without (high speed) READ READY and WRITE READY say whose data may move. Source: UAS-3, clauses 4 and 6.

use std::collections::VecDeque;
use std::time::Instant;

use super::exchange::{CommandEnding, CommandExchange, DataPlan};
use super::target::Target;
use crate::virtual_bridge::descriptors::{LinkSpeed, STREAMS};
use crate::virtual_bridge::reply::{ABORTED, After, Halts, InReply, OutReply};
use crate::virtual_bridge::scenario::FaultKind;

use crate::bridge::Endpoint;
use crate::scsi::SENSE_LEN;
use crate::scsi::bot::Direction;
use crate::scsi::uas::{
    HostIu, ID_READ_READY, ID_RESPONSE, ID_SENSE, ID_WRITE_READY, READY_IU_LEN, RESPONSE_IU_LEN, SENSE_IU_HEADER_LEN,
    Tag, TaskFunction, TaskIu, response,
};

/// Commands that can be under way at once, with streams or without.
const QUEUE_DEPTH: usize = STREAMS as usize;
const TASK_SET_FULL: u8 = 0x28;

#[derive(Debug)]
struct Task {
    tag: Tag,
    exchange: CommandExchange,
    /// Without streams: READ READY or WRITE READY has been sent.
    announced: bool,
    /// The tag in its status is another one.
    bad_tag: bool,
    /// Its status pipe halts once before the status.
    halt_status: bool,
    /// Its data pipe halts when the host comes for it.
    halt_data: bool,
    /// It is answered by a response unit with this code in place of sense.
    answered_code: Option<u8>,
}

/// What goes to the status pipe beside sense.
#[derive(Debug, Clone, Copy)]
struct Response {
    tag: Tag,
    code: u8,
}

/// The state of the transport in the device.
#[derive(Debug, Default)]
pub(super) struct UasDevice {
    /// The pipes that are halted.
    pub(super) halts: Halts,
    speed: LinkSpeed,
    tasks: Vec<Task>,
    responses: VecDeque<Response>,
    full: VecDeque<Tag>,
    spare: Vec<Vec<u8>>,
}

impl UasDevice {
    pub(super) fn new(speed: LinkSpeed) -> Self {
        Self { speed, ..Self::default() }
    }

    /// Ends everything without an answer.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.speed);
    }

    /// The earliest moment at which a command that has moved its data can be answered.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        self.tasks.iter().filter(|task| task.exchange.data_is_done()).filter_map(|task| task.exchange.ready_at).min()
    }

    pub(super) fn out(
        &mut self,
        target: &mut Target,
        endpoint: Endpoint,
        stream: u16,
        data: &[u8],
        fault: impl FnOnce(u8) -> Option<FaultKind>,
    ) -> (OutReply, After) {
        if self.halts.holds(endpoint) {
            return (OutReply::Stall, After::Nothing);
        }
        if endpoint == Endpoint::Command {
            return self.host_iu(target, data, fault);
        }
        let Some(at) = self.data_task(stream, Direction::Out) else { return (OutReply::Silent, After::Nothing) };
        let task = &mut self.tasks[at];
        if std::mem::take(&mut task.halt_data) {
            self.halts.set(endpoint);
            return (OutReply::Stall, After::Nothing);
        }
        (OutReply::Accepted(task.exchange.take(target, data)), After::Nothing)
    }

    pub(super) fn input(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> (InReply, After) {
        if self.halts.holds(endpoint) {
            return (InReply::Stall, After::Nothing);
        }
        if endpoint == Endpoint::Status {
            return self.status(stream, buffer);
        }
        let Some(at) = self.data_task(stream, Direction::In) else { return (InReply::Silent, After::Nothing) };
        let task = &mut self.tasks[at];
        if std::mem::take(&mut task.halt_data) {
            self.halts.set(endpoint);
            return (InReply::Stall, After::Nothing);
        }
        (task.exchange.fill(buffer, self.speed.max_packet()), After::Nothing)
    }

    /// The task whose data moves on this stream now. With streams a task whose data has all been moved still answers,
    /// with an empty packet, a host that asks for more.
    fn data_task(&self, stream: u16, direction: Direction) -> Option<usize> {
        let moves = |task: &Task| {
            task.answered_code.is_none()
                && (task.halt_data || matches!(task.exchange.intent(), Some((way, _)) if way == direction))
        };
        match self.speed {
            LinkSpeed::Super => self.tasks.iter().position(|task| {
                let open = direction == Direction::In || task.halt_data || !task.exchange.data_is_done();
                task.tag.0 == stream && moves(task) && open
            }),
            LinkSpeed::High => self
                .tasks
                .iter()
                .position(|task| task.announced && moves(task) && (task.halt_data || !task.exchange.data_is_done())),
        }
    }

    fn host_iu(
        &mut self,
        target: &mut Target,
        data: &[u8],
        fault: impl FnOnce(u8) -> Option<FaultKind>,
    ) -> (OutReply, After) {
        let accepted = OutReply::Accepted(data.len());
        let command = match HostIu::parse(data) {
            Ok(HostIu::Command(command)) => command,
            Ok(HostIu::Task(task)) => {
                self.manage(&task);
                return (accepted, After::Nothing);
            }
            Err(_) => match data.get(2..4) {
                Some(tag) => {
                    self.respond(Tag(u16::from_be_bytes([tag[0], tag[1]])), response::INVALID_IU);
                    return (accepted, After::Nothing);
                }
                None => {
                    self.halts.set(Endpoint::Command);
                    return (OutReply::Stall, After::Nothing);
                }
            },
        };
        let tag = command.tag;
        if self.speed == LinkSpeed::Super && !(1..=STREAMS).contains(&tag.0) {
            self.respond(tag, response::INVALID_IU);
            return (accepted, After::Nothing);
        }
        if let Some(at) = self.tasks.iter().position(|task| task.tag == tag) {
            self.drop_task(at);
            self.respond(tag, response::OVERLAPPED_TAG);
            return (accepted, After::Nothing);
        }
        if self.tasks.len() >= QUEUE_DEPTH {
            if self.full.len() < QUEUE_DEPTH {
                self.full.push_back(tag);
            }
            return (accepted, After::Nothing);
        }
        let fault = fault(command.cdb.opcode());
        let exchange = CommandExchange::idle(self.spare.pop().unwrap_or_default());
        let mut task = Task {
            tag,
            exchange,
            announced: false,
            bad_tag: fault == Some(FaultKind::BadTag),
            halt_status: fault == Some(FaultKind::StallStatus),
            halt_data: false,
            answered_code: None,
        };
        match fault {
            Some(FaultKind::Disconnect) => return (accepted, After::Vanish),
            Some(FaultKind::Timeout) => {
                task.exchange.ending = CommandEnding::Silent;
                task.exchange.plan = DataPlan::None;
            }
            _ => target.start(command.cdb.padded(), command.lun, &mut task.exchange),
        }
        match fault {
            Some(FaultKind::Stall) => {
                task.halt_data = task.exchange.intent().is_some();
                task.halt_status = !task.halt_data;
                task.exchange.limit = 0;
                task.exchange.ending = CommandEnding::Check(ABORTED);
            }
            Some(FaultKind::ShortData) => {
                task.exchange.limit /= 2;
                if task.exchange.ending == CommandEnding::AfterData {
                    task.exchange.ending = CommandEnding::Check(ABORTED);
                }
            }
            Some(FaultKind::PhaseError) => {
                task.answered_code = Some(response::INVALID_IU);
                task.exchange.limit = 0;
                task.exchange.ending = CommandEnding::Good;
            }
            _ => {}
        }
        self.tasks.push(task);
        (accepted, After::Nothing)
    }

    fn manage(&mut self, request: &TaskIu) {
        if request.lun != 0 {
            return self.respond(request.tag, response::INCORRECT_LUN);
        }
        let code = match request.function {
            TaskFunction::AbortTask => {
                if let Some(at) = self.tasks.iter().position(|task| task.tag == request.managed) {
                    self.drop_task(at);
                }
                self.responses.retain(|response| response.tag != request.managed);
                response::COMPLETE
            }
            TaskFunction::LogicalUnitReset => {
                while !self.tasks.is_empty() {
                    self.drop_task(0);
                }
                self.full.clear();
                response::COMPLETE
            }
            TaskFunction::Other(_) => response::NOT_SUPPORTED,
        };
        self.respond(request.tag, code);
    }

    fn respond(&mut self, tag: Tag, code: u8) {
        // A host that never fetches its responses does not make the device grow.
        if self.responses.len() >= 2 * QUEUE_DEPTH {
            self.responses.pop_front();
        }
        self.responses.push_back(Response { tag, code });
    }

    fn drop_task(&mut self, at: usize) {
        let task = self.tasks.swap_remove(at);
        self.spare.push(task.exchange.data);
    }

    fn status(&mut self, stream: u16, buffer: &mut [u8]) -> (InReply, After) {
        let streams = self.speed == LinkSpeed::Super;
        let here = |tag: Tag| !streams || tag.0 == stream;
        if let Some(at) = self.responses.iter().position(|response| here(response.tag)) {
            let response = self.responses.remove(at).unwrap_or(Response { tag: Tag(stream), code: 0 });
            return (InReply::packet(buffer, &response_iu(response)), After::Nothing);
        }
        if let Some(at) = self.full.iter().position(|tag| here(*tag)) {
            let tag = self.full.remove(at).unwrap_or(Tag(stream));
            return (InReply::packet(buffer, &sense_iu(tag, TASK_SET_FULL, 0)), After::Nothing);
        }
        if !streams && let Some(reply) = self.announce(buffer) {
            return (reply, After::Nothing);
        }
        let finished = |task: &Task| here(task.tag) && !task.halt_data && task.exchange.is_ready();
        let Some(at) = self.tasks.iter().position(finished) else { return (InReply::Silent, After::Nothing) };
        let task = &mut self.tasks[at];
        if std::mem::take(&mut task.halt_status) {
            self.halts.set(Endpoint::Status);
            return (InReply::Stall, After::Nothing);
        }
        let tag = if task.bad_tag { Tag(task.tag.0 ^ 0x4000) } else { task.tag };
        let (ending, code) = (task.exchange.ending, task.answered_code);
        self.drop_task(at);
        if let Some(code) = code {
            return (InReply::packet(buffer, &response_iu(Response { tag, code })), After::Nothing);
        }
        let reply = match ending {
            CommandEnding::Check(sense) => {
                let mut unit = [0; SENSE_IU_HEADER_LEN + SENSE_LEN as usize];
                unit[..SENSE_IU_HEADER_LEN].copy_from_slice(&sense_iu(tag, 0x02, SENSE_LEN));
                unit[SENSE_IU_HEADER_LEN..].copy_from_slice(&sense.to_fixed());
                InReply::packet(buffer, &unit)
            }
            _ => InReply::packet(buffer, &sense_iu(tag, 0x00, 0)),
        };
        let after = match ending {
            CommandEnding::Reset(mode) => After::Leave(mode),
            _ => After::Nothing,
        };
        (reply, after)
    }

    /// Without streams one command at a time moves data in each direction, and is announced before.
    fn announce(&mut self, buffer: &mut [u8]) -> Option<InReply> {
        for (direction, id) in [(Direction::In, ID_READ_READY), (Direction::Out, ID_WRITE_READY)] {
            let moving = |task: &Task| {
                matches!(task.exchange.intent(), Some((way, _)) if way == direction)
                    && (task.halt_data || !task.exchange.data_is_done())
                    && !matches!(task.exchange.plan, DataPlan::InNever { .. })
            };
            if self.tasks.iter().any(|task| task.announced && moving(task)) {
                continue;
            }
            if let Some(task) = self.tasks.iter_mut().find(|task| moving(task)) {
                task.announced = true;
                let mut unit = [0; READY_IU_LEN];
                unit[0] = id;
                unit[2..4].copy_from_slice(&task.tag.0.to_be_bytes());
                return Some(InReply::packet(buffer, &unit));
            }
        }
        None
    }
}

fn sense_iu(tag: Tag, status: u8, sense_len: u8) -> [u8; SENSE_IU_HEADER_LEN] {
    let mut unit = [0; SENSE_IU_HEADER_LEN];
    unit[0] = ID_SENSE;
    unit[2..4].copy_from_slice(&tag.0.to_be_bytes());
    unit[6] = status;
    unit[15] = sense_len;
    unit
}

fn response_iu(response: Response) -> [u8; RESPONSE_IU_LEN] {
    let mut unit = [0; RESPONSE_IU_LEN];
    unit[0] = ID_RESPONSE;
    unit[2..4].copy_from_slice(&response.tag.0.to_be_bytes());
    unit[7] = response.code;
    unit
}
