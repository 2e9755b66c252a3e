//! Definitions for both directions of usbredir: capabilities, statuses, packet types, the numbering of endpoints.
//!
//! Source: usbredir protocol 0.7, `docs/usb-redirection-protocol.md` and `usbredirproto.h` of the spice project. All
//! numbers are little-endian, all structures packed. Layouts depend on the capabilities that both sides announced.

/// Maximum data in one packet: Linux's limit for all usbfs transfers together (`usbfs_memory_mb`).
pub const MAX_DATA: usize = 16 << 20;
/// Length of the version text in a hello, in bytes.
pub(super) const HELLO_VERSION_LEN: usize = 64;
/// Number of endpoint slots in `interface_info` and `ep_info`: 16 OUT, then 16 IN.
pub const ENDPOINT_SLOTS: usize = 32;

/// Bit mask of the features that a side announces in its hello. A feature is used if both sides announce it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// Bulk streams, and `max_streams` in `ep_info`.
    pub const BULK_STREAMS: Self = Self(1 << 0);
    /// `device_version_bcd` in `device_connect`.
    pub const CONNECT_DEVICE_VERSION: Self = Self(1 << 1);
    /// The guest acknowledges `device_disconnect`.
    pub const DEVICE_DISCONNECT_ACK: Self = Self(1 << 3);
    /// `max_packet_size` in `ep_info`.
    pub const EP_INFO_MAX_PACKET_SIZE: Self = Self(1 << 4);
    /// Packet ids of 64 bits.
    pub const IDS_64_BITS: Self = Self(1 << 5);
    /// Bulk packets of 64 KiB and more.
    pub const BULK_LENGTH_32_BITS: Self = Self(1 << 6);
    /// Capabilities that this side announces. SuperSpeed needs all of them except the acknowledgement.
    pub const OURS: Self = Self(
        Self::BULK_STREAMS.0
            | Self::CONNECT_DEVICE_VERSION.0
            | Self::DEVICE_DISCONNECT_ACK.0
            | Self::EP_INFO_MAX_PACKET_SIZE.0
            | Self::IDS_64_BITS.0
            | Self::BULK_LENGTH_32_BITS.0,
    );

    /// Whether all capabilities of `other` are included.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RedirStatus {
    /// The request succeeded.
    Success = 0,
    /// The guest, a reset, or a change of the alternate setting cancelled the request.
    Cancelled = 1,
    /// Invalid request, length or endpoint.
    Invalid = 2,
    /// The device failed.
    IoError = 3,
    /// The endpoint is halted, or the request is not supported.
    Stall = 4,
    /// The device sent more data than requested.
    Babble = 6,
}

/// Packet types.
pub(super) mod kind {
    pub(in super::super) const HELLO: u32 = 0;
    pub(in super::super) const DEVICE_CONNECT: u32 = 1;
    pub(in super::super) const DEVICE_DISCONNECT: u32 = 2;
    pub(in super::super) const RESET: u32 = 3;
    pub(in super::super) const INTERFACE_INFO: u32 = 4;
    pub(in super::super) const EP_INFO: u32 = 5;
    pub(in super::super) const SET_CONFIGURATION: u32 = 6;
    pub(in super::super) const GET_CONFIGURATION: u32 = 7;
    pub(in super::super) const CONFIGURATION_STATUS: u32 = 8;
    pub(in super::super) const SET_ALT_SETTING: u32 = 9;
    pub(in super::super) const GET_ALT_SETTING: u32 = 10;
    pub(in super::super) const ALT_SETTING_STATUS: u32 = 11;
    pub(in super::super) const ALLOC_BULK_STREAMS: u32 = 18;
    pub(in super::super) const FREE_BULK_STREAMS: u32 = 19;
    pub(in super::super) const BULK_STREAMS_STATUS: u32 = 20;
    pub(in super::super) const CANCEL_DATA_PACKET: u32 = 21;
    pub(in super::super) const FILTER_REJECT: u32 = 22;
    pub(in super::super) const DEVICE_DISCONNECT_ACK: u32 = 24;
    pub(in super::super) const CONTROL_PACKET: u32 = 100;
    pub(in super::super) const BULK_PACKET: u32 = 101;
}

/// Slot of an endpoint in the protocol's tables and bit masks: OUT n at n, IN n at 16 + n.
pub const fn slot(address: u8) -> usize {
    (address & 0x0F) as usize | if address & 0x80 != 0 { 0x10 } else { 0 }
}
