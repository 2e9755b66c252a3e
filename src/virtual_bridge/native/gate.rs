//! What opens the boot loader's bulk pipes.
//!
//! Before bulk transfers work, the boot loader needs a port reset, SET_CONFIGURATION 1, and CLEAR_FEATURE(HALT) on both
//! pipes. Source: openpilot's flasher, in use on devices.

use crate::bridge::Endpoint;
use crate::firmware::BridgeState;
use crate::virtual_bridge::reply::{InReply, OutReply};

/// How far a host has brought the unit's bulk pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// They move data.
    Open,
    /// The boot loader as it came up: silent until the port is reset.
    Shut,
    /// The port was reset; still silent until SET_CONFIGURATION 1.
    Reset,
    /// Configured: a pipe is halted until its halt is cleared.
    Halted { data_in: bool, data_out: bool },
}

impl Gate {
    /// The gate of a unit that comes up in this state.
    pub(super) fn of(state: BridgeState) -> Self {
        if state == BridgeState::BootLoader { Self::Shut } else { Self::Open }
    }

    /// A reset of the port of a unit that was configured, as against the reset that belongs to the enumeration.
    pub(super) fn port_reset(&mut self, state: BridgeState) {
        if state == BridgeState::BootLoader {
            *self = Self::Reset;
        }
    }

    /// SET_CONFIGURATION 1.
    pub(super) fn configured(&mut self) {
        if *self == Self::Reset {
            *self = Self::Halted { data_in: true, data_out: true };
        }
    }

    /// CLEAR_FEATURE(HALT). `true` where it is what opened the gate.
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

    /// What keeps data from the host out; `None` where nothing does.
    pub(super) fn out(self, endpoint: Endpoint) -> Option<OutReply> {
        match self {
            Self::Shut | Self::Reset => Some(OutReply::Silent),
            _ => self.halts(endpoint).then_some(OutReply::Stall),
        }
    }

    /// The same for data to the host.
    pub(super) fn input(self, endpoint: Endpoint) -> Option<InReply> {
        match self {
            Self::Shut | Self::Reset => Some(InReply::Silent),
            _ => self.halts(endpoint).then_some(InReply::Stall),
        }
    }
}
