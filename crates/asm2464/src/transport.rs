//! What carries commands to the bridge.

use derive_more::Display;
use serde::Serialize;

/// What carries commands to the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransportKind {
    /// Control requests, which open firmware takes in place of SCSI commands.
    #[display("control")]
    Control,
    /// Bulk-Only: one command at a time.
    #[display("Bulk-Only")]
    BulkOnly,
    /// UAS, with bulk streams or without.
    #[display("UAS")]
    Uas,
    /// UAS with bulk streams: many tags in flight.
    #[display("UAS with streams")]
    UasStreams,
}

impl TransportKind {
    /// Whether it is UAS, with streams or without.
    pub const fn is_uas(self) -> bool {
        matches!(self, Self::Uas | Self::UasStreams)
    }

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::BulkOnly => "bulk-only",
            Self::Uas => "uas",
            Self::UasStreams => "uas-streams",
        }
    }
}
