//! Faults of Bulk-Only: one command at a time.

use std::collections::VecDeque;
use std::time::Instant;

use asm2464::scsi::bot::{CSW_LEN, CSW_SIGNATURE, CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464::scsi::opcode;
use asm2464_chip::chip::{DATA_IN, DATA_OUT, PacketIn, PacketOut};
use asm2464_host::bridge::Endpoint;

use super::{Due, PacketTarget, WireEffect, first_half, is_ready, packets_in_half};
use crate::virtual_unit::responder::{ABORTED, Halts};
use crate::virtual_unit::scenario::FaultKind;

/// State of a command in progress on the wire.
#[derive(Debug, Default)]
struct FollowedCommand {
    tag: u32,
    host_len: u32,
    effect: WireEffect,
    /// The command was not passed to the firmware.
    is_kept: bool,
    /// The command is REQUEST SENSE, and the command before it was not passed to the firmware.
    reports_abort: bool,
    /// Bytes still to come from the host: for the firmware, or to be dropped if it did not get the command.
    out_left: u32,
    /// Data to the host, of which half will pass.
    collected: Vec<u8>,
    /// Residue for the CSW instead of the firmware's.
    residue: Option<u32>,
    due: VecDeque<Due>,
}

#[derive(Debug, Default)]
pub(super) struct BulkOnlyWire {
    command: Option<FollowedCommand>,
    /// The last command was not passed to the firmware. REQUEST SENSE reports that it was aborted.
    was_aborted: bool,
}

impl BulkOnlyWire {
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let command = self.command.as_ref()?;
        if matches!(command.due.front(), Some(Due::Status(_))) { command.effect.ready_at } else { None }
    }

    /// Handles a packet on 0x02.
    pub(super) fn out(
        &mut self,
        target: &mut impl PacketTarget,
        packet: &[u8],
        halts: &mut Halts,
        effect: &mut dyn FnMut(u8) -> WireEffect,
    ) -> PacketOut {
        if let Some(command) = &mut self.command {
            if command.is_silent() {
                return PacketOut::Nak;
            }
            if command.out_left > 0 {
                return command.data(target, packet, halts);
            }
        }
        let Some(cbw) = CommandBlockWrapper::parse(packet) else {
            return target.bulk_out(DATA_OUT, 0, packet);
        };
        let effect = effect(cbw.cdb.opcode());
        let is_out = cbw.transfer_length > 0 && cbw.direction == Direction::Out;
        let mut command = FollowedCommand {
            tag: cbw.tag,
            host_len: cbw.transfer_length,
            effect,
            reports_abort: self.was_aborted && cbw.cdb.opcode() == opcode::REQUEST_SENSE,
            out_left: if is_out { cbw.transfer_length } else { 0 },
            ..FollowedCommand::default()
        };
        match effect.fault {
            Some(FaultKind::Disconnect) => return PacketOut::Accepted,
            Some(FaultKind::Timeout) => command.is_kept = true,
            Some(fault @ (FaultKind::Stall | FaultKind::ShortData)) if is_out || fault == FaultKind::Stall => {
                command.out_left = match fault {
                    FaultKind::ShortData => packets_in_half(command.out_left, target.speed().bulk_packet()),
                    _ => 0,
                };
                command.keep(is_out, halts);
            }
            _ => {
                let reply = target.bulk_out(DATA_OUT, 0, packet);
                if reply != PacketOut::Accepted {
                    return reply;
                }
            }
        }
        self.was_aborted = command.is_kept && !command.is_silent();
        self.command = Some(command);
        PacketOut::Accepted
    }

    /// Handles the host's request for a packet on 0x81.
    pub(super) fn input(&mut self, target: &mut impl PacketTarget, halts: &mut Halts) -> PacketIn {
        let Some(command) = &mut self.command else { return target.bulk_in(DATA_IN, 0) };
        loop {
            match command.due.front() {
                Some(_) if command.is_kept && command.out_left > 0 => return PacketIn::Nak,
                Some(Due::Status(_)) if !is_ready(command.effect.ready_at) => return PacketIn::Nak,
                None if command.is_kept => return PacketIn::Nak,
                Some(_) | None => {}
            }
            match command.due.pop_front() {
                Some(Due::Halt) => {
                    halts.set(Endpoint::DataIn);
                    return PacketIn::Stall;
                }
                Some(Due::Packet(packet)) => return PacketIn::Packet(packet),
                Some(Due::Status(csw)) => {
                    self.command = None;
                    return PacketIn::Packet(csw);
                }
                None => {}
            }
            let most = target.speed().bulk_packet();
            match target.bulk_in(DATA_IN, 0) {
                PacketIn::Packet(packet) if command.is_ended_by(&packet) => command.end(packet, most),
                PacketIn::Packet(packet) if command.effect.fault == Some(FaultKind::ShortData) => {
                    command.collected.extend(packet);
                }
                PacketIn::Packet(mut packet) => {
                    if std::mem::take(&mut command.reports_abort) {
                        packet.iter_mut().zip(ABORTED.to_fixed()).for_each(|(byte, aborted)| *byte = aborted);
                    }
                    return PacketIn::Packet(packet);
                }
                // The firmware halts the pipe after its data. The half that passes goes first.
                PacketIn::Stall if !command.collected.is_empty() => {
                    command.cut(most);
                    if command.due.is_empty() {
                        return PacketIn::Stall;
                    }
                }
                reply => return reply,
            }
        }
    }
}

impl FollowedCommand {
    fn is_silent(&self) -> bool {
        self.effect.fault == Some(FaultKind::Timeout)
    }

    /// Handles a packet of the command's data from the host.
    fn data(&mut self, target: &mut impl PacketTarget, packet: &[u8], halts: &mut Halts) -> PacketOut {
        let len = packet.len() as u32;
        if !self.is_kept {
            let reply = target.bulk_out(DATA_OUT, 0, packet);
            if reply == PacketOut::Accepted {
                self.out_left = self.out_left.saturating_sub(len);
            }
            return reply;
        }
        let taken = len <= self.out_left;
        self.out_left = if taken { self.out_left - len } else { 0 };
        if self.out_left == 0 {
            halts.set(Endpoint::DataOut);
        }
        if taken { PacketOut::Accepted } else { PacketOut::Stall }
    }

    /// Does not pass the command to the firmware: it ends aborted, with its data pipe halted.
    fn keep(&mut self, is_out: bool, halts: &mut Halts) {
        self.is_kept = true;
        if !is_out {
            self.due.push_back(Due::Halt);
        } else if self.out_left == 0 {
            halts.set(Endpoint::DataOut);
        }
        let residue = self.host_len - self.out_left;
        let csw = CommandStatusWrapper { tag: self.tag, residue, status: CswStatus::Failed };
        self.due.push_back(Due::Status(csw.to_bytes().to_vec()));
    }

    fn is_ended_by(&self, packet: &[u8]) -> bool {
        packet.len() == CSW_LEN && packet.starts_with(&CSW_SIGNATURE) && packet[4..8] == self.tag.to_le_bytes()
    }

    /// Ends the command: its CSW has left the firmware.
    fn end(&mut self, mut csw: Vec<u8>, most: usize) {
        match self.effect.fault {
            Some(FaultKind::BadTag) => csw[4..8].iter_mut().for_each(|byte| *byte = !*byte),
            Some(FaultKind::PhaseError) => csw[12] = 2,
            Some(FaultKind::StallStatus) => self.due.push_back(Due::Halt),
            Some(FaultKind::ShortData) if !self.collected.is_empty() => {
                self.cut(most);
                self.due.push_back(Due::Halt);
            }
            _ => {}
        }
        if let Some(residue) = self.residue {
            csw[8..12].copy_from_slice(&residue.to_le_bytes());
        }
        self.due.push_back(Due::Status(csw));
    }

    /// Passes half of the data.
    fn cut(&mut self, most: usize) {
        let data = std::mem::take(&mut self.collected);
        self.residue = Some(self.host_len.saturating_sub(data.len() as u32 / 2));
        self.due.extend(first_half(&data, most).map(Due::Packet));
    }
}
