//! PCIe requests of one dword, as F0 and the chip's TLP engine send them, their completions, and the addresses of
//! functions.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::ParseError;
use crate::scsi::XdataAddress;
use crate::serde_text::{serde_as_text, text_schema};

/// Bytes of F0's completion.
pub const COMPLETION_LEN: usize = 8;
/// State of the link's LTSSM: [`LINK_UP`] while the link is up.
pub const LTSSM: XdataAddress = XdataAddress::main(0xB450);
/// Value of [`LTSSM`] while the link is up. Source: open firmware; tinygrad's runtime; owners of units.
pub const LINK_UP: u8 = 0x78;
/// The last value of [`LTSSM`] in Detect: below it no device is linked. Source: the open firmware's register map.
pub const LAST_OF_DETECT: u8 = 0x0F;

/// Describes the state that a value of [`LTSSM`] stands for. Source: the open firmware's register map; its pull request
/// 81, where a link whose training was started too early stays at 4C.
pub const fn ltssm_name(state: u8) -> &'static str {
    match state {
        LINK_UP => "the link is up",
        0x00..=LAST_OF_DETECT => "it detects no device",
        0x10..=0x3F => "it detects a device and tries to reach it",
        _ => "training has begun and is not done",
    }
}

/// Bus, device and function number, written as in `lspci`: `04:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{bus:02x}:{device:02x}.{function}")]
pub struct Bdf {
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl Bdf {
    /// The bridge's own root port.
    pub const ROOT: Self = Self::new(0, 0, 0);

    /// Creates an address. Drops invalid bits of `device` and `function`.
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self { bus, device: device & 0x1F, function: function & 0x07 }
    }
}

impl FromStr for Bdf {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (bus, rest) = text.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex = |text: &str| u8::from_str_radix(text, 16).ok();
            Some(Self::new(hex(bus)?, hex(device)?, hex(function)?))
        };
        // Only what it prints: no signs, no invalid bits.
        let parsed = parse().filter(|bdf| bdf.to_string() == text);
        let wrong = || format!("{text:?} is not a bus, device and function number, as in 04:00.0");
        parsed.ok_or_else(|| ParseError(wrong()))
    }
}

serde_as_text!(Bdf);
text_schema!(Bdf, r"^[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", "Bus, device and function in hexadecimal.");

/// All four bytes of a dword.
const ALL_BYTES: u8 = 0x0F;

/// Kind of a TLP. Its value is the TLP's format and type. Memory requests always have a four-dword header, as
/// tinygrad's runtime sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
#[repr(u8)]
pub enum TlpKind {
    /// CfgRd0: configuration space of the bridge's own root port.
    #[display("configuration read")]
    ConfigRead0 = 0x04,
    /// CfgRd1: configuration space behind the root port.
    #[display("configuration read")]
    ConfigRead1 = 0x05,
    /// CfgWr0.
    #[display("configuration write")]
    ConfigWrite0 = 0x44,
    /// CfgWr1.
    #[display("configuration write")]
    ConfigWrite1 = 0x45,
    /// MRd of one dword.
    #[display("memory read")]
    MemoryRead = 0x20,
    /// MWr of one dword: posted, so no completion follows.
    #[display("memory write")]
    MemoryWrite = 0x60,
}

impl TlpKind {
    /// Bit of the first byte: the header has four dwords, which include the upper half of an address.
    pub const FOUR_DWORDS: u8 = 0x20;

    /// Returns the kind of a header by its first byte; `None` if it is none of these. Memory requests may have a header
    /// of three dwords.
    pub const fn of_header(format_and_type: u8) -> Option<Self> {
        Some(match format_and_type {
            0x04 => Self::ConfigRead0,
            0x05 => Self::ConfigRead1,
            0x44 => Self::ConfigWrite0,
            0x45 => Self::ConfigWrite1,
            0x00 | 0x20 => Self::MemoryRead,
            0x40 | 0x60 => Self::MemoryWrite,
            _ => return None,
        })
    }

    /// Whether the request is posted: no completion follows.
    pub const fn is_posted(self) -> bool {
        matches!(self, Self::MemoryWrite)
    }
}

/// A PCIe request of one dword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tlp {
    /// Kind of the request.
    pub kind: TlpKind,
    /// A memory address; of configuration space, bus, device, function and offset as in bytes 8 to 11 of the request. A
    /// multiple of 4.
    pub address: u64,
    /// Byte enables, bit n for byte n of the dword.
    pub enables: u8,
    /// Value that a write carries; 0 in a read.
    pub value: u32,
}

impl Tlp {
    /// Reads a dword of configuration space: of the root port on bus 0, of a device behind it on any other bus.
    pub const fn config_read(at: Bdf, offset: u16) -> Self {
        let kind = if at.bus == 0 { TlpKind::ConfigRead0 } else { TlpKind::ConfigRead1 };
        let address = config_address(at.bus, at.device, at.function, offset);
        Self { kind, address, enables: ALL_BYTES, value: 0 }
    }

    /// Writes a dword of configuration space.
    pub const fn config_write(at: Bdf, offset: u16, value: u32) -> Self {
        let kind = if at.bus == 0 { TlpKind::ConfigWrite0 } else { TlpKind::ConfigWrite1 };
        Self { kind, address: config_address(at.bus, at.device, at.function, offset), enables: ALL_BYTES, value }
    }

    /// Reads a dword of memory.
    pub const fn memory_read(address: u64) -> Self {
        Self { kind: TlpKind::MemoryRead, address, enables: ALL_BYTES, value: 0 }
    }

    /// Writes a dword of memory.
    pub const fn memory_write(address: u64, value: u32) -> Self {
        Self { kind: TlpKind::MemoryWrite, address, enables: ALL_BYTES, value }
    }

    /// Restricts the request to some bytes of the dword.
    #[must_use]
    pub const fn with_enables(mut self, enables: u8) -> Self {
        self.enables = enables & ALL_BYTES;
        self
    }
}

impl fmt::Display for Tlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        if matches!(kind, TlpKind::MemoryRead | TlpKind::MemoryWrite) {
            return write!(f, "{kind} at {:#x}", self.address);
        }
        let [_, _, _, _, bus, place, ..] = self.address.to_be_bytes();
        write!(f, "{kind} of {bus:02x}:{:02x}.{} at {:#x}", place >> 3, place & 7, self.address & 0xFFF)
    }
}

/// Encodes the address of a dword of configuration space as in bytes 8 to 11 of a configuration request (PCIe 5.0,
/// 2.2.7). `device` is 0 to 31, `function` 0 to 7, `offset` 0 to 0xFFC.
const fn config_address(bus: u8, device: u8, function: u8, offset: u16) -> u64 {
    (bus as u64) << 24 | (device as u64 & 0x1F) << 19 | (function as u64 & 7) << 16 | (offset as u64 & 0xFFC)
}

/// Result of a request that expects a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum CompletionStatus {
    /// Successful completion.
    #[error("success")]
    Success,
    /// Unsupported request: there is no such function, or no function decodes the address.
    #[error("unsupported request")]
    UnsupportedRequest,
    /// Configuration request retry: the function is still starting.
    #[error("configuration request retry")]
    ConfigRetry,
    /// Completer abort.
    #[error("completer abort")]
    CompleterAbort,
    /// A status that PCIe does not define.
    #[error("reserved status {0}")]
    Reserved(u8),
    /// The bridge's engine reports an error without a completion.
    #[error("error in the bridge")]
    Failed,
    /// No completion arrived before the bridge's timeout.
    #[error("no completion in time")]
    TimedOut,
}

crate::coded!(CompletionStatus {
    Success => Device "asm2464::pcie::completion",
    UnsupportedRequest => Device "asm2464::pcie::unsupported",
    ConfigRetry => Device "asm2464::pcie::retry",
    CompleterAbort => Device "asm2464::pcie::abort",
    Reserved => Device "asm2464::pcie::completion",
    Failed => Device "asm2464::pcie::no_completion",
    TimedOut => Device "asm2464::pcie::no_completion",
});

/// Completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The result.
    pub status: CompletionStatus,
    /// The dword that was read. Only valid if the status is [`CompletionStatus::Success`].
    pub data: u32,
}

impl Completion {
    /// Decodes F0's answer; `None` if its last byte is none of 0, 1 and FF.
    pub const fn parse(answer: &[u8; COMPLETION_LEN]) -> Option<Self> {
        let status = match (answer[7], answer[4] >> 5) {
            (0, 0) => CompletionStatus::Success,
            (0 | 1, 1) => CompletionStatus::UnsupportedRequest,
            (0 | 1, 2) => CompletionStatus::ConfigRetry,
            (0 | 1, 4) => CompletionStatus::CompleterAbort,
            (0 | 1, status @ 1..) => CompletionStatus::Reserved(status),
            (1, 0) => CompletionStatus::Failed,
            (0xFF, _) => CompletionStatus::TimedOut,
            _ => return None,
        };
        Some(Self { status, data: u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]) })
    }

    /// Returns the dword that was read, if the request succeeded.
    pub const fn value(self) -> Option<u32> {
        match self.status {
            CompletionStatus::Success => Some(self.data),
            _ => None,
        }
    }
}

pub mod engine {
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
}
