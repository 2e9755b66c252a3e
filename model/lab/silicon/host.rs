//! The host of a chip whose CPU may run elsewhere. It takes a packet as soon as the unit has one, and sends a packet as
//! soon as the unit accepts it.

use asm2464::scsi::XdataAddress;
use asm2464::scsi::bot::{CSW_LEN, CSW_SIGNATURE};
use asm2464::scsi::uas::{COMMAND_IU_LEN, ID_COMMAND, ID_READ_READY, ID_WRITE_READY};
use asm2464_chip::chip::{COMMAND_OUT, Chip, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN};

use super::recording::Request;

#[derive(Default)]
pub struct Host {
    /// Packets that the unit has not accepted yet, each with its endpoint.
    out: Vec<(u8, Vec<u8>)>,
    /// Control requests and CBWs without an answer.
    pub requests: usize,
    /// UAS commands without a status.
    pub commands: usize,
    /// Events that the link has raised, until the firmware acknowledges one of them.
    link: Vec<(XdataAddress, u8)>,
    /// The host lets UAS statuses wait in the unit.
    pub leaves_statuses: bool,
}

impl Host {
    /// Makes a request, or an event outside the chip.
    pub fn acts(&mut self, chip: &mut Chip, request: &Request) {
        match request {
            Request::Link { register, bits } => {
                chip.drive_link(*register, *bits);
                self.link.push((XdataAddress::main(*register), *bits));
            }
            Request::Outside { register: 0x92F8, value } => chip.drive_link(0x92F8, *value),
            Request::Outside { register, value } => chip.poke(XdataAddress::main(*register), &[*value]),
            Request::Setup(setup, data) => {
                self.requests += 1;
                self.out.retain(|(endpoint, _)| *endpoint == COMMAND_OUT);
                chip.take_control_reply();
                chip.begin_control(*setup, data);
            }
            Request::Command { tag, cdb } => {
                self.commands += 1;
                let mut iu = vec![ID_COMMAND, 0];
                iu.extend(tag.to_be_bytes());
                iu.resize(16, 0);
                iu.extend(cdb);
                iu.resize(COMMAND_IU_LEN, 0);
                self.out.push((COMMAND_OUT, iu));
            }
            Request::Cbw(cbw, data) => {
                self.requests += 1;
                self.out = vec![(DATA_OUT, cbw.to_vec())];
                self.out.extend(data.chunks(chip.speed().bulk_packet()).map(|packet| (DATA_OUT, packet.to_vec())));
            }
        }
        self.exchanges(chip);
    }

    /// Whether every request except UAS commands has its answer.
    pub fn is_answered(&self) -> bool {
        self.requests == 0 && self.link.is_empty()
    }

    /// Stops waiting for answers.
    pub fn gives_up(&mut self) {
        (self.requests, self.commands) = (0, 0);
        self.link.clear();
    }

    /// Moves all packets that can be moved.
    pub fn exchanges(&mut self, chip: &mut Chip) {
        if self.link.iter().any(|(register, bits)| chip.peek(*register) & bits != *bits) {
            self.link.clear();
        }
        if chip.take_control_reply().is_some() {
            self.requests = self.requests.saturating_sub(1);
        }
        while let PacketIn::Packet(packet) = chip.bulk_in(DATA_IN, 0) {
            if packet.len() == CSW_LEN && packet.starts_with(&CSW_SIGNATURE) {
                self.requests = self.requests.saturating_sub(1);
                self.out.clear();
            }
        }
        while !self.leaves_statuses
            && let PacketIn::Packet(packet) = chip.bulk_in(STATUS_IN, 0)
        {
            if !matches!(packet.first(), Some(&ID_READ_READY | &ID_WRITE_READY)) {
                self.commands = self.commands.saturating_sub(1);
            }
        }
        while let Some((endpoint, packet)) = self.out.first() {
            if chip.bulk_out(*endpoint, 0, packet) != PacketOut::Accepted {
                break;
            }
            self.out.remove(0);
        }
    }
}
