//! Capabilities: the two lists in configuration space, walked with a bound, and the contents of the common ones.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::engine::PcieError;

const FIRST: u16 = 0x40;
const EXTENDED: u16 = 0x100;
const END: u16 = 0x1000;

/// A link's speed and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LinkRate {
    /// The generation: 1 is 2.5 GT/s.
    pub generation: u8,
    /// Number of lanes.
    pub lanes: u8,
}

impl LinkRate {
    const fn of(register: u32) -> Self {
        Self { generation: register as u8 & 0x0F, lanes: (register >> 4) as u8 & 0x3F }
    }

    /// The lower of both speeds and the lower number of lanes.
    pub fn least(self, other: Self) -> Self {
        Self { generation: self.generation.min(other.generation), lanes: self.lanes.min(other.lanes) }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transfers = match self.generation {
            1 => "2.5",
            2 => "5",
            3 => "8",
            4 => "16",
            5 => "32",
            6 => "64",
            unknown => return write!(f, "speed {unknown} x{}", self.lanes),
        };
        write!(f, "{transfers} GT/s x{}", self.lanes)
    }
}

/// The PCI Express capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ExpressCapability {
    /// Device/port type: 0 endpoint, 4 root port, 5 and 6 a switch's upstream and downstream port.
    pub port_type: u8,
    /// The largest payload that the device supports, and the configured one, in bytes.
    pub payload: (u16, u16),
    /// Rate that the link trained to.
    pub link: LinkRate,
    /// Highest rate that the link supports.
    pub link_max: LinkRate,
}

impl ExpressCapability {
    /// Whether there is exactly one link below the function. Its bus then has only device 0.
    pub const fn has_link_below(self) -> bool {
        matches!(self.port_type, 4 | 6)
    }

    /// The type in words.
    pub const fn type_name(self) -> &'static str {
        match self.port_type {
            0 => "endpoint",
            1 => "legacy endpoint",
            4 => "root port",
            5 => "upstream port",
            6 => "downstream port",
            7 => "bridge to PCI",
            8 => "bridge from PCI",
            9 => "root complex endpoint",
            10 => "root complex event collector",
            _ => "unknown type",
        }
    }
}

/// Contents of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum CapabilityKind {
    /// Power management: the state D0 to D3.
    PowerManagement {
        /// State Dn.
        state: u8,
    },
    /// MSI.
    Msi {
        /// Whether MSI is enabled.
        enabled: bool,
        /// Number of vectors that the function can send.
        vectors: u8,
    },
    /// MSI-X.
    MsiX {
        /// Whether MSI-X is enabled.
        enabled: bool,
        /// Number of entries in the table.
        entries: u16,
    },
    /// PCI Express.
    Express(ExpressCapability),
    /// Any other.
    Other,
}

/// A capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Capability {
    /// Offset in configuration space.
    pub offset: u16,
    /// The capability's ID. IDs in the extended space, from 0x100 on, have their own numbering.
    pub id: u16,
    /// Name of the capability.
    pub name: Cow<'static, str>,
    /// Contents of the capability.
    #[serde(flatten)]
    pub kind: CapabilityKind,
}

/// Reasons a list is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CapabilityFault {
    /// The list returns to an earlier offset.
    #[error("the list of capabilities comes back to {0:#05x}")]
    Loop(u16),
    /// The list leaves its space.
    #[error("the list of capabilities points to {0:#05x}")]
    Outside(u16),
}

/// Reads configuration space: from an offset, a number of dwords.
type ReadDwords<'a> = dyn FnMut(u16, u16) -> Result<Vec<u32>, PcieError> + 'a;

/// Both lists of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Capabilities {
    /// The capabilities, in the order of the lists.
    pub list: Vec<Capability>,
    /// Faults of the lists.
    pub faults: Vec<CapabilityFault>,
}

impl Capabilities {
    /// Walks the list that begins at `first` and, with `extended`, the second list from 0x100 on. `read` reads the
    /// given number of dwords of configuration space. Each offset is visited once, so the walk ends.
    ///
    /// # Errors
    /// Any error of `read`.
    pub fn walk(first: u8, extended: bool, read: &mut ReadDwords<'_>) -> Result<Self, PcieError> {
        let mut found = Self::default();
        let mut at = u16::from(first & 0xFC);
        while at != 0 && found.takes(at, FIRST) {
            // Most capabilities need the second dword, and reading it with the first is cheaper than alone.
            let dwords = read(at, if fits(at, 8) { 2 } else { 1 })?;
            let head = first_of(&dwords);
            if head == u32::MAX {
                break;
            }
            let (id, next) = (head as u16 & 0xFF, (head >> 8) as u16 & 0xFC);
            let kind = kind(id, at, &dwords, read)?;
            found.list.push(Capability { offset: at, id, name: name(id).into(), kind });
            at = next;
        }
        let has_extended = extended && found.express().is_some();
        let mut at = if has_extended { EXTENDED } else { 0 };
        while at != 0 && found.takes(at, EXTENDED) {
            let head = first_of(&read(at, 1)?);
            let id = head as u16;
            if head == 0 || head == u32::MAX {
                break;
            }
            if id != 0 {
                found.list.push(Capability {
                    offset: at,
                    id,
                    name: extended_name(id).into(),
                    kind: CapabilityKind::Other,
                });
            }
            at = (head >> 20) as u16 & 0xFFC;
        }
        Ok(found)
    }

    /// Whether an offset in a list can be visited. If not, records the fault.
    fn takes(&mut self, at: u16, first: u16) -> bool {
        if at < first || at >= END {
            self.faults.push(CapabilityFault::Outside(at));
        } else if self.list.iter().any(|capability| capability.offset == at) {
            self.faults.push(CapabilityFault::Loop(at));
        } else {
            return true;
        }
        false
    }

    /// The PCI Express capability.
    pub fn express(&self) -> Option<ExpressCapability> {
        self.list.iter().find_map(|capability| match capability.kind {
            CapabilityKind::Express(express) => Some(express),
            _ => None,
        })
    }
}

fn first_of(dwords: &[u32]) -> u32 {
    dwords.first().copied().unwrap_or(u32::MAX)
}

/// Whether a capability of the first list can have this length: its registers end within the first 256 bytes.
const fn fits(at: u16, len: u16) -> bool {
    at + len <= EXTENDED
}

/// Decodes a capability of the first list from its first dwords.
fn kind(id: u16, at: u16, dwords: &[u32], read: &mut ReadDwords<'_>) -> Result<CapabilityKind, PcieError> {
    let control = first_of(dwords) >> 16;
    Ok(match (id, dwords.get(1)) {
        (0x01, Some(status)) => CapabilityKind::PowerManagement { state: *status as u8 & 0x03 },
        (0x05, _) => CapabilityKind::Msi { enabled: control & 1 != 0, vectors: 1 << (control >> 1 & 0x07) },
        (0x11, _) => CapabilityKind::MsiX { enabled: control & 0x8000 != 0, entries: (control & 0x7FF) as u16 + 1 },
        (0x10, Some(device)) if fits(at, 0x14) => {
            let payload = |code: u32| 128 << (code & 0x07);
            let rest = read(at + 8, 3)?;
            let rest = |index: usize| rest.get(index).copied().unwrap_or(0);
            CapabilityKind::Express(ExpressCapability {
                port_type: (control >> 4) as u8 & 0x0F,
                payload: (payload(*device), payload(rest(0) >> 5)),
                link: LinkRate::of(rest(2) >> 16),
                link_max: LinkRate::of(rest(1)),
            })
        }
        _ => CapabilityKind::Other,
    })
}

const fn name(id: u16) -> &'static str {
    match id {
        0x01 => "Power Management",
        0x03 => "Vital Product Data",
        0x04 => "Slot ID",
        0x05 => "MSI",
        0x09 => "Vendor Specific",
        0x0A => "Debug port",
        0x0D => "Subsystem",
        0x10 => "Express",
        0x11 => "MSI-X",
        0x12 => "SATA",
        0x13 => "Advanced Features",
        0x14 => "Enhanced Allocation",
        _ => "Unknown",
    }
}

const fn extended_name(id: u16) -> &'static str {
    match id {
        0x01 => "Advanced Error Reporting",
        0x02 | 0x09 => "Virtual Channel",
        0x03 => "Device Serial Number",
        0x04 => "Power Budgeting",
        0x0B => "Vendor Specific Information",
        0x0D => "Access Control Services",
        0x0E => "Alternative Routing-ID Interpretation",
        0x0F => "Address Translation Service",
        0x10 => "Single Root I/O Virtualization",
        0x12 => "Multicast",
        0x13 => "Page Request Interface",
        0x15 => "Physical Resizable BAR",
        0x16 => "Dynamic Power Allocation",
        0x17 => "Transaction Processing Hints",
        0x18 => "Latency Tolerance Reporting",
        0x19 => "Secondary PCI Express",
        0x1B => "Process Address Space ID",
        0x1D => "Downstream Port Containment",
        0x1E => "L1 PM Substates",
        0x1F => "Precision Time Measurement",
        0x23 => "Designated Vendor-Specific",
        0x25 => "Data Link Feature",
        0x26 => "Physical Layer 16.0 GT/s",
        0x27 => "Lane Margining at the Receiver",
        0x2A => "Physical Layer 32.0 GT/s",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn walk(space: &[u32; 1024]) -> (Capabilities, usize) {
        let mut reads = 0;
        let mut read = |at: u16, count: u16| {
            reads += 1;
            let at = usize::from(at) / 4;
            Ok(space[at..at + usize::from(count)].to_vec())
        };
        let found = Capabilities::walk(space[0x34 / 4] as u8, true, &mut read).unwrap();
        (found, reads)
    }

    #[test]
    fn both_lists_are_found_and_the_common_ones_decoded() {
        let mut space = [0; 1024];
        space[0x34 / 4] = 0x50;
        space[0x50 / 4] = 0x0003_6001;
        space[0x54 / 4] = 0x0000_0003;
        space[0x60 / 4] = 0x0085_8005;
        space[0x80 / 4] = 0x0002_C010;
        space[0x84 / 4] = 1;
        space[0x88 / 4] = 1 << 5;
        space[0x8C / 4] = 0x0100 | 4;
        space[0x90 / 4] = 0x0043 << 16;
        space[0xC0 / 4] = 0x8003_0011;
        space[0x100 / 4] = 0x1500_0000 | 0x0002_0001;
        space[0x150 / 4] = 0x0001_0003;
        let (found, _) = walk(&space);
        let listed: Vec<_> = found.list.iter().map(|capability| (capability.offset, &*capability.name)).collect();
        assert_eq!(
            listed,
            [
                (0x50, "Power Management"),
                (0x60, "MSI"),
                (0x80, "Express"),
                (0xC0, "MSI-X"),
                (0x100, "Advanced Error Reporting"),
                (0x150, "Device Serial Number"),
            ]
        );
        assert_eq!(found.list[0].kind, CapabilityKind::PowerManagement { state: 3 });
        assert_eq!(found.list[1].kind, CapabilityKind::Msi { enabled: true, vectors: 4 });
        assert_eq!(found.list[3].kind, CapabilityKind::MsiX { enabled: true, entries: 4 });
        let express = found.express().unwrap();
        assert_eq!(
            (express.link.to_string(), express.link_max.to_string()),
            ("8 GT/s x4".into(), "16 GT/s x16".into())
        );
        assert_eq!((express.payload, express.type_name()), ((256, 256), "endpoint"));
        assert_eq!(found.faults, []);
    }

    #[test]
    fn a_list_that_loops_or_leaves_its_space_ends_with_a_fault() {
        let mut space = [0; 1024];
        space[0x34 / 4] = 0x50;
        space[0x50 / 4] = 0x0000_6009;
        space[0x60 / 4] = 0x0000_5009;
        let (found, reads) = walk(&space);
        assert_eq!((found.list.len(), found.faults, reads), (2, vec![CapabilityFault::Loop(0x50)], 2));
        space[0x60 / 4] = 0x0000_1009;
        assert_eq!(walk(&space).0.faults, [CapabilityFault::Outside(0x10)]);
    }

    proptest! {
        #[test]
        fn a_walk_over_anything_ends(seed: u32, pointer: u8) {
            let mut space = [0_u32; 1024];
            let mut state = seed | 1;
            for cell in &mut space {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                *cell = state;
            }
            space[0x34 / 4] = u32::from(pointer);
            let (_, reads) = walk(&space);
            prop_assert!(reads <= 64 * 2 + 1024);
        }
    }
}
