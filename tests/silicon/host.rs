//! The host of a chip whose CPU is elsewhere. It takes at once what the unit sends, and sends what the unit takes.

use asm2464::scsi::bot::{CSW_LEN, CSW_SIGNATURE};
use asm2464::scsi::uas::{COMMAND_IU_LEN, ID_COMMAND, ID_READ_READY, ID_WRITE_READY};
use asm2464_chip::chip::{COMMAND_OUT, Chip, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN};
use asm2464_chip::mcu::MemoryFlash;

use super::recording::Request;

#[derive(Default)]
pub struct Host {
    /// What waits for the unit to take it: a packet for an endpoint each.
    out: Vec<(u8, Vec<u8>)>,
    /// The last request has its answer.
    pub is_answered: bool,
}

impl Host {
    pub fn acts(&mut self, chip: &mut Chip<MemoryFlash>, request: &Request) {
        self.is_answered = false;
        self.out.clear();
        match request {
            Request::Setup(setup, data) => {
                chip.take_control_reply();
                chip.begin_control(*setup, data);
            }
            Request::Command { tag, cdb } => {
                let mut unit = vec![ID_COMMAND, 0];
                unit.extend(tag.to_be_bytes());
                unit.resize(16, 0);
                unit.extend(cdb);
                unit.resize(COMMAND_IU_LEN, 0);
                self.out.push((COMMAND_OUT, unit));
            }
            Request::Cbw(cbw, data) => {
                self.out.push((DATA_OUT, cbw.to_vec()));
                self.out.extend(data.chunks(chip.speed().bulk_packet()).map(|packet| (DATA_OUT, packet.to_vec())));
            }
        }
        self.exchanges(chip);
    }

    /// Moves what can be moved.
    pub fn exchanges(&mut self, chip: &mut Chip<MemoryFlash>) {
        self.is_answered |= chip.take_control_reply().is_some();
        for endpoint in [DATA_IN, STATUS_IN] {
            while let PacketIn::Packet(packet) = chip.bulk_in(endpoint, 0) {
                let is_csw = packet.len() == CSW_LEN && packet.starts_with(&CSW_SIGNATURE);
                let is_ready = matches!(packet.first(), Some(&ID_READ_READY | &ID_WRITE_READY));
                if is_csw || endpoint == STATUS_IN && !is_ready {
                    self.is_answered = true;
                    self.out.clear();
                }
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
