//! Commands with their data, their results, and streams of them.

use std::time::Duration;

use asm2464::scsi::{Cdb, ScsiStatus, Sense};

use super::pipes::Endpoint;

/// The data of one command.
#[derive(Debug)]
pub enum DataPhase<'a> {
    /// No data.
    None,
    /// Device to host, at most the buffer's length.
    In(&'a mut [u8]),
    /// Host to device, the whole slice.
    Out(&'a [u8]),
}

impl DataPhase<'_> {
    /// Borrows the same data for a shorter time, to send a command twice.
    pub fn reborrow(&mut self) -> DataPhase<'_> {
        match self {
            Self::None => DataPhase::None,
            Self::In(buffer) => DataPhase::In(buffer),
            Self::Out(data) => DataPhase::Out(data),
        }
    }

    /// Number of bytes that the host expects to move.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(buffer) => buffer.len(),
            Self::Out(data) => data.len(),
        }
    }

    /// Whether there is no data to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Number of data bytes that were really moved.
    pub transferred: usize,
    /// The SCSI status. Under Bulk-Only a failed CSW is [`ScsiStatus::CheckCondition`].
    pub status: ScsiStatus,
    /// The sense data; Bulk-Only fetches it with REQUEST SENSE.
    pub sense: Option<Sense>,
}

/// Direction of a job's data, and the number of bytes that it uses of the slot's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobData {
    /// No data.
    None,
    /// Device to host, this many bytes.
    In(usize),
    /// Host to device, this many bytes, which the workload has put in the slot's buffer.
    Out(usize),
}

impl JobData {
    /// Endpoint and length of the data; `None` if there is none.
    pub(super) const fn transfer(self) -> Option<(Endpoint, usize)> {
        match self {
            Self::None | Self::In(0) | Self::Out(0) => None,
            Self::In(len) => Some((Endpoint::DataIn, len)),
            Self::Out(len) => Some((Endpoint::DataOut, len)),
        }
    }
}

/// One queued command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// The command.
    pub cdb: Cdb,
    /// Its data.
    pub data: JobData,
    /// The workload's own number for the command.
    pub id: u64,
}

impl Job {
    /// Limits the command's data to the length of a slot's buffer.
    pub(super) fn clamped(mut self, buffer_len: usize) -> Self {
        self.data = match self.data {
            JobData::None => JobData::None,
            JobData::In(wanted) => JobData::In(wanted.min(buffer_len)),
            JobData::Out(wanted) => JobData::Out(wanted.min(buffer_len)),
        };
        self
    }
}

/// A stream of commands, pulled by the transport whenever a slot is free.
///
/// Buffers belong to the transport and are reused: no command allocates or copies.
pub trait Workload {
    /// Maximum number of bytes that any job moves: the length of every slot's buffer.
    fn buffer_len(&self) -> usize;

    /// Whether [`Workload::complete`] needs the time that each command took. Reading the clock is usually cheap, but in
    /// a virtual machine without a stable TSC it costs as much as a transfer.
    fn is_timed(&self) -> bool {
        false
    }

    /// Returns the next command, or `None` when there are no more. Writes data out into `buffer`.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Job>;

    /// Reports the end of a command. `data` is the received data, empty for data out. `elapsed` is the time from
    /// submission to status, or 0 if the workload is not timed. Return `false` to stop the stream: commands in flight
    /// still complete.
    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], elapsed: Duration) -> bool;
}
