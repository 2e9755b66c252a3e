//! Bulk-Only, the device's side: command, data, status, and the thirteen cases of host and device expectations.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0, sections 5.3, 6.6 and 6.7.

use std::time::Instant;

use asm2464::scsi::ResetMode;
use asm2464::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464_host::bridge::Endpoint;

use super::exchange::{CommandEnding, CommandExchange};
use super::target::Target;
use crate::virtual_unit::chip_unit::Course;
use crate::virtual_unit::reply::{ABORTED, Halts, Reply};
use crate::virtual_unit::scenario::{FaultKind, FaultPlan};

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
    /// After an invalid CBW both pipes stay halted until the class's reset (section 6.6.1).
    needs_reset: bool,
    /// The data pipe halts when the data that there is has moved.
    halt_after_data: bool,
    /// The status pipe halts once before the status.
    halt_status: bool,
    /// It does so before the next command's status.
    pub(super) halts_next_status: bool,
}

impl BulkOnlyTarget {
    /// Handles the class's reset: ready for a command. Halts stay until they are cleared (section 3.1).
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

    /// Handles data from the host.
    pub(super) fn out(&mut self, target: &mut Target, data: &[u8], faults: &mut FaultPlan) -> Reply {
        if self.halts.holds(Endpoint::DataOut) {
            return Reply::Stall;
        }
        match self.phase {
            Phase::Command => self.command(target, data, faults),
            Phase::Data if self.exchange.direction == Some(Direction::Out) => {
                let taken = self.exchange.take(target, data);
                self.after_data(Direction::Out);
                Reply::taken(taken, data.len())
            }
            Phase::Data | Phase::Status => Reply::Silent,
        }
    }

    /// Handles the host's request for data.
    pub(super) fn input(&mut self, target: &mut Target, buffer: &mut [u8], max_packet: usize) -> Reply {
        if self.halts.holds(Endpoint::DataIn) {
            return Reply::Stall;
        }
        match self.phase {
            Phase::Command => Reply::Silent,
            Phase::Data => {
                let reply = self.exchange.fill(buffer, max_packet);
                if reply != Reply::Silent {
                    self.after_data(Direction::In);
                }
                reply
            }
            Phase::Status => self.status(target, buffer),
        }
    }

    fn command(&mut self, target: &mut Target, data: &[u8], faults: &mut FaultPlan) -> Reply {
        let Some(cbw) = CommandBlockWrapper::parse(data) else {
            self.halts.set(Endpoint::DataIn);
            self.halts.set(Endpoint::DataOut);
            self.needs_reset = true;
            return Reply::Stall;
        };
        self.tag = cbw.tag;
        self.host_len = cbw.transfer_length;
        (self.phase_error, self.halt_after_data) = (false, false);
        self.halt_status = std::mem::take(&mut self.halts_next_status);
        let fault = faults.strike(cbw.cdb.opcode());
        self.exchange = match fault {
            Some(FaultKind::Timeout | FaultKind::Disconnect) => CommandExchange::ending(CommandEnding::Silent),
            Some(FaultKind::Stall) => CommandExchange::ending(CommandEnding::Check(ABORTED)),
            _ => target.start(cbw.cdb.padded(), cbw.lun),
        };
        match fault {
            Some(FaultKind::Disconnect) => self.course = Course::Vanished,
            Some(FaultKind::Stall) if cbw.transfer_length == 0 => self.halt_status = true,
            Some(FaultKind::StallStatus) => self.halt_status = true,
            Some(FaultKind::ShortData) => {
                self.exchange.limit /= 2;
                if self.exchange.ending == CommandEnding::AfterData {
                    self.exchange.ending = CommandEnding::Check(ABORTED);
                }
            }
            Some(FaultKind::BadTag) => self.tag ^= 0xFFFF_FFFF,
            Some(FaultKind::PhaseError) => self.phase_error = true,
            _ => {}
        }
        self.agree(cbw.direction);
        Reply::Done(data.len())
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
            (_, None) if self.exchange.ending == CommandEnding::Silent => {}
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

    fn status(&mut self, target: &mut Target, buffer: &mut [u8]) -> Reply {
        if !self.exchange.is_ready() {
            return Reply::Silent;
        }
        if std::mem::take(&mut self.halt_status) {
            self.halts.set(Endpoint::DataIn);
            return Reply::Stall;
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
        // What has moved is bounded by what the host expects.
        let residue = self.host_len.saturating_sub(self.exchange.moved as u32);
        self.phase = Phase::Command;
        Reply::packet(buffer, &CommandStatusWrapper { tag: self.tag, residue, status }.to_bytes())
    }
}

const fn pipe(direction: Direction) -> Endpoint {
    match direction {
        Direction::In => Endpoint::DataIn,
        Direction::Out => Endpoint::DataOut,
    }
}
