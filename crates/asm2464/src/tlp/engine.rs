//! Registers of the chip's TLP engine, which sends one request at a time. All numbers in them are big-endian.
//!
//! Source: the GPU runtime, which drives patched units through them; the engine's use in 240417 (b0:0x999D-0x99AD,
//! 0xAE10-0xAE80); open firmware.

/// First byte of the header: format and type, a [`TlpKind`](super::TlpKind).
pub const FORMAT: u16 = 0xB210;
/// Byte enables.
pub const BYTE_ENABLES: u16 = 0xB217;
/// Lower half of the address, four bytes.
pub const ADDRESS: u16 = 0xB218;
/// Upper half of the address, four bytes.
pub const ADDRESS_HIGH: u16 = 0xB21C;
/// The dword to write, or that was read.
pub const DATA: u16 = 0xB220;
/// Two bytes of the completion: status in bits 7:5 of the first, byte count in the rest.
pub const COMPLETION: u16 = 0xB22A;
/// [`SEND`] sends the request. Other values ring NVMe doorbells.
pub const FIRE: u16 = 0xB254;
/// Value of [`FIRE`].
pub const SEND: u8 = 0x0F;
/// State of the request: write 1 clears [`SENT`], [`COMPLETED`] and [`NO_COMPLETION`]. A posted write sets only
/// [`SENT`]. Source: b0:0x999D, 0xAE2B-0xAE42; the runtime clears [`SENT`] after the request, then expects
/// exactly [`COMPLETED`].
pub const STATUS: u16 = 0xB296;
/// The request was sent.
pub const SENT: u8 = 0x04;
/// The completion arrived.
pub const COMPLETED: u8 = 0x02;
/// No completion arrived in time.
pub const NO_COMPLETION: u8 = 0x01;
