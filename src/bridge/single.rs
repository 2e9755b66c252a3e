//! A stream of one command, to run a single command through an engine's queue.

use std::time::Duration;

use super::workload::{Completion, DataPhase, Job, JobData, Workload};
use crate::scsi::Cdb;

/// One command as a workload: the only copy is between the caller's data and the transfer's buffer.
pub(super) struct Single<'a> {
    cdb: Cdb,
    data: DataPhase<'a>,
    was_sent: bool,
    completion: Option<Completion>,
}

impl<'a> Single<'a> {
    pub const fn new(cdb: Cdb, data: DataPhase<'a>) -> Self {
        Self { cdb, data, was_sent: false, completion: None }
    }

    /// The command's result; `None` if it never ended.
    pub const fn completion(&self) -> Option<Completion> {
        self.completion
    }
}

impl Workload for Single<'_> {
    fn buffer_len(&self) -> usize {
        self.data.len()
    }

    fn next(&mut self, buffer: &mut [u8]) -> Option<Job> {
        if std::mem::replace(&mut self.was_sent, true) {
            return None;
        }
        let data = match &self.data {
            DataPhase::None => JobData::None,
            DataPhase::In(wanted) => JobData::In(wanted.len()),
            DataPhase::Out(data) => {
                buffer[..data.len()].copy_from_slice(data);
                JobData::Out(data.len())
            }
        };
        Some(Job { cdb: self.cdb, data, id: 0 })
    }

    fn complete(&mut self, _job: &Job, completion: &Completion, data: &[u8], _elapsed: Duration) -> bool {
        if let DataPhase::In(wanted) = &mut self.data {
            wanted[..data.len()].copy_from_slice(data);
        }
        self.completion = Some(*completion);
        true
    }
}
