//! What this host's own requests say about the SRAM DMA, so that not each F2 has to ask first.

use asm2464::sram::SECTOR_LEN;

use super::super::pipes::Endpoint;
use super::command::OpenCommand;

/// State of the SRAM DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SramDma {
    /// Another program may have armed it, or a request failed: ask.
    Unknown,
    /// F2 armed it, and this many bytes have not moved yet.
    Armed(Endpoint, usize),
    /// All data of the last F2 has moved. GPU runtimes arm the next one then without asking.
    Idle,
}

impl SramDma {
    /// Notes a control request that is about to be sent.
    pub(super) fn sent(&mut self, command: OpenCommand) {
        *self = match (command, *self) {
            (OpenCommand::ArmSram(transfer), _) => {
                let endpoint = if transfer.to_host { Endpoint::DataIn } else { Endpoint::DataOut };
                Self::Armed(endpoint, usize::from(transfer.sectors) * SECTOR_LEN)
            }
            // The bulk data that follows is not F2's.
            (OpenCommand::StreamWrite { .. } | OpenCommand::StreamRead { .. }, Self::Armed(..)) => Self::Unknown,
            // E4, C0 and F0 leave the DMA as it is.
            (
                OpenCommand::XdataRead { .. }
                | OpenCommand::Supply
                | OpenCommand::Tlp(_)
                | OpenCommand::Completion
                | OpenCommand::StreamWrite { .. }
                | OpenCommand::StreamRead { .. },
                state,
            ) => state,
            // E5's register may be one of the DMA's.
            _ => Self::Unknown,
        };
    }

    /// Notes bulk data that has moved.
    pub(super) fn moved(&mut self, by: Endpoint, len: usize) {
        if let Self::Armed(endpoint, left) = *self {
            *self = match left.checked_sub(len) {
                Some(0) if by == endpoint => Self::Idle,
                Some(left) if by == endpoint => Self::Armed(endpoint, left),
                _ => Self::Unknown,
            };
        }
    }
}
