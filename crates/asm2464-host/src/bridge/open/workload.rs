//! Streams of transfers: what the queue pulls, and the streams behind the methods of
//! [`OpenBridge`](super::OpenBridge).

use std::slice;
use std::time::Duration;

use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_SLOT_LEN;
use asm2464::tlp::{COMPLETION_LEN, Completion, Tlp};

use super::command::{OpenCommand, OpenJob, OpenRequest};
use super::error::ControlError;
use crate::bridge::pipes::Endpoint;
use crate::bridge::transport::DataPhase;

/// A stream of transfers. The queue pulls the next one whenever another may be in flight.
pub trait OpenWorkload {
    /// Maximum number of bytes in a bulk transfer.
    fn bulk_len(&self) -> usize {
        0
    }

    /// Whether [`OpenWorkload::complete`] needs the time that each transfer took. Reading the clock is usually cheap,
    /// but in a virtual machine without a stable TSC it costs as much as a transfer.
    fn is_timed(&self) -> bool {
        false
    }

    /// The next transfer, or `None` when there are no more.
    fn next(&mut self) -> Option<OpenJob>;

    /// Fills the buffer with the data of an [`OpenJob::Bulk`] to the unit. The buffer may still hold an earlier
    /// transfer's data.
    fn fill(&mut self, _buffer: &mut [u8]) {}

    /// Reports the end of a transfer, in the order of submission. `data` is the received data, empty for data to the
    /// unit, and shorter than requested where a build gives less (E4, C0). `elapsed` is the time from submission to end,
    /// or 0 if the workload is not timed.
    ///
    /// # Errors
    /// Any error ends the stream and cancels the transfers in flight.
    fn complete(&mut self, job: OpenJob, data: &[u8], elapsed: Duration) -> Result<(), ControlError>;
}

/// Bytes of a bulk transfer: whole packets at every speed, and four slots of the SRAM. Transfers of one slot moved a
/// third less data a second with 32 in flight, and half of it with one (docs/lab/performance.md).
const BULK_LEN: usize = 4 * SRAM_SLOT_LEN;

/// One control request, with an answer of any length that builds give.
pub(super) struct OneRequest {
    command: Option<OpenCommand>,
    pub(super) answer: Vec<u8>,
}

impl OneRequest {
    pub(super) const fn of(command: OpenCommand) -> Self {
        Self { command: Some(command), answer: Vec::new() }
    }
}

impl OpenWorkload for OneRequest {
    fn next(&mut self) -> Option<OpenJob> {
        self.command.take().map(OpenJob::Control)
    }

    fn complete(&mut self, _: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        self.answer.extend_from_slice(data);
        Ok(())
    }
}

/// E5s, then E4s of one range with up to `most` bytes each. What a build leaves out of an answer stays `missing`.
pub(super) struct XdataExchange<'a, W> {
    writes: W,
    from: XdataAddress,
    buffer: &'a mut [u8],
    /// Parts of the range that no request asks for yet: offset and length.
    missing: Vec<(usize, usize)>,
    pub(super) most: usize,
    /// The longest answer so far: an answer that is shorter than this and than its request has lost bytes.
    pub(super) longest: usize,
}

impl<'a, W> XdataExchange<'a, W> {
    pub(super) fn new(writes: W, from: XdataAddress, buffer: &'a mut [u8], most: usize, longest: usize) -> Self {
        let missing = if buffer.is_empty() { Vec::new() } else { vec![(0, buffer.len())] };
        Self { writes, from, buffer, missing, most, longest }
    }

    /// Whether the whole range is read.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl<W: Iterator<Item = OpenCommand>> OpenWorkload for XdataExchange<'_, W> {
    fn next(&mut self) -> Option<OpenJob> {
        if let Some(write) = self.writes.next() {
            return Some(OpenJob::Control(write));
        }
        let (at, left) = self.missing.pop()?;
        let len = left.min(self.most);
        if len < left {
            self.missing.push((at + len, left - len));
        }
        Some(OpenJob::Control(OpenCommand::XdataRead { from: self.from.plus(at as u16), len: len as u16 }))
    }

    fn complete(&mut self, job: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        let OpenJob::Control(OpenCommand::XdataRead { from, len }) = job else { return Ok(()) };
        let (at, len) = (usize::from(from.addr - self.from.addr), usize::from(len));
        put(self.buffer, at, data, job)?;
        if data.len() < len {
            if data.len() < self.longest {
                let request = OpenRequest::of(job, None);
                return Err(ControlError::Short { request, expected: len, found: data.len() });
            }
            self.most = self.most.min(data.len());
            self.missing.push((at + data.len(), len - data.len()));
        }
        self.longest = self.longest.max(data.len());
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

/// Stores received data at its place. The queue rejects data of a length that no build gives.
fn put(buffer: &mut [u8], at: usize, data: &[u8], job: OpenJob) -> Result<(), ControlError> {
    let expected = buffer.len().saturating_sub(at);
    let Some(place) = buffer.get_mut(at..at + data.len()) else {
        return Err(ControlError::Short { request: OpenRequest::of(job, None), expected, found: data.len() });
    };
    place.copy_from_slice(data);
    Ok(())
}
