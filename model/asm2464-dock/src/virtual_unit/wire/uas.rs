//! Faults of UAS: many tags at once, each struck separately. An IU is an information unit.

use std::collections::VecDeque;
use std::time::Instant;

use asm2464::scsi::bot::Direction;
use asm2464::scsi::uas::{
    ABORT_TASK, HostIu, ID_READ_READY, ID_RESPONSE, ID_SENSE, ID_WRITE_READY, LOGICAL_UNIT_RESET, RESPONSE_INVALID_IU,
    StatusIu, Tag,
};
use asm2464::scsi::{DataLength, ScsiStatus};
use asm2464_chip::chip::{COMMAND_OUT, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN};
use asm2464_host::bridge::Endpoint;

use super::{Due, PacketTarget, WireEffect, first_half, is_ready, packets_in_half};
use crate::virtual_unit::responder::{ABORTED, Halts};
use crate::virtual_unit::scenario::FaultKind;

/// Maximum number of commands that are followed at once. If a host has more in progress, the oldest is
/// no longer followed.
const FOLLOWED: usize = 64;

/// State of a command that a fault or a delay affects.
#[derive(Debug, Default)]
struct FollowedTask {
    tag: Tag,
    effect: WireEffect,
    /// The command was not passed to the firmware.
    is_kept: bool,
    /// The command's data pipe halts on the host's next request.
    halts_data: Option<Direction>,
    /// Bytes from the host to drop.
    out_left: u32,
    /// Data to the host, of which half will pass once it is complete.
    collected: Vec<u8>,
    /// Whether any packet of data arrived, including an empty one.
    has_data: bool,
    data: VecDeque<Vec<u8>>,
    status: VecDeque<Due>,
}

#[derive(Debug, Default)]
pub(super) struct UasWire {
    tasks: Vec<FollowedTask>,
    /// IUs for the host that arrived while another was being fetched.
    passing: VecDeque<Vec<u8>>,
    /// At high speed: the command whose data moves, as READ READY and WRITE READY have announced to the host.
    reading: Option<Tag>,
    writing: Option<Tag>,
}

impl UasWire {
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let held = self.tasks.iter().filter(|task| matches!(task.status.front(), Some(Due::Status(_))));
        held.filter_map(|task| task.effect.ready_at).min()
    }

    /// Handles an IU on 0x04.
    pub(super) fn command(
        &mut self,
        target: &mut impl PacketTarget,
        packet: &[u8],
        effect: &mut dyn FnMut(u8) -> WireEffect,
    ) -> PacketOut {
        let command = match HostIu::parse(packet) {
            Some(HostIu::Command(command)) => command,
            other => {
                let reply = target.bulk_out(COMMAND_OUT, 0, packet);
                if let (Some(HostIu::Task { function, managed, .. }), PacketOut::Accepted) = (other, reply) {
                    self.tasks.retain(|known| match function {
                        ABORT_TASK => known.tag != managed,
                        LOGICAL_UNIT_RESET => false,
                        _ => true,
                    });
                }
                return reply;
            }
        };
        let effect = effect(command.cdb.opcode());
        let most = target.speed().bulk_packet();
        // A Command IU does not say what data it moves. An unknown command counts as a read.
        let data = DataLength::of(&command.cdb).unwrap_or(DataLength::In(u32::MAX));
        let mut task = FollowedTask { tag: command.tag, effect, ..FollowedTask::default() };
        match (effect.fault, data) {
            (Some(FaultKind::Disconnect), _) => return PacketOut::Accepted,
            (Some(FaultKind::Timeout), _) => task.is_kept = true,
            (Some(FaultKind::Stall), DataLength::None) => {
                task.keep(vec![Due::Halt], aborted(task.tag));
            }
            (Some(FaultKind::Stall), data) => {
                task.halts_data = Some(data.direction());
                task.keep(ready(task.tag, data.direction(), most), aborted(task.tag));
            }
            (Some(FaultKind::ShortData), DataLength::Out(len)) => {
                task.out_left = packets_in_half(len, most);
                let first = if task.out_left > 0 { ready(task.tag, Direction::Out, most) } else { Vec::new() };
                task.keep(first, aborted(task.tag));
            }
            (Some(FaultKind::PhaseError), _) => {
                task.keep(Vec::new(), StatusIu::Response { tag: task.tag, code: RESPONSE_INVALID_IU }.to_bytes());
            }
            _ => {
                let reply = target.bulk_out(COMMAND_OUT, 0, packet);
                if reply != PacketOut::Accepted {
                    return reply;
                }
            }
        }
        self.tasks.retain(|known| known.tag != task.tag);
        if effect.fault.is_some() || effect.ready_at.is_some() {
            if self.tasks.len() == FOLLOWED {
                self.tasks.remove(0);
            }
            self.tasks.push(task);
        }
        PacketOut::Accepted
    }

    /// Handles data from the host on 0x02.
    pub(super) fn out(
        &mut self,
        target: &mut impl PacketTarget,
        stream: u16,
        packet: &[u8],
        halts: &mut Halts,
    ) -> PacketOut {
        let tag = if stream == 0 { self.writing } else { Some(Tag(stream)) };
        let Some(task) = self.tasks.iter_mut().find(|task| task.is_kept && Some(task.tag) == tag) else {
            return target.bulk_out(DATA_OUT, stream, packet);
        };
        if task.halts_data == Some(Direction::Out) {
            task.halts_data = None;
            halts.set(Endpoint::DataOut);
            return PacketOut::Stall;
        }
        let len = packet.len() as u32;
        let taken = task.out_left > 0 && len <= task.out_left;
        task.out_left = if taken { task.out_left - len } else { 0 };
        if taken { PacketOut::Accepted } else { PacketOut::Nak }
    }

    /// Handles the host's request for a packet on 0x81.
    pub(super) fn input(&mut self, target: &mut impl PacketTarget, stream: u16, halts: &mut Halts) -> PacketIn {
        let tag = if stream == 0 { self.reading } else { Some(Tag(stream)) };
        let is_meant = |task: &FollowedTask| Some(task.tag) == tag && (task.is_kept || task.is_cut());
        let Some(at) = self.tasks.iter().position(is_meant) else { return target.bulk_in(DATA_IN, stream) };
        let task = &mut self.tasks[at];
        if task.halts_data == Some(Direction::In) {
            task.halts_data = None;
            halts.set(Endpoint::DataIn);
            return PacketIn::Stall;
        }
        if task.is_kept {
            return PacketIn::Nak;
        }
        loop {
            let task = &mut self.tasks[at];
            if let Some(packet) = task.data.pop_front() {
                return PacketIn::Packet(packet);
            }
            if !task.status.is_empty() {
                return PacketIn::Nak;
            }
            match target.bulk_in(DATA_IN, stream) {
                PacketIn::Packet(packet) => {
                    task.has_data = true;
                    task.collected.extend(packet);
                }
                PacketIn::Stall => return PacketIn::Stall,
                PacketIn::Nak if self.fetch(target, stream) => {}
                PacketIn::Nak => return PacketIn::Nak,
            }
        }
    }

    /// Handles the host's request for a packet on 0x83.
    pub(super) fn status(&mut self, target: &mut impl PacketTarget, stream: u16, halts: &mut Halts) -> PacketIn {
        loop {
            if let Some(at) = self.tasks.iter().position(|task| task.has_status(stream)) {
                match self.tasks[at].status.pop_front() {
                    Some(Due::Halt) => {
                        halts.set(Endpoint::Status);
                        return PacketIn::Stall;
                    }
                    Some(Due::Packet(iu)) => return self.pass(iu),
                    Some(Due::Status(iu)) => {
                        self.tasks.remove(at);
                        return PacketIn::Packet(iu);
                    }
                    None => {}
                }
            }
            if let Some(at) = self.passing.iter().position(|iu| stream == 0 || tag_of(iu) == Some(Tag(stream)))
                && let Some(iu) = self.passing.remove(at)
            {
                return self.pass(iu);
            }
            match target.bulk_in(STATUS_IN, stream) {
                PacketIn::Packet(iu) => self.queue(iu, target.speed().bulk_packet()),
                reply => return reply,
            }
        }
    }

    /// Fetches an IU for the host from the firmware. Returns whether there was one.
    fn fetch(&mut self, target: &mut impl PacketTarget, stream: u16) -> bool {
        match target.bulk_in(STATUS_IN, stream) {
            PacketIn::Packet(iu) => {
                self.queue(iu, target.speed().bulk_packet());
                true
            }
            PacketIn::Stall | PacketIn::Nak => false,
        }
    }

    /// Queues an IU until the host asks for it. `most` is the packet length in bytes.
    fn queue(&mut self, iu: Vec<u8>, most: usize) {
        let ends = matches!(iu.first(), Some(&ID_SENSE | &ID_RESPONSE));
        let known = self.tasks.iter_mut().find(|task| !task.is_kept && Some(task.tag) == tag_of(&iu));
        match known {
            Some(task) if ends => task.end(iu, most),
            _ => self.passing.push_back(iu),
        }
    }

    /// Passes an IU to the host, and notes which command's data moves next.
    fn pass(&mut self, iu: Vec<u8>) -> PacketIn {
        match iu.first() {
            Some(&ID_READ_READY) => self.reading = tag_of(&iu),
            Some(&ID_WRITE_READY) => self.writing = tag_of(&iu),
            _ => {}
        }
        PacketIn::Packet(iu)
    }
}

impl FollowedTask {
    /// Does not pass the command to the firmware, and queues what the status pipe returns instead.
    fn keep(&mut self, first: Vec<Due>, iu: Vec<u8>) {
        self.is_kept = true;
        self.status.extend(first);
        self.status.push_back(Due::Status(iu));
    }

    /// Whether only half of the command's data to the host will pass.
    fn is_cut(&self) -> bool {
        self.effect.fault == Some(FaultKind::ShortData) && !self.is_kept
    }

    /// Whether the command has a status for the host on this stream. Its end follows only after its data has moved.
    fn has_status(&self, stream: u16) -> bool {
        let is_here = stream == 0 || self.tag.0 == stream;
        let is_due = match self.status.front() {
            Some(Due::Packet(_)) => true,
            Some(Due::Halt | Due::Status(_)) => {
                let has_moved = self.halts_data.is_none() && self.out_left == 0 && self.data.is_empty();
                has_moved && is_ready(self.effect.ready_at)
            }
            None => false,
        };
        is_here && is_due
    }

    /// Ends the command: its final IU has left the firmware.
    fn end(&mut self, mut iu: Vec<u8>, most: usize) {
        match self.effect.fault {
            Some(FaultKind::BadTag) => {
                if let Some(high) = iu.get_mut(2) {
                    *high ^= 0x40;
                }
            }
            Some(FaultKind::StallStatus) => self.status.push_back(Due::Halt),
            Some(FaultKind::ShortData) if self.has_data => {
                let data = std::mem::take(&mut self.collected);
                self.data.extend(first_half(&data, most));
                // If no shorter packet ends the data, an empty one ends the host's transfer.
                if (data.len() / 2).is_multiple_of(most) {
                    self.data.push_back(Vec::new());
                }
            }
            _ => {}
        }
        self.status.push_back(Due::Status(iu));
    }
}

/// The IUs that announce data at high speed, where there are no streams.
fn ready(tag: Tag, direction: Direction, most: usize) -> Vec<Due> {
    const HIGH_SPEED: usize = 512;
    if most > HIGH_SPEED {
        return Vec::new();
    }
    let iu = match direction {
        Direction::In => StatusIu::ReadReady(tag),
        Direction::Out => StatusIu::WriteReady(tag),
    };
    vec![Due::Packet(iu.to_bytes())]
}

fn aborted(tag: Tag) -> Vec<u8> {
    StatusIu::Sense { tag, status: ScsiStatus::CheckCondition, sense: ABORTED.to_fixed().to_vec() }.to_bytes()
}

fn tag_of(iu: &[u8]) -> Option<Tag> {
    iu.get(2..4).map(|tag| Tag(u16::from_be_bytes([tag[0], tag[1]])))
}
