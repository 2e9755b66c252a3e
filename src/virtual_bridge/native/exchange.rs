//! One command under way in the unit: its data, as far as it has moved, and how it will end.

use std::time::Instant;

use super::target::Target;
use crate::scsi::bot::Direction;
use crate::scsi::{ResetMode, Sense};
use crate::virtual_bridge::reply::InReply;

/// No command that writes the flash carries more; what a host sends beyond it is lost, as in a buffer that is full.
const MAX_HELD: usize = 2 * crate::firmware::MAX_FILE_LEN;

/// Where a command's data is, or goes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataPlan {
    /// No data.
    #[default]
    None,
    /// The exchange's buffer, to the host.
    In,
    /// So many zeros, to the host.
    InZeros { len: u64 },
    /// So many bytes, which never come.
    InNever { len: u64 },
    /// From the host into the exchange's buffer.
    Out { len: u64 },
    /// So many bytes from the host, which nobody keeps.
    OutDropped { len: u64 },
}

/// How a command ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandEnding {
    /// Known only when the host's data is there.
    AfterData,
    #[default]
    Good,
    Check(Sense),
    Silent,
    Reset(ResetMode),
}

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct CommandExchange {
    pub(super) cdb: [u8; 16],
    pub(super) plan: DataPlan,
    pub(super) ending: CommandEnding,
    /// Bytes that this exchange will move; less than the plan's where the host or a fault cuts it short.
    pub(super) limit: u64,
    pub(super) moved: u64,
    pub(super) data: Vec<u8>,
    /// When its status can be fetched; `None` is at once.
    pub(super) ready_at: Option<Instant>,
}

impl CommandExchange {
    /// An exchange that waits for a command, with `data` as its buffer.
    pub(super) fn idle(mut data: Vec<u8>) -> Self {
        data.clear();
        Self { data, ..Self::default() }
    }

    /// Which way the data goes, and how much of it the device means to move.
    pub(super) fn intent(&self) -> Option<(Direction, u64)> {
        let (direction, len) = match self.plan {
            DataPlan::None => return None,
            DataPlan::In => (Direction::In, self.data.len() as u64),
            DataPlan::InZeros { len } | DataPlan::InNever { len } => (Direction::In, len),
            DataPlan::Out { len } | DataPlan::OutDropped { len } => (Direction::Out, len),
        };
        (len > 0).then_some((direction, len))
    }

    /// Whether all data that will move has moved.
    pub(super) const fn data_is_done(&self) -> bool {
        self.moved >= self.limit
    }

    /// Moves data to the host, in packets of `max_packet` bytes. [`InReply::Silent`] while there is none to move.
    ///
    /// A host whose buffer ends inside a packet gets more than it asked for: xHCI's babble.
    pub(super) fn fill(&mut self, buffer: &mut [u8], max_packet: u16) -> InReply {
        let left = self.limit - self.moved;
        let count = buffer.len().min(left.try_into().unwrap_or(usize::MAX));
        let part = &mut buffer[..count];
        match self.plan {
            DataPlan::In => {
                let start = self.moved as usize;
                part.copy_from_slice(&self.data[start..start + count]);
            }
            DataPlan::InZeros { .. } => part.fill(0),
            _ => return InReply::Silent,
        }
        let packets = count.next_multiple_of(max_packet.into()).max(max_packet.into()) as u64;
        if left > count as u64 && packets != count as u64 {
            self.moved += left.min(packets);
            return InReply::Babble(count);
        }
        self.moved += count as u64;
        InReply::Data(count)
    }

    /// Takes data from the host, and ends the command when it is all there. Returns the bytes taken.
    pub(super) fn take(&mut self, target: &mut Target, data: &[u8]) -> usize {
        let count = data.len().min((self.limit - self.moved).try_into().unwrap_or(usize::MAX));
        if let DataPlan::Out { .. } = self.plan {
            let room = MAX_HELD.saturating_sub(self.data.len());
            self.data.extend_from_slice(&data[..count.min(room)]);
        }
        self.moved += count as u64;
        if self.data_is_done() && self.ending == CommandEnding::AfterData {
            self.ending = target.finish(&self.cdb, &self.data);
            self.ready_at = target.ready_at();
        }
        count
    }

    /// Whether the status can be fetched now.
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self.ending, CommandEnding::Silent | CommandEnding::AfterData)
            && self.data_is_done()
            && self.ready_at.is_none_or(|at| at <= Instant::now())
    }
}
