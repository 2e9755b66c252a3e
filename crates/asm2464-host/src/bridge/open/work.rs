//! Workloads behind the methods of [`OpenBridge`](super::OpenBridge).

use std::slice;
use std::time::Duration;

use asm2464::sram::SLOT_LEN;
use asm2464::tlp::{COMPLETION_LEN, Completion, Tlp};

use super::super::pipes::Endpoint;
use super::super::workload::DataPhase;
use super::command::OpenCommand;
use super::error::ControlError;
use super::job::{OpenJob, OpenRequest};
use super::workload::OpenWorkload;

/// Bytes of a bulk transfer: whole packets at every speed, and four slots of the SRAM. Transfers of one slot moved a
/// third less data a second with 32 in flight, and half of it with one (docs/performance.md).
pub(super) const BULK_LEN: usize = 4 * SLOT_LEN;

/// Control requests. Their answers fill a buffer, one after the other.
pub(super) struct Requests<'a, I> {
    commands: I,
    answer: &'a mut [u8],
    found: usize,
}

impl<'a, I: Iterator<Item = OpenCommand>> Requests<'a, I> {
    pub(super) fn new(commands: impl IntoIterator<IntoIter = I>, answer: &'a mut [u8]) -> Self {
        Self { commands: commands.into_iter(), answer, found: 0 }
    }
}

impl<I: Iterator<Item = OpenCommand>> OpenWorkload for Requests<'_, I> {
    fn next(&mut self) -> Option<OpenJob> {
        self.commands.next().map(OpenJob::Control)
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        put(self.answer, self.found, data, job)?;
        self.found += data.len();
        Ok(())
    }
}

/// TLPs, each followed by the fetch of its completion if it has one.
pub(super) struct Tlps<'a> {
    tlps: slice::Iter<'a, Tlp>,
    owes_completion: bool,
    pub(super) completions: Vec<Option<Completion>>,
}

impl<'a> Tlps<'a> {
    pub(super) fn new(tlps: &'a [Tlp]) -> Self {
        Self { tlps: tlps.iter(), owes_completion: false, completions: Vec::with_capacity(tlps.len()) }
    }
}

impl OpenWorkload for Tlps<'_> {
    fn next(&mut self) -> Option<OpenJob> {
        if std::mem::take(&mut self.owes_completion) {
            return Some(OpenJob::Control(OpenCommand::Completion));
        }
        let tlp = *self.tlps.next()?;
        self.owes_completion = !tlp.kind.is_posted();
        Some(OpenJob::Control(OpenCommand::Tlp(tlp)))
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        match job {
            OpenJob::Control(OpenCommand::Tlp(tlp)) if tlp.kind.is_posted() => self.completions.push(None),
            OpenJob::Control(OpenCommand::Completion) => {
                let mut answer = [0; COMPLETION_LEN];
                put(&mut answer, 0, data, job)?;
                let completion = Completion::parse(&answer).ok_or_else(|| ControlError::Malformed {
                    request: OpenRequest::Command(OpenCommand::Completion),
                    what: format!("{answer:02x?} ends in none of 00, 01 and ff"),
                })?;
                self.completions.push(Some(completion));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bulk data, after the request that arms it if that is not sent yet.
pub(super) struct BulkWork<'a> {
    command: Option<OpenCommand>,
    data: DataPhase<'a>,
    asked: usize,
    moved: usize,
}

impl<'a> BulkWork<'a> {
    pub(super) fn new(command: Option<OpenCommand>, data: DataPhase<'a>) -> Self {
        Self { command, data, asked: 0, moved: 0 }
    }
}

impl OpenWorkload for BulkWork<'_> {
    fn bulk_len(&self) -> usize {
        self.data.len().min(BULK_LEN)
    }

    fn next(&mut self) -> Option<OpenJob> {
        if let Some(command) = self.command.take() {
            return Some(OpenJob::Control(command));
        }
        let len = (self.data.len() - self.asked).min(BULK_LEN);
        if len == 0 {
            return None;
        }
        self.asked += len;
        let is_out = matches!(self.data, DataPhase::Out(_));
        Some(OpenJob::Bulk(if is_out { Endpoint::DataOut } else { Endpoint::DataIn }, len))
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        if let DataPhase::Out(data) = self.data
            && let Some(piece) = data.get(self.moved..self.moved + buffer.len())
        {
            buffer.copy_from_slice(piece);
            self.moved += piece.len();
        }
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        if let (OpenJob::Bulk(..), DataPhase::In(buffer)) = (job, &mut self.data) {
            put(buffer, self.moved, data, job)?;
            self.moved += data.len();
        }
        Ok(())
    }
}

/// Stores received data at its place. The queue rejects data of any other length than requested.
fn put(buffer: &mut [u8], at: usize, data: &[u8], job: OpenJob) -> Result<(), ControlError> {
    let expected = buffer.len().saturating_sub(at);
    let Some(place) = buffer.get_mut(at..at + data.len()) else {
        return Err(ControlError::Short { request: OpenRequest::of(job, None), expected, found: data.len() });
    };
    place.copy_from_slice(data);
    Ok(())
}
