//! How long a virtual unit takes.

use serde::Deserialize;

/// Durations, all zero by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Timing {
    /// Milliseconds for each 4 KiB sector erased.
    pub erase_sector_ms: u64,
    /// Microseconds for each 256-byte page programmed.
    pub program_page_us: u64,
    /// Minimum time from a command to its status, in microseconds.
    pub command_us: u64,
    /// Milliseconds from a CPU reset (E8 with mode 0x50), or from a replug (at least 500), until the unit is back.
    pub reenumerate_ms: u64,
}
