//! One command in progress: its data, as far as it has moved, and how it will end.

use std::time::Instant;

use asm2464::scsi::bot::Direction;
use asm2464::scsi::{ResetMode, Sense};

/// How a command ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandEnding {
    /// Known only when all of the host's data has arrived.
    AfterData,
    #[default]
    Good,
    Check(Sense),
    Reset(ResetMode),
}

/// A command in progress.
#[derive(Debug, Default)]
pub(super) struct CommandExchange {
    pub(super) cdb: [u8; 16],
    /// The data's direction; `None` without data.
    pub(super) direction: Option<Direction>,
    pub(super) ending: CommandEnding,
    /// Number of bytes that will move; fewer than the command has if the host expects fewer.
    pub(super) limit: usize,
    pub(super) moved: usize,
    pub(super) data: Vec<u8>,
    /// Time at which the status is due; `None` for at once.
    pub(super) ready_at: Option<Instant>,
}

impl CommandExchange {
    /// A command without data.
    pub(super) fn ending(ending: CommandEnding) -> Self {
        Self { ending, ..Self::default() }
    }

    /// A command with data for the host.
    pub(super) fn to_host(data: Vec<u8>) -> Self {
        let direction = (!data.is_empty()).then_some(Direction::In);
        Self { direction, limit: data.len(), data, ..Self::default() }
    }

    /// A command that takes `len` bytes from the host.
    pub(super) fn from_host(len: usize) -> Self {
        let direction = (len > 0).then_some(Direction::Out);
        Self { direction, limit: len, ending: CommandEnding::AfterData, ..Self::default() }
    }

    /// Whether all data that will move has moved.
    pub(super) const fn data_is_done(&self) -> bool {
        self.moved >= self.limit
    }

    /// Takes the next packet for the host, of at most `most` bytes.
    pub(super) fn give(&mut self, most: usize) -> Vec<u8> {
        let packet = self.data[self.moved..self.limit.min(self.moved + most)].to_vec();
        self.moved += packet.len();
        packet
    }

    /// Whether the status is due.
    pub(super) fn is_ready(&self) -> bool {
        self.ending != CommandEnding::AfterData
            && self.data_is_done()
            && self.ready_at.is_none_or(|at| at <= Instant::now())
    }
}
