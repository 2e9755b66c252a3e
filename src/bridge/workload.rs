//! Commands with their data, how they end, and a stream of them.

use std::time::Duration;

use super::pipes::Endpoint;
use crate::scsi::{Cdb, ScsiStatus, Sense};

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
    /// The same data, lent for a shorter time: what sends a command twice.
    pub fn reborrow(&mut self) -> DataPhase<'_> {
        match self {
            Self::None => DataPhase::None,
            Self::In(buffer) => DataPhase::In(buffer),
            Self::Out(data) => DataPhase::Out(data),
        }
    }

    /// Bytes that the host expects to move.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(buffer) => buffer.len(),
            Self::Out(data) => data.len(),
        }
    }

    /// Whether there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Bytes of data that were really moved.
    pub transferred: usize,
    /// The SCSI status. Under Bulk-Only a failed CSW is [`ScsiStatus::CheckCondition`].
    pub status: ScsiStatus,
    /// The sense data; Bulk-Only fetches it with REQUEST SENSE.
    pub sense: Option<Sense>,
}

/// Which way a job's data goes, and how much of the slot's buffer it uses.
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
    /// The endpoint that the data moves on, and how much; `None` where nothing moves.
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
    /// The workload's own number for it.
    pub id: u64,
}

impl Job {
    /// The same command, moving no more than a slot's buffer holds.
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
/// Buffers belong to the transport and are reused: nothing is allocated or copied per command.
pub trait Workload {
    /// The most bytes that any job moves: the length of every slot's buffer.
    fn buffer_len(&self) -> usize;

    /// Whether [`Workload::complete`] is to be told how long each command took. Reading the clock costs little, but in a
    /// virtual machine without a stable TSC as much as a transfer.
    fn is_timed(&self) -> bool {
        false
    }

    /// The next command, or `None` when there are no more. Data out goes into `buffer`.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Job>;

    /// A command has ended. `data` is what it brought in, empty for data out. `elapsed` is from submission to status; 0
    /// where nobody wants to know. Returning `false` stops the stream: commands in flight are still completed.
    fn complete(&mut self, job: &Job, completion: &Completion, data: &[u8], elapsed: Duration) -> bool;
}
