//! What the USB blocks share: speeds, packets, replies, and endpoint halts; and the bulk data endpoints 0x81 and 0x02, of
//! which one arming moves one packet.
//!
//! The firmware sets halts, for an error or for SET_FEATURE, and clears them for CLEAR_FEATURE.

use super::map::Register;
use crate::mcu::XdataMemory;

/// The speed of the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// 480 Mbit/s, USB 2.0: no bulk streams.
    High,
    /// 5 Gbit/s and up: bulk streams.
    #[default]
    Super,
}

impl Speed {
    /// 0x9100 bits 1:0; 0 is full speed, which is not modelled. Source: c:0x328A.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::High => 1,
            Self::Super => 2,
        }
    }

    /// Length of a full bulk packet in bytes.
    pub fn bulk_packet(self) -> usize {
        match self {
            Self::High => 512,
            Self::Super => 1024,
        }
    }

    /// Length of a full packet on the control endpoint in bytes.
    pub fn control_packet(self) -> usize {
        match self {
            Self::High => 64,
            Self::Super => 512,
        }
    }
}

/// The address of the endpoint for data to the host.
pub const DATA_IN: u8 = 0x81;
/// The address of the endpoint for data, and CBWs, from the host.
pub const DATA_OUT: u8 = 0x02;
/// The address of the endpoint for UAS status.
pub const STATUS_IN: u8 = 0x83;
/// The address of the endpoint for UAS commands.
pub const COMMAND_OUT: u8 = 0x04;

/// 0x9006: .0 halts 0x81, .7 halts 0x02. Source: GET_STATUS (b0:0xB3CF), SET_FEATURE (b0:0x9DD1) and CLEAR_FEATURE
/// (b0:0xA98D, 0xA9AB) of these endpoints; errors: c:0x014D, 0x0185, 0x3130, 0x4D78.
const DATA_HALTS: u16 = 0x9006;
/// 0x905D.0 halts 0x83. Source: b0:0xB3ED, 0x9DE9, 0xA9D3.
const STATUS_HALT: u16 = 0x905D;
/// 0x905F.0 halts 0x04. Source: b0:0xB3E5, 0x9DE3, 0xA9BF.
const COMMAND_HALT: u16 = 0x905F;

/// The registers of [`is_halted`].
pub(super) const HALTS: &[Register] = &[
    Register::one(DATA_HALTS, "BULK_HALTS"),
    Register::one(STATUS_HALT, "STATUS_HALT"),
    Register::one(COMMAND_HALT, "COMMAND_HALT"),
];

/// Whether the firmware has halted an endpoint.
pub(super) fn is_halted(endpoint: u8, memory: &XdataMemory) -> bool {
    let (register, bit) = match endpoint {
        DATA_IN => (DATA_HALTS, 0x01),
        DATA_OUT => (DATA_HALTS, 0x80),
        STATUS_IN => (STATUS_HALT, 0x01),
        COMMAND_OUT => (COMMAND_HALT, 0x01),
        _ => return false,
    };
    memory.main()[usize::from(register)] & bit != 0
}

/// The unit's answer to a packet from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOut {
    /// The unit took the packet.
    Accepted,
    /// Not now: NAK, or NRDY at SuperSpeed. Retry after the chip has run.
    Nak,
    /// The endpoint is halted.
    Stall,
}

/// The unit's answer to a host's request for a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketIn {
    /// A packet. A short packet ends the transfer.
    Packet(Vec<u8>),
    /// Not now. Retry after the chip has run.
    Nak,
    /// The endpoint is halted.
    Stall,
}

/// A packet, or the end of a control transfer, on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsbEvent<'a> {
    /// A SETUP packet, with all of a write's data.
    Setup {
        /// The eight bytes.
        setup: [u8; 8],
        /// The data of a write.
        data: &'a [u8],
    },
    /// A control transfer succeeded; holds the data of a read.
    ControlDone(&'a [u8]),
    /// A control transfer was stalled.
    ControlStall,
    /// A bulk packet crossed the wire. `stream` is 0 without streams.
    Bulk {
        /// The endpoint's address.
        endpoint: u8,
        /// The stream.
        stream: u16,
        /// The packet.
        packet: &'a [u8],
    },
    /// The host suspended the link.
    Suspend,
    /// The host resumed the link.
    Resume,
}

/// 0x9007:0x9008: bytes of the next IN packet, big-endian. Source: c:0x5229.
const IN_LENGTH: u16 = 0x9007;
/// 0x900C:0x900D: the stream of IN data. 0x900E:0x900F: the stream of OUT data. Source: c:0x3D3C.
const IN_STREAM: u16 = 0x900C;
const OUT_STREAM: u16 = 0x900E;
/// 0x9093, write 1 clears: .3 the IN packet was sent, .1 an OUT packet arrived; .0 and .2 are aborts, which never
/// happen here. Source: c:0x0FCD.
pub(super) const BULK_EVENTS: u16 = 0x9093;
/// 0x9094: .1 arm IN, .4 arm OUT, .0 drop IN, .3 drop OUT. Source: c:0x5216, 0x3267; open firmware.
const ARM: u16 = 0x9094;
/// 0x910D:0x910E: bytes of the OUT packet, big-endian. Source: c:0x3181; open firmware.
const OUT_LENGTH: u16 = 0x910D;

/// 0x8000: the data buffer, the source of IN packets.
const DATA_BUFFER: usize = 0x8000;
const DROP_IN: u8 = 0x01;
const ARM_IN: u8 = 0x02;
const DROP_OUT: u8 = 0x08;
const ARM_OUT: u8 = 0x10;
const OUT_CAME: u8 = 0x02;
const IN_GONE: u8 = 0x08;

/// Instructions from the moment the host takes an IN packet until 0x9093.3 is set (chosen). c:0x106E clears that bit
/// some 12 instructions after its handler has armed the next packet: an earlier event would be lost.
const IN_DELAY: u64 = 200;

pub(super) const BULK_REGISTERS: &[Register] = &[
    Register::range(IN_LENGTH, IN_LENGTH + 1, "BULK_IN_LENGTH").plain(),
    Register::range(IN_STREAM, IN_STREAM + 1, "BULK_IN_STREAM").plain(),
    Register::range(OUT_STREAM, OUT_STREAM + 1, "BULK_OUT_STREAM").plain(),
    Register::one(BULK_EVENTS, "BULK_EVENTS"),
    Register::one(ARM, "BULK_ARM"),
    Register::range(OUT_LENGTH, OUT_LENGTH + 1, "BULK_OUT_LENGTH").plain(),
];

#[derive(Debug, Default)]
pub(super) struct BulkBlock {
    events: u8,
    /// The armed IN packet's stream and bytes.
    waiting: Option<(u16, Vec<u8>)>,
    gone_at: Option<u64>,
    out_armed: bool,
}

impl BulkBlock {
    pub(super) fn events(&self) -> u8 {
        self.events
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        match addr {
            BULK_EVENTS => self.events,
            ARM => 0,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, speed: Speed, memory: &XdataMemory) -> bool {
        match addr {
            BULK_EVENTS => {
                let cleared = self.events & value;
                self.events &= !value;
                cleared != 0
            }
            ARM => {
                if value & DROP_IN != 0 {
                    self.events &= !IN_GONE;
                    self.waiting = None;
                    self.gone_at = None;
                }
                if value & DROP_OUT != 0 {
                    self.events &= !OUT_CAME;
                    self.out_armed = false;
                }
                if value & ARM_IN != 0 {
                    let len = usize::from(memory.word(IN_LENGTH)).min(speed.bulk_packet());
                    let bytes = memory.main()[DATA_BUFFER..DATA_BUFFER + len].to_vec();
                    self.waiting = Some((memory.word(IN_STREAM), bytes));
                }
                if value & ARM_OUT != 0 {
                    self.out_armed = true;
                }
                value & (DROP_IN | ARM_IN | DROP_OUT | ARM_OUT) != 0
            }
            _ => false,
        }
    }

    /// Takes the armed IN packet if it is for this stream; `None` stands for any stream.
    pub(super) fn take_in(&mut self, stream: Option<u16>, now: u64) -> Option<Vec<u8>> {
        let (_, bytes) = self.waiting.take_if(|(its, _)| stream.is_none_or(|stream| stream == *its))?;
        self.gone_at = Some(now + IN_DELAY);
        Some(bytes)
    }

    /// Whether an OUT packet may arrive; `stream` as in [`BulkBlock::take_in`].
    pub(super) fn wants_out(&self, stream: Option<u16>, memory: &XdataMemory) -> bool {
        self.out_armed && stream.is_none_or(|stream| stream == memory.word(OUT_STREAM))
    }

    /// Records that an OUT packet has arrived. Its bytes are in the buffer.
    pub(super) fn out_came(&mut self, len: usize, memory: &mut XdataMemory) {
        let at = usize::from(OUT_LENGTH);
        memory.main_mut()[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
        self.out_armed = false;
        self.events |= OUT_CAME;
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.gone_at
    }

    pub(super) fn advance(&mut self, now: u64) {
        if self.gone_at.take_if(|at| *at <= now).is_some() {
            self.events |= IN_GONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arming_sends_one_packet_and_no_more() {
        let mut memory = XdataMemory::new();
        memory.main_mut()[0x9007] = 0x10;
        let mut bulk = BulkBlock::default();
        for (speed, len) in [(Speed::Super, 1024), (Speed::High, 512)] {
            assert!(bulk.write(ARM, ARM_IN, speed, &memory));
            assert_eq!(bulk.take_in(None, 0).map(|packet| packet.len()), Some(len));
            assert_eq!(bulk.take_in(None, 0), None);
        }
    }

    #[test]
    fn the_firmware_gets_its_event_some_time_after_the_host_took_the_packet() {
        let memory = XdataMemory::new();
        let mut bulk = BulkBlock::default();
        bulk.write(ARM, ARM_IN, Speed::Super, &memory);
        assert_eq!(bulk.next(), None, "while the host does not read");
        assert_eq!(bulk.take_in(None, 1_000), Some(Vec::new()));
        bulk.advance(1_000 + IN_DELAY - 1);
        assert_eq!(bulk.events(), 0);
        bulk.advance(1_000 + IN_DELAY);
        assert_eq!(bulk.events(), IN_GONE);
        assert!(bulk.write(BULK_EVENTS, IN_GONE, Speed::Super, &memory));
        assert_eq!(bulk.events(), 0);
    }

    #[test]
    fn a_packet_goes_to_the_stream_that_it_is_for() {
        let mut memory = XdataMemory::new();
        memory.main_mut()[0x900D] = 5;
        memory.main_mut()[0x900F] = 6;
        let mut bulk = BulkBlock::default();
        bulk.write(ARM, ARM_IN | ARM_OUT, Speed::Super, &memory);
        assert_eq!(bulk.take_in(Some(4), 0), None);
        assert!(bulk.take_in(Some(5), 0).is_some());
        assert!(!bulk.wants_out(Some(5), &memory) && bulk.wants_out(Some(6), &memory));
        bulk.out_came(0x123, &mut memory);
        assert_eq!((bulk.events(), &memory.main()[0x910D..0x910F]), (OUT_CAME, &[0x01, 0x23][..]));
        assert!(!bulk.wants_out(Some(6), &memory), "one arming, one packet");
    }

    #[test]
    fn a_dropped_arming_moves_no_packet() {
        let memory = XdataMemory::new();
        let mut bulk = BulkBlock::default();
        bulk.write(ARM, ARM_IN | ARM_OUT, Speed::Super, &memory);
        bulk.write(ARM, DROP_IN | DROP_OUT, Speed::Super, &memory);
        assert_eq!(bulk.take_in(None, 0), None);
        assert!(!bulk.wants_out(None, &memory));
    }
}
