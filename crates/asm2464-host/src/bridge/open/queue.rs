//! Control requests and bulk transfers in order, with many in flight, and the workloads behind the methods of
//! [`OpenBridge`](super::OpenBridge).

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{slice, thread};

use asm2464::scsi::XdataAddress;
use asm2464::sram::{DMA_STATE, SRAM_SECTOR_LEN, SRAM_SLOT_LEN};
use asm2464::tlp::{COMPLETION_LEN, Completion, Tlp};
use tracing::debug;

use super::command::{OpenCommand, OpenJob, OpenRequest, TLP_LEN};
use super::error::ControlError;
use crate::bridge::log;
use crate::bridge::pipes::{ControlPipes, Endpoint, PipeError, Reaped, SETUP_LEN, TransferEnd, TransferId};
use crate::bridge::transport::DataPhase;

/// Maximum number of transfers in flight.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of data bytes in a control request.
const CONTROL_DATA_MAX: usize = 512;
/// Time that cancelled transfers may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of the check whether the unit still answers, and pause between its attempts.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const ASK_PAUSE: Duration = Duration::from_millis(50);

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

#[derive(Debug, Clone, Copy)]
struct Flight {
    transfer: TransferId,
    job: OpenJob,
    /// Time of submission, if the workload is timed.
    submitted: Option<Instant>,
}

/// Reasons a stream ended early.
#[derive(Debug, derive_more::From)]
enum RunError {
    /// This transfer failed. Others may be in flight.
    #[from(skip)]
    Transfer(OpenJob, PipeError),
    Other(ControlError),
}

/// The queue of one unit's transfers.
pub(super) struct TransferQueue {
    pub(super) pipes: Box<dyn ControlPipes + Send>,
    /// Transfers that are not in flight.
    control: Vec<TransferId>,
    bulk: Vec<TransferId>,
    /// Transfers in flight, oldest first. All use the same endpoint.
    in_flight: VecDeque<Flight>,
    /// The last control request, which bulk data belongs to.
    armed_by: Option<OpenCommand>,
    pub(super) sram: SramDma,
}

impl TransferQueue {
    pub(super) fn new(pipes: Box<dyn ControlPipes + Send>) -> Self {
        Self {
            pipes,
            control: Vec::new(),
            bulk: Vec::new(),
            in_flight: VecDeque::new(),
            armed_by: None,
            sram: SramDma::Unknown,
        }
    }

    /// Runs a stream with up to `depth` transfers in flight. Each may take up to `timeout`.
    ///
    /// A bulk transfer is submitted only after every earlier control request has been answered, and a control request
    /// only after every earlier bulk transfer has moved. So data is armed before it moves. tinygrad's runtime does the
    /// same.
    ///
    /// # Errors
    /// [`ControlError`]; nothing is in flight then.
    pub(super) fn run(
        &mut self,
        work: &mut dyn OpenWorkload,
        depth: usize,
        timeout: Duration,
    ) -> Result<(), ControlError> {
        let outcome = self.try_run(work, depth.clamp(1, MAX_DEPTH), timeout).map_err(|error| match error {
            RunError::Transfer(job, source) => self.failed(job, source, timeout),
            RunError::Other(error) => error,
        });
        self.take_back();
        if outcome.is_err() {
            self.sram = SramDma::Unknown;
        }
        outcome
    }

    fn try_run(&mut self, work: &mut dyn OpenWorkload, depth: usize, timeout: Duration) -> Result<(), RunError> {
        let mut next = work.next();
        while next.is_some() || !self.in_flight.is_empty() {
            while let Some(job) = next
                && self.in_flight.len() < depth
                && self.in_flight.front().is_none_or(|flight| flight.job.goes_with(job))
            {
                self.submit(job, work).map_err(|error| RunError::Transfer(job, error))?;
                next = work.next();
            }
            self.reap_oldest(work, timeout)?;
        }
        Ok(())
    }

    fn idle(&mut self, job: OpenJob) -> &mut Vec<TransferId> {
        if job.endpoint().is_none() { &mut self.control } else { &mut self.bulk }
    }

    fn submit(&mut self, job: OpenJob, work: &mut dyn OpenWorkload) -> Result<(), PipeError> {
        let capacity = match job {
            OpenJob::Control(_) => SETUP_LEN + CONTROL_DATA_MAX,
            OpenJob::Bulk(_, len) => len.max(work.bulk_len()),
        };
        let transfer = match self.idle(job).pop() {
            Some(transfer) => transfer,
            None => self.pipes.add_transfer(capacity)?,
        };
        let submitted = (work.is_timed() || log::is_on()).then(Instant::now);
        let sent = self.send(transfer, capacity, job, work);
        match sent {
            Ok(()) => self.in_flight.push_back(Flight { transfer, job, submitted }),
            Err(_) => self.idle(job).push(transfer),
        }
        sent
    }

    fn send(
        &mut self,
        transfer: TransferId,
        capacity: usize,
        job: OpenJob,
        work: &mut dyn OpenWorkload,
    ) -> Result<(), PipeError> {
        match job {
            OpenJob::Control(command) => {
                let mut bytes = [0; SETUP_LEN + TLP_LEN];
                bytes[..SETUP_LEN].copy_from_slice(&command.setup());
                bytes[SETUP_LEN..].copy_from_slice(&command.data().unwrap_or_default());
                self.pipes.put(transfer, &bytes)?;
                self.armed_by = Some(command);
                self.sram.sent(command);
                self.pipes.submit_control(transfer)
            }
            OpenJob::Bulk(endpoint, len) => {
                self.pipes.reserve(transfer, capacity)?;
                if endpoint == Endpoint::DataOut
                    && let Some(buffer) = self.pipes.buffer(transfer).get_mut(..len)
                {
                    work.fill(buffer);
                }
                self.pipes.submit(transfer, endpoint, 0, len)
            }
        }
    }

    /// Records that a transfer is back. Its buffer is free again. Returns `false` for one that was given up before.
    fn came_back(&mut self, transfer: TransferId) -> bool {
        let at = self.in_flight.iter().position(|flight| flight.transfer == transfer);
        let Some(Flight { job, .. }) = at.and_then(|at| self.in_flight.remove(at)) else { return false };
        self.idle(job).push(transfer);
        true
    }

    /// Returns the next transfer in flight that is back.
    fn reap(&mut self, timeout: Duration) -> Result<Reaped, PipeError> {
        loop {
            let reaped = match self.pipes.reap_known() {
                None => self.pipes.reap(timeout)?.ok_or(PipeError::Timeout)?,
                Some(known) => known,
            };
            // What an earlier run cancelled and gave up says nothing of this one.
            if self.came_back(reaped.transfer) {
                return Ok(reaped);
            }
        }
    }

    fn reap_oldest(&mut self, work: &mut dyn OpenWorkload, timeout: Duration) -> Result<(), RunError> {
        let Some(&Flight { transfer, job, submitted }) = self.in_flight.front() else { return Ok(()) };
        let outcome = self.reap(timeout).and_then(|reaped| match reaped.end {
            // Failures come in any order: Linux ends an unplugged unit's transfers from the newest on.
            TransferEnd::Failed(error) => Err(error),
            TransferEnd::Cancelled => Err(PipeError::Other("the system cancelled it".to_owned())),
            TransferEnd::Completed if reaped.transfer != transfer => {
                Err(PipeError::Other("transfers completed out of order".to_owned()))
            }
            TransferEnd::Completed => Ok(reaped.moved),
        });
        let moved = outcome.map_err(|error| RunError::Transfer(job, error))?;
        let elapsed = submitted.map_or(Duration::ZERO, |submitted| submitted.elapsed());
        let request = OpenRequest::of(job, self.armed_by);
        if !job.moves().contains(&moved) {
            return Err(ControlError::Short { request, expected: job.len(), found: moved }.into());
        }
        if let OpenJob::Bulk(endpoint, len) = job {
            self.sram.moved(endpoint, len);
        }
        let data = self.pipes.buffer(transfer).get(job.brought(moved)).unwrap_or_default();
        log::moved(&request, job, data, elapsed);
        Ok(work.complete(job, data, elapsed)?)
    }

    /// Builds the error of a failed job. Cancels the transfers in flight first.
    fn failed(&mut self, job: OpenJob, source: PipeError, timeout: Duration) -> ControlError {
        let request = OpenRequest::of(job, self.armed_by);
        debug!("{request}: {source}");
        self.take_back();
        match (source, job) {
            (PipeError::Timeout, OpenJob::Bulk(..)) => match self.ask() {
                Err(PipeError::Disconnected) => ControlError::Disconnected { request },
                answer => ControlError::BulkTimeout { request, deadline: timeout, answers: answer.is_ok() },
            },
            (source @ PipeError::Stall, OpenJob::Bulk(endpoint, _)) => {
                // If the unit is gone or refuses, the next request reports it.
                let _ = self.pipes.clear_halt(endpoint);
                ControlError::Io { request, source }
            }
            (PipeError::Other(_), _) if self.is_gone() => ControlError::Disconnected { request },
            (source, _) => ControlError::of_request(request, source, timeout),
        }
    }

    /// Whether the unit was unplugged. Until the system has noticed, its transfers fail like those of a bad cable.
    fn is_gone(&mut self) -> bool {
        let until = Instant::now() + ASK_TIMEOUT;
        loop {
            match self.ask() {
                Err(PipeError::Disconnected) => return true,
                Err(PipeError::Other(_)) if Instant::now() < until => thread::sleep(ASK_PAUSE),
                _ => return false,
            }
        }
    }

    /// Reads one byte of XDATA, which every unit answers.
    fn ask(&mut self) -> Result<(), PipeError> {
        let armed_by = self.armed_by;
        let ask = OpenCommand::XdataRead { from: DMA_STATE, len: 1 };
        let answer = self.try_run(&mut OneRequest::of(ask), 1, ASK_TIMEOUT);
        self.take_back();
        self.armed_by = armed_by;
        match answer {
            Ok(()) => Ok(()),
            Err(RunError::Transfer(_, error)) => Err(error),
            Err(RunError::Other(error)) => Err(PipeError::Other(error.to_string())),
        }
    }

    /// Cancels all transfers in flight.
    fn take_back(&mut self) {
        // Cancel the newest first, so that no transfer begins while the one before it is cancelled.
        for flight in self.in_flight.iter().rev() {
            self.pipes.cancel(flight.transfer);
        }
        let until = Instant::now() + CANCEL_TIMEOUT;
        while !self.in_flight.is_empty()
            && let Ok(Some(reaped)) = self.pipes.reap(until.saturating_duration_since(Instant::now()))
        {
            self.came_back(reaped.transfer);
        }
        // Transfers that did not return are never used again.
        self.in_flight.clear();
    }
}

/// State of the SRAM DMA, as far as this host's own requests show it. It saves most F2 a read of 0xC450.
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
                Self::Armed(endpoint, usize::from(transfer.sectors) * SRAM_SECTOR_LEN)
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
        if let Self::Armed(endpoint, missing) = *self {
            *self = match missing.checked_sub(len) {
                Some(0) if by == endpoint => Self::Idle,
                Some(missing) if by == endpoint => Self::Armed(endpoint, missing),
                _ => Self::Unknown,
            };
        }
    }
}

/// Bytes of a bulk transfer: whole packets at every speed, and four slots of the SRAM. Transfers of one slot moved a
/// third less data a second with 32 in flight, and half of it with one (docs/lab/performance.md).
pub(super) const BULK_LEN: usize = 4 * SRAM_SLOT_LEN;

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
