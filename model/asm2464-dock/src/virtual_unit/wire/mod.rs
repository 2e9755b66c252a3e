//! The wire between a host and the unit's side, with the scenario's faults.
//!
//! The unit's side is firmware on the chip model, or the boot loader. It does not see the faults: the wire passes a
//! packet, changes it, or does not pass it. The wire itself answers packets that do not reach the unit's side, as
//! docs/virtual-unit.md says. Faults strike only commands of Bulk-Only and UAS; on an interface of another class every
//! packet passes.

mod bulk_only;
mod uas;

use std::time::{Duration, Instant};

use asm2464::firmware::{BULK_ONLY_CLASS, InterfaceClass, UAS_CLASS};
use asm2464_chip::chip::{Chip, PacketIn, PacketOut, Speed};
use asm2464_host::bridge::Endpoint;

use self::bulk_only::BulkOnlyWire;
use self::uas::UasWire;
use super::responder::{Halts, Reply};
use super::scenario::{FaultKind, FaultPlan};

/// The unit's side of the wire, packet by packet.
pub(super) trait PacketTarget {
    /// The link's speed.
    fn speed(&mut self) -> Speed;

    /// Handles a packet from the host on the endpoint with this address.
    fn bulk_out(&mut self, endpoint: u8, stream: u16, packet: &[u8]) -> PacketOut;

    /// Handles the host's request for a packet on the endpoint with this address.
    fn bulk_in(&mut self, endpoint: u8, stream: u16) -> PacketIn;
}

impl PacketTarget for Chip {
    fn speed(&mut self) -> Speed {
        Self::speed(self)
    }

    fn bulk_out(&mut self, endpoint: u8, stream: u16, packet: &[u8]) -> PacketOut {
        Self::bulk_out(self, endpoint, stream, packet)
    }

    fn bulk_in(&mut self, endpoint: u8, stream: u16) -> PacketIn {
        Self::bulk_in(self, endpoint, stream)
    }
}

/// A unit on a wire, which moves a host's transfers packet by packet.
pub(super) trait Wired {
    /// Maximum length in bytes of a packet on the bulk pipes.
    fn packet_len(&self) -> usize;

    /// Handles a packet from the host. `is_first`: it is the first packet of its transfer.
    fn packet_out(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        packet: &[u8],
        is_first: bool,
        faults: &mut FaultPlan,
    ) -> PacketOut;

    /// Handles the host's request for a packet.
    fn packet_in(&mut self, endpoint: Endpoint, stream: u16) -> PacketIn;

    /// Lets the unit work. Returns `true` if there may be news for the host.
    fn run(&mut self) -> bool {
        false
    }
}

/// Maximum number of runs in a row that bring news for the host. Then the host has to fetch the news.
pub(super) const NEWS_AT_MOST: usize = 64;

/// Moves data from the host.
pub(super) fn transfer_out(
    unit: &mut impl Wired,
    endpoint: Endpoint,
    stream: u16,
    data: &[u8],
    faults: &mut FaultPlan,
) -> Reply {
    let most = unit.packet_len();
    let (mut moved, mut news) = (0, 0..NEWS_AT_MOST);
    loop {
        let packet = &data[moved..data.len().min(moved + most)];
        match unit.packet_out(endpoint, stream, packet, moved == 0, faults) {
            PacketOut::Accepted => {
                moved += packet.len();
                news = 0..NEWS_AT_MOST;
                if moved == data.len() {
                    return Reply::Done(moved);
                }
            }
            PacketOut::Stall if moved == 0 => return Reply::Stall,
            // The caller offers the rest again, and meets the halt then.
            PacketOut::Stall => return Reply::Part(moved),
            // If the unit keeps having news and does not take this data, the host has to fetch the news first.
            PacketOut::Nak if news.next().is_some() && unit.run() => {}
            PacketOut::Nak if moved == 0 => return Reply::Silent,
            PacketOut::Nak => return Reply::Part(moved),
        }
    }
}

/// Moves data to the host.
pub(super) fn transfer_in(unit: &mut impl Wired, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply {
    let most = unit.packet_len();
    let (mut moved, mut news) = (0, 0..NEWS_AT_MOST);
    loop {
        match unit.packet_in(endpoint, stream) {
            PacketIn::Packet(packet) => {
                let Some(place) = buffer.get_mut(moved..moved + packet.len()) else {
                    let count = buffer.len() - moved;
                    buffer[moved..].copy_from_slice(&packet[..count]);
                    return Reply::Babble(buffer.len());
                };
                place.copy_from_slice(&packet);
                moved += packet.len();
                news = 0..NEWS_AT_MOST;
                if packet.len() < most || moved == buffer.len() {
                    return Reply::Done(moved);
                }
            }
            PacketIn::Stall if moved == 0 => return Reply::Stall,
            PacketIn::Nak if news.next().is_some() && unit.run() => {}
            PacketIn::Nak if moved == 0 => return Reply::Silent,
            PacketIn::Stall | PacketIn::Nak => return Reply::Part(moved),
        }
    }
}

/// Protocol on the bulk pipes.
#[derive(Debug, Default)]
enum Protocol {
    BulkOnly(BulkOnlyWire),
    Uas(UasWire),
    /// Another protocol, which no fault strikes.
    #[default]
    Other,
}

impl Protocol {
    fn of(class: InterfaceClass) -> Self {
        match class {
            BULK_ONLY_CLASS => Self::BulkOnly(BulkOnlyWire::default()),
            UAS_CLASS => Self::Uas(UasWire::default()),
            _ => Self::Other,
        }
    }
}

/// Next item for the host on a waiting pipe.
#[derive(Debug)]
enum Due {
    /// A halt of the pipe.
    Halt,
    /// A packet.
    Packet(Vec<u8>),
    /// The packet that ends the command.
    Status(Vec<u8>),
}

/// Effect of the wire on a command, and the earliest time of its status.
#[derive(Debug, Default, Clone, Copy)]
struct WireEffect {
    fault: Option<FaultKind>,
    ready_at: Option<Instant>,
}

/// Decides the effect on each command, and counts the command once, even if the host has to offer it several times.
#[derive(Debug, Default)]
struct Judge {
    command_time: Duration,
    offered: Option<(Vec<u8>, Option<FaultKind>)>,
}

impl Judge {
    fn judge(&mut self, packet: &[u8], opcode: u8, faults: &mut FaultPlan) -> WireEffect {
        let ready_at = (!self.command_time.is_zero()).then(|| Instant::now() + self.command_time);
        if faults.is_empty() {
            return WireEffect { fault: None, ready_at };
        }
        let fault = match self.offered.take() {
            Some((before, fault)) if before == packet => fault,
            _ => faults.strike(opcode),
        };
        self.offered = Some((packet.to_vec(), fault));
        WireEffect { fault, ready_at }
    }

    fn taken(&mut self) {
        self.offered = None;
    }
}

/// The wire of one attachment.
#[derive(Debug, Default)]
pub(super) struct AttachmentWire {
    protocol: Protocol,
    /// Halts that a fault has set. The unit's side keeps its own.
    pub(super) halts: Halts,
    judge: Judge,
    /// A fault has taken the unit off the bus.
    pub(super) has_vanished: bool,
}

impl AttachmentWire {
    /// Creates a wire on which a command's status comes no sooner than `command_time` after it.
    pub(super) fn new(command_time: Duration) -> Self {
        Self { judge: Judge { command_time, offered: None }, ..Self::default() }
    }

    /// Starts over with the class of another alternate setting, or the same one. Drops commands in progress.
    pub(super) fn start_over(&mut self, class: Option<InterfaceClass>) {
        let protocol = class.map(Protocol::of).unwrap_or_default();
        *self = Self { protocol, ..Self::new(self.judge.command_time) };
    }

    /// Drops the command on a Bulk-Only Mass Storage Reset. Halts stay (Bulk-Only Transport 1.0, section 3.1).
    pub(super) fn mass_storage_reset(&mut self) {
        if let Protocol::BulkOnly(wire) = &mut self.protocol {
            *wire = BulkOnlyWire::default();
        }
        self.judge.taken();
    }

    /// Time at which a delayed status may pass.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        match &self.protocol {
            Protocol::BulkOnly(wire) => wire.ready_at(),
            Protocol::Uas(wire) => wire.ready_at(),
            Protocol::Other => None,
        }
    }

    /// Handles a packet from the host.
    pub(super) fn bulk_out(
        &mut self,
        target: &mut impl PacketTarget,
        endpoint: Endpoint,
        stream: u16,
        packet: &[u8],
        faults: &mut FaultPlan,
    ) -> PacketOut {
        if self.halts.holds(endpoint) {
            return PacketOut::Stall;
        }
        let (judge, has_vanished) = (&mut self.judge, &mut self.has_vanished);
        let mut effect = |opcode| {
            let effect = judge.judge(packet, opcode, faults);
            *has_vanished |= effect.fault == Some(FaultKind::Disconnect);
            effect
        };
        let reply = match (&mut self.protocol, endpoint) {
            (Protocol::BulkOnly(wire), Endpoint::DataOut) => wire.out(target, packet, &mut self.halts, &mut effect),
            (Protocol::Uas(wire), Endpoint::Command) => wire.command(target, packet, &mut effect),
            (Protocol::Uas(wire), Endpoint::DataOut) => wire.out(target, stream, packet, &mut self.halts),
            _ => target.bulk_out(endpoint.address(), stream, packet),
        };
        if reply == PacketOut::Accepted {
            self.judge.taken();
        }
        reply
    }

    /// Handles the host's request for a packet.
    pub(super) fn bulk_in(&mut self, target: &mut impl PacketTarget, endpoint: Endpoint, stream: u16) -> PacketIn {
        if self.halts.holds(endpoint) {
            return PacketIn::Stall;
        }
        match (&mut self.protocol, endpoint) {
            (Protocol::BulkOnly(wire), Endpoint::DataIn) => wire.input(target, &mut self.halts),
            (Protocol::Uas(wire), Endpoint::DataIn) => wire.input(target, stream, &mut self.halts),
            (Protocol::Uas(wire), Endpoint::Status) => wire.status(target, stream, &mut self.halts),
            _ => target.bulk_in(endpoint.address(), stream),
        }
    }
}

/// The packets that pass if a fault cuts data to the host short: its first half.
fn first_half(data: &[u8], most: usize) -> impl Iterator<Item = Vec<u8>> {
    data[..data.len() / 2].chunks(most).map(<[u8]>::to_vec)
}

/// Number of bytes that pass if a fault cuts data from the host short: as many whole packets as fit into half of it.
fn packets_in_half(len: u32, most: usize) -> u32 {
    let most = most as u32;
    len / 2 / most * most
}

/// Whether a status that is delayed until `at` may pass.
fn is_ready(at: Option<Instant>) -> bool {
    at.is_none_or(|at| at <= Instant::now())
}
