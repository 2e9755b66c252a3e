//! Workloads behind the methods of [`OpenBridge`](super::OpenBridge).

use std::slice;
use std::time::Duration;

use super::BULK_LEN;
use super::command::{COMPLETION_LEN, OpenCommand};
use super::error::ControlError;
use super::queue::{OpenJob, OpenRequest, OpenWorkload};
use super::tlp::{Completion, Tlp};
use crate::scsi::XdataAddress;

/// One control request.
pub(super) struct One<'a> {
    pub(super) command: Option<OpenCommand>,
    pub(super) answer: &'a mut [u8],
}

impl OpenWorkload for One<'_> {
    fn next(&mut self) -> Option<OpenJob> {
        self.command.take().map(OpenJob::Control)
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        put(self.answer, 0, data, job)
    }
}

/// E4 over a range of XDATA.
pub(super) struct XdataReads<'a> {
    from: XdataAddress,
    buffer: &'a mut [u8],
    most: usize,
    asked: usize,
    found: usize,
}

impl<'a> XdataReads<'a> {
    pub(super) fn new(from: XdataAddress, buffer: &'a mut [u8], most: usize) -> Self {
        Self { from, buffer, most, asked: 0, found: 0 }
    }
}

impl OpenWorkload for XdataReads<'_> {
    fn next(&mut self) -> Option<OpenJob> {
        let len = (self.buffer.len() - self.asked).min(self.most);
        if len == 0 {
            return None;
        }
        // The caller has checked that the range is within the page.
        let from = XdataAddress { addr: self.from.addr.wrapping_add(self.asked as u16), ..self.from };
        self.asked += len;
        Some(OpenJob::Control(OpenCommand::XdataRead { from, len: len as u16 }))
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        put(self.buffer, self.found, data, job)?;
        self.found += data.len();
        Ok(())
    }
}

/// A sequence of E5.
pub(super) struct Writes<'a>(pub(super) slice::Iter<'a, (XdataAddress, u8)>);

impl OpenWorkload for Writes<'_> {
    fn next(&mut self) -> Option<OpenJob> {
        let &(at, value) = self.0.next()?;
        Some(OpenJob::Control(OpenCommand::XdataWrite { at, value }))
    }

    fn complete(&mut self, _: OpenJob, _: &[u8], _: Duration) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A sequence of E5, then E4 over a range of XDATA.
pub(super) struct WritesThenReads<'a> {
    pub(super) writes: Writes<'a>,
    pub(super) reads: XdataReads<'a>,
}

impl OpenWorkload for WritesThenReads<'_> {
    fn next(&mut self) -> Option<OpenJob> {
        self.writes.next().or_else(|| self.reads.next())
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], elapsed: Duration) -> Result<(), ControlError> {
        match job {
            OpenJob::Control(OpenCommand::XdataRead { .. }) => self.reads.complete(job, data, elapsed),
            _ => Ok(()),
        }
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

/// Source or destination of bulk data.
pub(super) enum BulkBuffer<'a> {
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

/// Bulk data, after the request that arms it if that is not sent yet.
pub(super) struct BulkWork<'a> {
    pub(super) command: Option<OpenCommand>,
    pub(super) buffer: BulkBuffer<'a>,
    pub(super) asked: usize,
    pub(super) moved: usize,
}

impl<'a> BulkWork<'a> {
    pub(super) fn out(command: OpenCommand, data: &'a [u8]) -> Self {
        Self { command: Some(command), buffer: BulkBuffer::Out(data), asked: 0, moved: 0 }
    }

    pub(super) fn input(command: OpenCommand, buffer: &'a mut [u8]) -> Self {
        Self { command: Some(command), buffer: BulkBuffer::In(buffer), asked: 0, moved: 0 }
    }

    fn len(&self) -> usize {
        match &self.buffer {
            BulkBuffer::Out(data) => data.len(),
            BulkBuffer::In(buffer) => buffer.len(),
        }
    }
}

impl OpenWorkload for BulkWork<'_> {
    fn bulk_len(&self) -> usize {
        self.len().min(BULK_LEN)
    }

    fn next(&mut self) -> Option<OpenJob> {
        if let Some(command) = self.command.take() {
            return Some(OpenJob::Control(command));
        }
        let len = (self.len() - self.asked).min(BULK_LEN);
        if len == 0 {
            return None;
        }
        self.asked += len;
        Some(match self.buffer {
            BulkBuffer::Out(_) => OpenJob::BulkOut(len),
            BulkBuffer::In(_) => OpenJob::BulkIn(len),
        })
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        if let BulkBuffer::Out(data) = self.buffer
            && let Some(piece) = data.get(self.moved..self.moved + buffer.len())
        {
            buffer.copy_from_slice(piece);
            self.moved += piece.len();
        }
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        if let (OpenJob::BulkIn(_), BulkBuffer::In(buffer)) = (job, &mut self.buffer) {
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
