//! The control endpoint: SETUP, data stage, status stage. The firmware supplies the answers.

use super::map::Register;
use super::usb::Speed;
use crate::mcu::XdataMemory;

/// 0x9002.1: the firmware's note that it has taken an OUT packet. Source: b0:0xA687. Bits 7:6 always read 0: after a
/// write of E0, it reads 20 (recording of 231204, lines 2964 and 2968).
const NOTES: u16 = 0x9002;
/// 0x9003:0x9004: bytes of the next IN packet, big-endian. Source: b0:0xBA27.
const LENGTH: u16 = 0x9003;
/// 0x9090: .6:0 address, .7 configured. Source: b0:0xA732. Plain memory: the host's side needs neither.
const ADDRESS: u16 = 0x9090;
/// 0x9091, write 1 clears: .0 a SETUP arrived; .1 the host offers an OUT packet; .2 it was taken; .3 the host wants IN
/// data; .4 status stage. Source: b0:0xCF7F, 0xD21E, 0xDEB1; open firmware. At SuperSpeed every request ends with .4,
/// reads too (all 22 of two recordings; of 231204, lines 3073 to 3075). At high speed a read ends with .1 and .2, and
/// every other request with .3, which the firmware answers with an empty packet (0x9092.2). No recording proves this
/// for high speed: open firmware's comments say so, and the vendor's firmware has that answer (b0:0xB2CA).
pub(super) const EVENTS: u16 = 0x9091;
/// 0x9092: .0 stall, .1 take the OUT packet to 0x9E00, .2 send 0x9003:0x9004 bytes from 0x9E00, .3 finish the status
/// stage. Reads 0 when done, here at once. Source: b0:0xA714, 0xBA31.
const COMMAND: u16 = 0x9092;
/// 0x9104-0x910B: the SETUP packet. Source: b0:0xA784.
const SETUP: u16 = 0x9104;

/// 0x9E00: the endpoint's buffer. Source: b0:0xBA27; open firmware.
const BUFFER: usize = 0x9E00;
const BUFFER_LEN: usize = 0x200;

const SETUP_CAME: u8 = 0x01;
const OUT_OFFERED: u8 = 0x02;
const OUT_TAKEN: u8 = 0x04;
const IN_WANTED: u8 = 0x08;
const STATUS: u8 = 0x10;

const STALL: u8 = 0x01;
const TAKE_OUT: u8 = 0x02;
const SEND_IN: u8 = 0x04;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(NOTES, "EP0_NOTES"),
    Register::range(LENGTH, LENGTH + 1, "EP0_LENGTH").plain(),
    Register::one(ADDRESS, "USB_ADDRESS").plain(),
    Register::one(EVENTS, "EP0_EVENTS"),
    Register::one(COMMAND, "EP0_COMMAND"),
    Register::range(SETUP, SETUP + 7, "EP0_SETUP").plain(),
];

/// How a control transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlReply {
    /// It succeeded. Holds the data of a read; empty for a write.
    Done(Vec<u8>),
    /// The firmware stalled it.
    Stall,
}

/// Stage of a control transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ControlStage {
    Idle,
    SetupSent,
    DataIn,
    DataOut,
    /// The host's zero-length OUT packet that ends a read at USB 2.
    StatusOut,
    /// The end of every request at SuperSpeed: the host's STATUS packet.
    Status,
    /// The zero-length IN packet that ends every other request at USB 2.
    StatusIn {
        /// The firmware has sent it.
        is_sent: bool,
    },
}

#[derive(Debug)]
pub(super) struct Ep0 {
    events: u8,
    stage: ControlStage,
    setup: [u8; 8],
    /// A read's data so far, or the rest of a write's data.
    data: Vec<u8>,
    reply: Option<ControlReply>,
}

impl Ep0 {
    pub(super) fn new() -> Self {
        Self { events: 0, stage: ControlStage::Idle, setup: [0; 8], data: Vec::new(), reply: None }
    }

    pub(super) fn events(&self) -> u8 {
        self.events
    }

    /// Begins a control transfer with a SETUP packet and the data of a write. Ends a transfer in progress.
    pub(super) fn begin(&mut self, setup: [u8; 8], data: &[u8], memory: &mut XdataMemory) {
        let start = usize::from(SETUP);
        memory.main_mut()[start..start + 8].copy_from_slice(&setup);
        self.setup = setup;
        self.data.clear();
        if !self.is_read() {
            self.data.extend_from_slice(&data[..data.len().min(self.wanted())]);
        }
        self.reply = None;
        self.stage = ControlStage::SetupSent;
        self.events = SETUP_CAME;
    }

    /// Ends the transfer in progress without a reply.
    pub(super) fn abandon(&mut self) {
        (self.stage, self.events, self.reply) = (ControlStage::Idle, 0, None);
    }

    pub(super) fn take_reply(&mut self) -> Option<ControlReply> {
        self.reply.take()
    }

    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    fn is_read(&self) -> bool {
        self.setup[0] & 0x80 != 0 && self.wanted() > 0
    }

    /// The request's wLength.
    fn wanted(&self) -> usize {
        usize::from(u16::from_le_bytes([self.setup[6], self.setup[7]]))
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        match addr {
            EVENTS => self.events,
            COMMAND => 0,
            NOTES => stored & 0x3F,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, speed: Speed, memory: &mut XdataMemory) -> bool {
        match addr {
            EVENTS => self.acknowledge(value, speed),
            COMMAND => self.command(value, speed, memory),
            _ => false,
        }
    }

    fn acknowledge(&mut self, value: u8, speed: Speed) -> bool {
        let cleared = self.events & value;
        self.events &= !value;
        match self.stage {
            ControlStage::SetupSent if value & SETUP_CAME != 0 => match (self.is_read(), self.wanted()) {
                (true, _) => self.enter(ControlStage::DataIn, IN_WANTED),
                (false, 0) => self.end(speed),
                (false, _) => self.enter(ControlStage::DataOut, OUT_OFFERED),
            },
            ControlStage::DataOut if value & OUT_TAKEN != 0 => {
                if self.data.is_empty() {
                    self.end(speed);
                } else {
                    self.events |= OUT_OFFERED;
                }
            }
            // A packet of full size was sent, and more data follows.
            ControlStage::DataIn if value & IN_WANTED != 0 && !self.data.is_empty() => self.events |= IN_WANTED,
            ControlStage::StatusOut if value & OUT_TAKEN != 0 => self.finish(),
            ControlStage::Status if value & STATUS != 0 => self.finish(),
            ControlStage::StatusIn { is_sent: true } if value & IN_WANTED != 0 => self.finish(),
            _ => return cleared != 0,
        }
        true
    }

    fn enter(&mut self, stage: ControlStage, event: u8) {
        self.stage = stage;
        self.events |= event;
    }

    /// Begins the status stage of a request that is not a read.
    fn end(&mut self, speed: Speed) {
        match speed {
            Speed::Super => self.enter(ControlStage::Status, STATUS),
            Speed::High => self.enter(ControlStage::StatusIn { is_sent: false }, IN_WANTED),
        }
    }

    fn finish(&mut self) {
        self.stage = ControlStage::Idle;
        self.reply = Some(ControlReply::Done(std::mem::take(&mut self.data)));
    }

    fn command(&mut self, value: u8, speed: Speed, memory: &mut XdataMemory) -> bool {
        if self.stage == ControlStage::Idle {
            return false;
        }
        if value & STALL != 0 {
            self.stage = ControlStage::Idle;
            self.events = 0;
            self.reply = Some(ControlReply::Stall);
            return true;
        }
        let mut did = false;
        if value & TAKE_OUT != 0 && matches!(self.stage, ControlStage::DataOut | ControlStage::StatusOut) {
            if self.stage == ControlStage::DataOut {
                let len = self.data.len().min(speed.control_packet());
                memory.main_mut()[BUFFER..BUFFER + len].copy_from_slice(&self.data[..len]);
                self.data.drain(..len);
            }
            self.events |= OUT_TAKEN;
            did = true;
        }
        if value & SEND_IN != 0 && self.stage == ControlStage::DataIn {
            let page = memory.main();
            let at = usize::from(LENGTH);
            let len = usize::from(u16::from_be_bytes([page[at], page[at + 1]])).min(BUFFER_LEN);
            let left = self.wanted() - self.data.len();
            self.data.extend_from_slice(&page[BUFFER..BUFFER + len.min(left)]);
            // Data longer than a packet goes as several packets (chosen). Both firmwares send one packet at a time.
            if len % speed.control_packet() != 0 || len == 0 || len >= left {
                self.events &= !IN_WANTED;
                match speed {
                    Speed::Super => self.enter(ControlStage::Status, STATUS),
                    Speed::High => self.enter(ControlStage::StatusOut, OUT_OFFERED),
                }
            }
            return true;
        }
        if value & SEND_IN != 0
            && let ControlStage::StatusIn { is_sent } = &mut self.stage
        {
            *is_sent = true;
            // The firmware may already have acknowledged the event.
            if self.events & IN_WANTED == 0 {
                self.finish();
            }
            return true;
        }
        did
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: [u8; 8] = [0x80, 6, 0, 1, 0, 0, 100, 0];
    const SUPER: Speed = Speed::Super;

    fn send(ep0: &mut Ep0, memory: &mut XdataMemory, bytes: &[u8], speed: Speed) {
        memory.main_mut()[BUFFER..BUFFER + bytes.len()].copy_from_slice(bytes);
        let at = usize::from(LENGTH);
        memory.main_mut()[at..at + 2].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        ep0.write(COMMAND, SEND_IN, speed, memory);
    }

    #[test]
    fn a_read_goes_through_its_stages_in_order() {
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        ep0.begin(READ, &[], &mut memory);
        assert_eq!((ep0.events(), &memory.main()[0x9104..0x910C]), (SETUP_CAME, &READ[..]));
        ep0.write(EVENTS, SETUP_CAME, SUPER, &mut memory);
        assert_eq!(ep0.events(), IN_WANTED);
        send(&mut ep0, &mut memory, &[7; 18], SUPER);
        assert_eq!(ep0.events(), STATUS, "a short packet ends the data");
        ep0.write(COMMAND, 0x08, SUPER, &mut memory);
        assert_eq!(ep0.take_reply(), None);
        ep0.write(EVENTS, STATUS, SUPER, &mut memory);
        assert_eq!(ep0.take_reply(), Some(ControlReply::Done(vec![7; 18])));
    }

    #[test]
    fn at_high_speed_a_read_ends_with_the_hosts_empty_packet() {
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        ep0.begin(READ, &[], &mut memory);
        ep0.write(EVENTS, SETUP_CAME, Speed::High, &mut memory);
        send(&mut ep0, &mut memory, &[7; 18], Speed::High);
        assert_eq!(ep0.events(), OUT_OFFERED);
        ep0.write(COMMAND, TAKE_OUT, Speed::High, &mut memory);
        assert_eq!(ep0.events(), OUT_OFFERED | OUT_TAKEN);
        assert_eq!(ep0.take_reply(), None);
        ep0.write(EVENTS, OUT_OFFERED | OUT_TAKEN, Speed::High, &mut memory);
        assert_eq!(ep0.take_reply(), Some(ControlReply::Done(vec![7; 18])));
    }

    #[test]
    fn a_full_packet_with_more_to_come_asks_for_the_next() {
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        ep0.begin(READ, &[], &mut memory);
        ep0.write(EVENTS, SETUP_CAME, Speed::High, &mut memory);
        send(&mut ep0, &mut memory, &[1; 64], Speed::High);
        ep0.write(EVENTS, IN_WANTED, Speed::High, &mut memory);
        assert_eq!(ep0.events(), IN_WANTED);
        send(&mut ep0, &mut memory, &[2; 64], Speed::High);
        assert_eq!(ep0.events(), OUT_OFFERED, "wLength is reached");
        ep0.write(EVENTS, OUT_TAKEN, Speed::High, &mut memory);
        let Some(ControlReply::Done(data)) = ep0.take_reply() else { panic!("no reply") };
        assert_eq!((data.len(), data[63], data[64]), (100, 1, 2));
    }

    #[test]
    fn a_write_longer_than_a_packet_comes_in_pieces() {
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        ep0.begin([0x40, 1, 0, 0, 0, 0, 70, 0], &[9; 80], &mut memory);
        ep0.write(EVENTS, SETUP_CAME, Speed::High, &mut memory);
        for left in [6, 0] {
            assert_eq!(ep0.events(), OUT_OFFERED);
            ep0.write(COMMAND, TAKE_OUT, Speed::High, &mut memory);
            assert_eq!(ep0.data.len(), left);
            ep0.write(EVENTS, OUT_OFFERED | OUT_TAKEN, Speed::High, &mut memory);
        }
        assert_eq!(ep0.events(), IN_WANTED);
        send(&mut ep0, &mut memory, &[], Speed::High);
        assert_eq!(ep0.take_reply(), None);
        ep0.write(EVENTS, IN_WANTED, Speed::High, &mut memory);
        assert_eq!(ep0.take_reply(), Some(ControlReply::Done(Vec::new())));
    }

    #[test]
    fn the_host_ends_a_request_without_data_at_superspeed_and_the_unit_at_high_speed() {
        const REQUEST: [u8; 8] = [0x00, 9, 1, 0, 0, 0, 0, 0];
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        for (speed, event) in [(SUPER, STATUS), (Speed::High, IN_WANTED)] {
            ep0.begin(REQUEST, &[], &mut memory);
            ep0.write(EVENTS, SETUP_CAME, speed, &mut memory);
            assert_eq!(ep0.events(), event);
            ep0.write(EVENTS, event, speed, &mut memory);
            let done = Some(ControlReply::Done(Vec::new()));
            assert_eq!(ep0.take_reply(), done.clone().filter(|_| speed == SUPER));
            send(&mut ep0, &mut memory, &[], speed);
            assert_eq!(ep0.take_reply(), done.filter(|_| speed != SUPER), "no end without the unit's packet");
        }
    }

    #[test]
    fn a_stall_ends_the_transfer_and_a_new_setup_begins_another() {
        let mut memory = XdataMemory::new();
        let mut ep0 = Ep0::new();
        ep0.begin(READ, &[], &mut memory);
        ep0.write(EVENTS, SETUP_CAME, SUPER, &mut memory);
        ep0.write(COMMAND, STALL, SUPER, &mut memory);
        assert_eq!((ep0.events(), ep0.take_reply()), (0, Some(ControlReply::Stall)));
        ep0.begin([0x00, 9, 1, 0, 0, 0, 0, 0], &[], &mut memory);
        ep0.write(EVENTS, SETUP_CAME, SUPER, &mut memory);
        assert_eq!(ep0.events(), STATUS, "without data the status stage follows");
    }
}
