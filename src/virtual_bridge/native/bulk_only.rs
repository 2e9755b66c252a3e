//! Bulk-Only, the device's side: command, data, status, and the thirteen cases in which host and device disagree.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0, sections 5.3, 6.6 and 6.7.

use std::time::Instant;

use super::exchange::{CommandEnding, CommandExchange, DataPlan};
use super::target::Target;
use crate::bridge::Endpoint;
use crate::virtual_bridge::reply::{ABORTED, After, Halts, InReply, OutReply};
use crate::virtual_bridge::scenario::FaultKind;

use crate::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Command,
    Data,
    Status,
}

/// The state of the transport in the device.
#[derive(Debug, Default)]
pub(super) struct BulkOnlyDevice {
    /// The pipes that are halted.
    pub(super) halts: Halts,
    phase: Phase,
    tag: u32,
    host_len: u32,
    exchange: CommandExchange,
    phase_error: bool,
    /// After a CBW that is none, both pipes stay halted until the class's reset (section 6.6.1).
    needs_reset: bool,
    /// The data pipe halts when the data that there is has moved.
    halt_after_data: bool,
    /// The status pipe halts once before the status.
    halt_status: bool,
    /// It does so for the next command too.
    halts_next_status: bool,
}

impl BulkOnlyDevice {
    /// The class's reset: ready for a command; halts stay until they are cleared (section 3.1).
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

    /// Lets the status pipe halt once before the next command's status.
    pub(super) fn halt_next_status(&mut self) {
        self.halts_next_status = true;
    }

    pub(super) fn ready_at(&self) -> Option<Instant> {
        if self.phase == Phase::Status { self.exchange.ready_at } else { None }
    }

    pub(super) fn out(
        &mut self,
        target: &mut Target,
        data: &[u8],
        fault: impl FnOnce(u8) -> Option<FaultKind>,
    ) -> (OutReply, After) {
        if self.halts.holds(Endpoint::DataOut) {
            return (OutReply::Stall, After::Nothing);
        }
        match self.phase {
            Phase::Command => self.command(target, data, fault),
            Phase::Data if matches!(self.exchange.intent(), Some((Direction::Out, _))) => {
                let taken = self.exchange.take(target, data);
                self.after_data(Direction::Out);
                (OutReply::Accepted(taken), After::Nothing)
            }
            Phase::Data | Phase::Status => (OutReply::Silent, After::Nothing),
        }
    }

    pub(super) fn input(&mut self, target: &mut Target, buffer: &mut [u8], max_packet: u16) -> (InReply, After) {
        if self.halts.holds(Endpoint::DataIn) {
            return (InReply::Stall, After::Nothing);
        }
        match self.phase {
            Phase::Command => (InReply::Silent, After::Nothing),
            Phase::Data => {
                let reply = self.exchange.fill(buffer, max_packet);
                if reply != InReply::Silent {
                    self.after_data(Direction::In);
                }
                (reply, After::Nothing)
            }
            Phase::Status => self.status(target, buffer),
        }
    }

    fn command(
        &mut self,
        target: &mut Target,
        data: &[u8],
        fault: impl FnOnce(u8) -> Option<FaultKind>,
    ) -> (OutReply, After) {
        let Ok(cbw) = CommandBlockWrapper::parse(data) else {
            self.halts.set(Endpoint::DataIn);
            self.halts.set(Endpoint::DataOut);
            self.needs_reset = true;
            return (OutReply::Stall, After::Nothing);
        };
        let accepted = OutReply::Accepted(data.len());
        let fault = fault(cbw.cdb.opcode());
        self.tag = cbw.tag;
        self.host_len = cbw.transfer_length;
        self.exchange = CommandExchange::idle(std::mem::take(&mut self.exchange.data));
        (self.phase_error, self.halt_after_data) = (false, false);
        self.halt_status = std::mem::take(&mut self.halts_next_status);
        match fault {
            Some(FaultKind::Disconnect) => return (accepted, After::Vanish),
            Some(FaultKind::Timeout) => {
                self.exchange.ending = CommandEnding::Silent;
                self.exchange.plan = DataPlan::InNever { len: u64::MAX };
                self.exchange.limit = u64::MAX;
                self.phase = Phase::Data;
                return (accepted, After::Nothing);
            }
            Some(FaultKind::Stall) => self.exchange.ending = CommandEnding::Check(ABORTED),
            _ => target.start(cbw.cdb.padded(), cbw.lun, &mut self.exchange),
        }
        match fault {
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
        (accepted, After::Nothing)
    }

    /// Section 6.7: what the host expects against what the device intends.
    fn agree(&mut self, host: Direction) {
        let host_len = u64::from(self.host_len);
        self.phase = Phase::Status;
        match (host_len, self.exchange.intent()) {
            (0, None) => {}
            (0, Some(_)) => self.give_up(),
            (_, Some((device, len))) if device == host && len <= host_len => {
                self.halt_after_data = self.exchange.limit < host_len;
                self.phase = Phase::Data;
                if self.exchange.data_is_done() {
                    self.after_data(host);
                }
            }
            (_, Some((Direction::In, _))) if host == Direction::In => {
                self.phase_error = true;
                self.exchange.limit = self.exchange.limit.min(host_len);
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

    /// No data moves: the command ends in a phase error.
    fn give_up(&mut self) {
        self.phase_error = true;
        self.exchange.plan = DataPlan::None;
        self.exchange.limit = 0;
        self.exchange.ending = CommandEnding::Good;
    }

    fn after_data(&mut self, direction: Direction) {
        if self.exchange.data_is_done() {
            self.phase = Phase::Status;
            if std::mem::take(&mut self.halt_after_data) {
                self.halts.set(pipe(direction));
            }
        }
    }

    fn status(&mut self, target: &mut Target, buffer: &mut [u8]) -> (InReply, After) {
        if !self.exchange.is_ready() {
            return (InReply::Silent, After::Nothing);
        }
        if std::mem::take(&mut self.halt_status) {
            self.halts.set(Endpoint::DataIn);
            return (InReply::Stall, After::Nothing);
        }
        let status = match self.exchange.ending {
            _ if self.phase_error => CswStatus::PhaseError,
            CommandEnding::Check(sense) => {
                target.sense = sense;
                CswStatus::Failed
            }
            _ => CswStatus::Passed,
        };
        // What has moved is bounded by what the host expects.
        let residue = self.host_len.saturating_sub(self.exchange.moved as u32);
        let csw = CommandStatusWrapper { tag: self.tag, residue, status }.to_bytes();
        self.phase = Phase::Command;
        let after = match self.exchange.ending {
            CommandEnding::Reset(mode) if !self.phase_error => After::Leave(mode),
            _ => After::Nothing,
        };
        (InReply::packet(buffer, &csw), after)
    }
}

const fn pipe(direction: Direction) -> Endpoint {
    match direction {
        Direction::In => Endpoint::DataIn,
        Direction::Out => Endpoint::DataOut,
    }
}
