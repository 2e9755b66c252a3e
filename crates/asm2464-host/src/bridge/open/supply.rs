//! The state of the board's supply, as C0 tells it.

use super::command::SUPPLY_LEN;

/// What C0 says about the board's supply. Source: open firmware ed4e39b.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Voltage and current; `None` on boards without a sensor, where the firmware answers zeros.
    pub measured: Option<SupplyMeasurement>,
    /// Whether the board's fault line is active: GPIO 1 is low.
    pub has_fault: bool,
}

impl Supply {
    pub(super) const fn parse([v0, v1, i0, i1, fault]: [u8; SUPPLY_LEN]) -> Self {
        let measured = match [v0, v1, i0, i1] {
            [0, 0, 0, 0] => None,
            _ => Some(SupplyMeasurement {
                voltage_mv: u16::from_le_bytes([v0, v1]),
                current_ma: i16::from_le_bytes([i0, i1]),
            }),
        };
        Self { measured, has_fault: fault != 0 }
    }
}

/// The board's measurement of its supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "SupplyJson"))]
pub struct SupplyMeasurement {
    /// Millivolts.
    pub voltage_mv: u16,
    /// Milliamperes.
    pub current_ma: i16,
}
