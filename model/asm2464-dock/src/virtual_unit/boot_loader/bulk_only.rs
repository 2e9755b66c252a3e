//! Bulk-Only, the device's side: command, data, status, and the thirteen cases of host and device expectations.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0, sections 5.3, 6.6 and 6.7.

use std::time::Instant;

use asm2464::scsi::ResetMode;
use asm2464::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464_chip::chip::{PacketIn, PacketOut};
use asm2464_host::bridge::Endpoint;

use super::commands::{CommandEnding, CommandExchange, Target};
use crate::virtual_unit::chip_unit::Course;
use crate::virtual_unit::responder::Halts;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Command,
    Data,
    Status,
}

/// State of the transport.
#[derive(Debug, Default)]
pub(super) struct BulkOnlyTarget {
    /// Halted pipes.
    pub(super) halts: Halts,
    /// What the last transfer has done to the unit's presence on the bus.
    pub(super) course: Course,
    phase: Phase,
    tag: u32,
    host_len: u32,
    exchange: CommandExchange,
    phase_error: bool,
    /// After an invalid CBW both pipes stay halted until a Mass Storage Reset (section 6.6.1).
    needs_reset: bool,
    /// The data pipe halts after the device's data, because the host expects more.
    halt_after_data: bool,
    /// The status pipe halts once before the status.
    halt_status: bool,
    /// The value that `halt_status` takes with the next command.
    pub(super) halts_next_status: bool,
}

impl BulkOnlyTarget {
    /// Handles a Mass Storage Reset: waits for a command again. Halts stay until the host clears them (section 3.1).
    pub(super) fn reset(&mut self) {
        self.phase = Phase::Command;
        self.needs_reset = false;
        self.halt_status = false;
        self.halt_after_data = false;
    }

    pub(super) fn clear_halt(&mut self, endpoint: Endpoint) {
        if !self.needs_reset {
            self.halts.clear(endpoint);
        }
    }

    pub(super) fn ready_at(&self) -> Option<Instant> {
        if self.phase == Phase::Status { self.exchange.ready_at } else { None }
    }

    /// Handles a packet from the host.
    pub(super) fn out(&mut self, target: &mut Target, packet: &[u8]) -> PacketOut {
        if self.halts.holds(Endpoint::DataOut) {
            return PacketOut::Stall;
        }
        match self.phase {
            Phase::Command => self.command(target, packet),
            Phase::Data if self.exchange.direction == Some(Direction::Out) => {
                // A packet is taken as a whole. After the host's last packet, no halt is necessary.
                let sent = self.exchange.moved + packet.len();
                self.halt_after_data &= sent < self.host_len as usize;
                self.exchange.take(target, packet);
                self.after_data(Direction::Out);
                PacketOut::Accepted
            }
            Phase::Data | Phase::Status => PacketOut::Nak,
        }
    }

    /// Handles the host's request for a packet of at most `most` bytes.
    pub(super) fn input(&mut self, target: &mut Target, most: usize) -> PacketIn {
        if self.halts.holds(Endpoint::DataIn) {
            return PacketIn::Stall;
        }
        match self.phase {
            Phase::Data if self.exchange.direction == Some(Direction::In) => {
                let packet = self.exchange.give(most);
                self.after_data(Direction::In);
                PacketIn::Packet(packet)
            }
            Phase::Command | Phase::Data => PacketIn::Nak,
            Phase::Status => self.status(target),
        }
    }

    fn command(&mut self, target: &mut Target, packet: &[u8]) -> PacketOut {
        let Some(cbw) = CommandBlockWrapper::parse(packet) else {
            self.halts.set(Endpoint::DataIn);
            self.halts.set(Endpoint::DataOut);
            self.needs_reset = true;
            return PacketOut::Stall;
        };
        self.tag = cbw.tag;
        self.host_len = cbw.transfer_length;
        (self.phase_error, self.halt_after_data) = (false, false);
        self.halt_status = std::mem::take(&mut self.halts_next_status);
        self.exchange = target.start(cbw.cdb.padded(), cbw.lun);
        self.agree(cbw.direction);
        PacketOut::Accepted
    }

    /// Compares the host's expectation with the device's intention (section 6.7).
    fn agree(&mut self, host: Direction) {
        let host_len = self.host_len as usize;
        self.phase = Phase::Status;
        match (host_len, self.exchange.direction) {
            (0, None) => {}
            (0, Some(_)) => self.give_up(),
            (_, Some(device)) if device == host && self.exchange.limit <= host_len => {
                self.halt_after_data = self.exchange.limit < host_len;
                self.phase = Phase::Data;
                if self.exchange.data_is_done() {
                    self.after_data(host);
                }
            }
            (_, Some(Direction::In)) if host == Direction::In => {
                self.phase_error = true;
                self.exchange.limit = host_len;
                self.phase = Phase::Data;
            }
            (_, Some(_)) => {
                self.give_up();
                self.halts.set(pipe(host));
            }
            (_, None) => self.halts.set(pipe(host)),
        }
    }

    /// Ends the command in a phase error without moving data.
    fn give_up(&mut self) {
        self.phase_error = true;
        self.exchange = CommandExchange { ready_at: self.exchange.ready_at, ..CommandExchange::default() };
    }

    fn after_data(&mut self, direction: Direction) {
        if self.exchange.data_is_done() {
            self.phase = Phase::Status;
            if std::mem::take(&mut self.halt_after_data) {
                self.halts.set(pipe(direction));
            }
        }
    }

    fn status(&mut self, target: &mut Target) -> PacketIn {
        if !self.exchange.is_ready() {
            return PacketIn::Nak;
        }
        if std::mem::take(&mut self.halt_status) {
            self.halts.set(Endpoint::DataIn);
            return PacketIn::Stall;
        }
        let status = match self.exchange.ending {
            _ if self.phase_error => CswStatus::PhaseError,
            CommandEnding::Check(sense) => {
                target.sense = sense;
                CswStatus::Failed
            }
            _ => CswStatus::Passed,
        };
        self.course = match self.exchange.ending {
            CommandEnding::Reset(ResetMode::CpuReset) if !self.phase_error => Course::Reset,
            CommandEnding::Reset(ResetMode::Halt) if !self.phase_error => Course::Off,
            _ => Course::On,
        };
        // `moved` is at most `host_len`, so that the cast is exact.
        let residue = self.host_len.saturating_sub(self.exchange.moved as u32);
        self.phase = Phase::Command;
        PacketIn::Packet(CommandStatusWrapper { tag: self.tag, residue, status }.to_bytes().to_vec())
    }
}

const fn pipe(direction: Direction) -> Endpoint {
    match direction {
        Direction::In => Endpoint::DataIn,
        Direction::Out => Endpoint::DataOut,
    }
}
