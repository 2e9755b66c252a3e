//! Types that the USB blocks share: speeds, packets, replies.

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
