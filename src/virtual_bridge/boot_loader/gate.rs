//! The requests that open the boot loader's bulk pipes.
//!
//! Before bulk transfers work, the boot loader needs a port reset, SET_CONFIGURATION 1, and CLEAR_FEATURE(HALT) on both
//! pipes. Source: openpilot's flasher, in use on devices.

use crate::bridge::Endpoint;

/// How far a host has opened the bulk pipes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Silent until the port is reset, as after power-on.
    #[default]
    Shut,
    /// The port was reset; still silent until SET_CONFIGURATION 1.
    Reset,
    /// Configured: each pipe is halted until its halt is cleared.
    Halted { data_in: bool, data_out: bool },
    /// The pipes move data.
    Open,
}

impl Gate {
    /// Handles SET_CONFIGURATION 1.
    pub(super) fn configured(&mut self) {
        if *self == Self::Reset {
            *self = Self::Halted { data_in: true, data_out: true };
        }
    }

    /// Handles CLEAR_FEATURE(HALT). Returns `true` if it opened the gate.
    pub(super) fn clear_halt(&mut self, endpoint: Endpoint) -> bool {
        let Self::Halted { data_in, data_out } = self else { return false };
        match endpoint {
            Endpoint::DataIn => *data_in = false,
            Endpoint::DataOut => *data_out = false,
            Endpoint::Status | Endpoint::Command => {}
        }
        let opened = *self == Self::Halted { data_in: false, data_out: false };
        if opened {
            *self = Self::Open;
        }
        opened
    }

    /// Whether the endpoint is halted.
    pub(super) fn halts(self, endpoint: Endpoint) -> bool {
        match self {
            Self::Halted { data_in, .. } if endpoint == Endpoint::DataIn => data_in,
            Self::Halted { data_out, .. } if endpoint == Endpoint::DataOut => data_out,
            _ => false,
        }
    }

    /// Whether both pipes are silent.
    pub(super) fn is_silent(self) -> bool {
        matches!(self, Self::Shut | Self::Reset)
    }
}
