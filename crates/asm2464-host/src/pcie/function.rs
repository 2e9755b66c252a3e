//! The header of a function: its identity and, for a bridge, its bus numbers and windows.

use serde::{Deserialize, Serialize};

use super::bar::Bar;
use super::capability::Capabilities;
use super::names::class_name;
use asm2464::Bdf;

/// COMMAND: the function answers or forwards I/O requests.
pub(super) const COMMAND_IO: u16 = 0x01;
/// COMMAND: the function answers or forwards memory requests.
pub const COMMAND_MEMORY: u16 = 0x02;
/// COMMAND: the function may send requests itself.
pub const COMMAND_MASTER: u16 = 0x04;
/// Offset of the COMMAND register in configuration space.
pub const COMMAND: u16 = 0x04;
pub(super) const BUS_NUMBERS: u16 = 0x18;
pub(super) const MEMORY_WINDOW: u16 = 0x20;
pub(super) const PREFETCHABLE_WINDOW: u16 = 0x24;
/// STATUS: the function has a list of capabilities.
pub(super) const STATUS_CAPABILITIES: u16 = 0x10;
/// Offsets of the header dwords that [`Function::parse`] needs, besides the IDs. The last has bits that are always 0.
pub(super) const HEADER_OFFSETS: [u16; 12] =
    [0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x2C, CAPABILITIES as u16];
/// Offset of the pointer to the list of capabilities: a byte.
pub(super) const CAPABILITIES: usize = 0x34;

/// A bridge's bus numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Buses {
    /// The bus above it.
    pub primary: u8,
    /// The bus below it; 0 if none is assigned.
    pub secondary: u8,
    /// The highest bus below it.
    pub subordinate: u8,
}

/// A bridge's window: the addresses that it forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Last address.
    pub limit: u64,
}

/// Contents of a header that depend on its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Header {
    /// Type 0.
    Endpoint {
        /// Vendor and device ID of the card.
        subsystem: (u16, u16),
    },
    /// Type 1.
    Bridge {
        /// Its bus numbers.
        buses: Buses,
        /// Its window below 4 GiB; `None` if it is closed.
        memory: Option<Window>,
        /// Its window for prefetchable memory; `None` if it is closed.
        prefetchable: Option<Window>,
        /// Whether the prefetchable window takes 64-bit addresses.
        prefetchable_is_64: bool,
    },
    /// Any other type.
    Other {
        /// Bits 6:0 of the header type.
        number: u8,
    },
}

/// A function, by its configuration space.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, Serialize, Deserialize)]
#[display("{at} {vendor:04x}:{device:04x} {}", class_name(*class).unwrap_or("device"))]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Function {
    /// Its place.
    pub at: Bdf,
    /// The bridge above it, as an index in the survey; none on bus 0.
    pub parent: Option<usize>,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass and programming interface, 8 bits each.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// The COMMAND register.
    pub command: u16,
    /// The STATUS register.
    pub status: u16,
    /// Contents that depend on the header's type.
    pub header: Header,
    /// Its BARs.
    pub bars: Vec<Bar>,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl Function {
    /// Parses a header of 16 dwords. Missing dwords count as 0. Leaves the capabilities empty.
    pub fn parse(at: Bdf, parent: Option<usize>, header: &[u32]) -> Self {
        let dword = |offset: usize| header.get(offset / 4).copied().unwrap_or(0);
        let halves = |offset: usize| (dword(offset) as u16, (dword(offset) >> 16) as u16);
        let (vendor, device) = halves(0x00);
        let (command, status) = halves(0x04);
        let header = match (dword(0x0C) >> 16) as u8 & 0x7F {
            0 => Header::Endpoint { subsystem: halves(0x2C) },
            1 => {
                let [primary, secondary, subordinate, _] = dword(0x18).to_le_bytes();
                let high = [dword(0x28), dword(0x2C)];
                Header::Bridge {
                    buses: Buses { primary, secondary, subordinate },
                    memory: window(dword(0x20), [0, 0]),
                    prefetchable: window(dword(0x24), high),
                    prefetchable_is_64: dword(0x24) & 0x0F == 0x01,
                }
            }
            number => Header::Other { number },
        };
        let mut function = Self {
            at,
            parent,
            vendor,
            device,
            class: dword(0x08) >> 8,
            revision: dword(0x08) as u8,
            command,
            status,
            header,
            bars: Vec::new(),
            capabilities: Capabilities::default(),
        };
        let registers: Vec<u32> = (0..function.bar_registers()).map(|index| dword(0x10 + 4 * index)).collect();
        function.bars = Bar::decode(&registers, None);
        function
    }

    /// Number of BAR registers in the header.
    pub const fn bar_registers(&self) -> usize {
        match self.header {
            Header::Endpoint { .. } => 6,
            Header::Bridge { .. } => 2,
            Header::Other { .. } => 0,
        }
    }

    /// The function's bus numbers, if it is a bridge.
    pub const fn buses(&self) -> Option<Buses> {
        match self.header {
            Header::Bridge { buses, .. } => Some(buses),
            _ => None,
        }
    }

    /// Whether the function answers or forwards memory requests.
    pub const fn decodes_memory(&self) -> bool {
        self.command & COMMAND_MEMORY != 0
    }
}

/// Decodes a window's registers; `None` if it is closed, or unset since power-on.
fn window(register: u32, high: [u32; 2]) -> Option<Window> {
    let base = u64::from(high[0]) << 32 | u64::from(register & 0xFFF0) << 16;
    let limit = u64::from(high[1]) << 32 | u64::from(register & 0xFFF0_0000) | 0xF_FFFF;
    (base <= limit && limit > 0xF_FFFF).then_some(Window { base, limit })
}
