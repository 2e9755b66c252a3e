//! The address of a function: bus, device and function number.

use derive_more::Display;

/// Bus, device and function number, written as in `lspci`: `04:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
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

impl serde::Serialize for Bdf {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
