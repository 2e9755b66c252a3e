//! What the USB blocks share: speeds, packets, replies, and endpoint halts. The firmware sets halts, for an error or for
//! SET_FEATURE, and clears them for CLEAR_FEATURE.

use super::register::Register;
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
