//! Control requests and bulk transfers in order, with many in flight.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::sram::{DMA_STATE, SRAM_SECTOR_LEN};
use tracing::debug;

use super::command::{OpenCommand, OpenJob, OpenRequest, TLP_LEN};
use super::error::ControlError;
use super::workload::{OneRequest, OpenWorkload};
use crate::bridge::log;
use crate::bridge::pipes::{ControlPipes, Endpoint, PipeError, Reaped, SETUP_LEN, TransferEnd, TransferId};

/// Maximum number of transfers in flight.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of data bytes in a control request.
const CONTROL_DATA_MAX: usize = 512;
/// Time that cancelled transfers may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of the check whether the unit still answers, and pause between its attempts.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const ASK_PAUSE: Duration = Duration::from_millis(50);

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
