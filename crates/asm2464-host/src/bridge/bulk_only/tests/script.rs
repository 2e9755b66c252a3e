//! A Bulk-Only device whose next transfers are scripted.

use std::collections::VecDeque;
use std::time::Duration;

use Answer::{Data, DataAndStatus, Fail, Status, WrongTag};
use asm2464::scsi::bot::{CSW_LEN, CommandBlockWrapper, CommandStatusWrapper, CswStatus};

use crate::bridge::{Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};

/// The device's answer to the next IN transfer.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Data(Vec<u8>),
    Status(CswStatus, u32),
    /// Data, with the status in the next packet.
    DataAndStatus(Vec<u8>),
    WrongTag,
    Fail(PipeError),
}

#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) answers: VecDeque<Answer>,
    pub(super) write_fails: VecDeque<Option<PipeError>>,
    pub(super) reset_fails: Option<PipeError>,
    pub(super) port_fails: Option<PipeError>,
    pub(super) tag: u32,
    pub(super) opcodes: Vec<u8>,
    pub(super) luns: Vec<u8>,
    pub(super) written: Vec<u8>,
    pub(super) log: Vec<&'static str>,
    pub(super) buffers: Vec<Vec<u8>>,
    /// Transfers in flight, oldest first. Only the oldest moves.
    pub(super) in_flight: Vec<(TransferId, Endpoint, usize)>,
    pub(super) back: VecDeque<Reaped>,
    pub(super) halted: Vec<Endpoint>,
    /// The maximum number of transfers in flight, for each period that began without any.
    pub(super) depths: Vec<usize>,
    /// A status that arrives just when its transfer is cancelled.
    pub(super) late_status: Option<(CswStatus, u32)>,
    /// Whether cancelled transfers never return.
    pub(super) keeps_cancelled: bool,
    /// The system returns cancelled transfers only after a while.
    pub(super) cancels_late: bool,
    /// How often nothing is back yet.
    pub(super) empty_reaps: usize,
}

impl Script {
    pub(super) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: answers.into_iter().collect(), ..Self::default() }
    }

    /// Takes a wrapper or data from the host; `None` if the device does not answer.
    fn write(&mut self, data: &[u8]) -> Option<Result<usize, PipeError>> {
        match self.write_fails.pop_front() {
            Some(Some(PipeError::Timeout)) => return None,
            Some(Some(error)) => return Some(Err(error)),
            Some(None) | None => {}
        }
        match CommandBlockWrapper::parse(data) {
            Some(wrapper) => {
                self.tag = wrapper.tag;
                self.opcodes.push(wrapper.cdb.opcode());
                self.luns.push(wrapper.lun);
            }
            None => self.written.extend_from_slice(data),
        }
        Some(Ok(data.len()))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Option<Result<usize, PipeError>> {
        let csw = |tag, residue, status| CommandStatusWrapper { tag, residue, status }.to_bytes().to_vec();
        let bytes = match self.answers.pop_front().expect("a read that the script does not expect") {
            Data(bytes) => bytes,
            Status(status, residue) => csw(self.tag, residue, status),
            DataAndStatus(data) => [data, csw(self.tag, 0, CswStatus::Passed)].concat(),
            WrongTag => csw(self.tag ^ 0xFF, 0, CswStatus::Passed),
            Fail(PipeError::Timeout) => return None,
            Fail(error) => return Some(Err(error)),
        };
        if bytes.len() > buffer.len() {
            return Some(Err(PipeError::Overflow));
        }
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Ok(bytes.len()))
    }

    /// Moves the oldest transfer (a command's wrapper first, its status last); `None` if the device does not answer.
    fn advance(&mut self) -> Option<Reaped> {
        let (transfer, endpoint, len) = *self.in_flight.first()?;
        let mut buffer = std::mem::take(&mut self.buffers[transfer.0]);
        let outcome = if self.halted.contains(&endpoint) {
            Some(Err(PipeError::Stall))
        } else if endpoint == Endpoint::DataOut {
            self.write(&buffer[..len])
        } else {
            self.read(&mut buffer[..len])
        };
        self.buffers[transfer.0] = buffer;
        let outcome = outcome?;
        self.in_flight.remove(0);
        if outcome == Err(PipeError::Stall) {
            self.halted.push(endpoint);
        }
        Some(match outcome {
            Ok(moved) => Reaped { transfer, moved, end: TransferEnd::Completed },
            Err(error) => Reaped { transfer, moved: 0, end: TransferEnd::Failed(error) },
        })
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty() && self.back.is_empty()
    }
}

impl Pipes for Script {
    fn streams(&self) -> u16 {
        0
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.buffers.push(vec![0; capacity]);
        Ok(TransferId(self.buffers.len() - 1))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        self.buffers[transfer.0].resize(capacity, 0);
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        assert!(self.in_flight.iter().all(|(id, ..)| *id != transfer), "a buffer was used while it was in flight");
        &mut self.buffers[transfer.0]
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, _stream: u16, len: usize) -> Result<(), PipeError> {
        self.in_flight.push((transfer, endpoint, len));
        match (self.in_flight.len(), self.depths.last_mut()) {
            (1, _) | (_, None) => self.depths.push(1),
            (depth, Some(deepest)) => *deepest = depth.max(*deepest),
        }
        Ok(())
    }

    fn reap(&mut self, _timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        if self.empty_reaps > 0 {
            self.empty_reaps -= 1;
            return Ok(None);
        }
        let reaped = self.back.pop_front().or_else(|| self.advance());
        reaped.map(Some).ok_or(PipeError::Timeout)
    }

    /// The device is fast: a transfer behind a cancelled OUT transfer moves before anything else is cancelled.
    fn cancel(&mut self, transfer: TransferId) {
        if self.keeps_cancelled {
            return;
        }
        self.empty_reaps = usize::from(self.cancels_late);
        let Some(at) = self.in_flight.iter().position(|(id, ..)| *id == transfer) else { return };
        let (_, endpoint, len) = self.in_flight.remove(at);
        if let Some((status, residue)) = self.late_status.take_if(|_| endpoint == Endpoint::DataIn && len == CSW_LEN) {
            let csw = CommandStatusWrapper { tag: self.tag, residue, status }.to_bytes();
            self.buffers[transfer.0][..CSW_LEN].copy_from_slice(&csw);
            self.back.push_back(Reaped { transfer, moved: CSW_LEN, end: TransferEnd::Completed });
            return;
        }
        self.back.push_back(Reaped { transfer, moved: 0, end: TransferEnd::Cancelled });
        let next = self.in_flight[at..].iter().position(|(_, on, _)| *on == endpoint && endpoint == Endpoint::DataOut);
        if let Some(next) = next {
            let (transfer, _, len) = self.in_flight.remove(at + next);
            let bytes = self.buffers[transfer.0][..len].to_vec();
            if let Some(Ok(moved)) = self.write(&bytes) {
                self.back.push_back(Reaped { transfer, moved, end: TransferEnd::Completed });
            }
        }
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        let is_free = self.in_flight.iter().all(|(_, on, _)| *on != endpoint);
        assert!(is_free, "a halt was cleared with a transfer pending");
        self.halted.retain(|halted| *halted != endpoint);
        self.log.push(if endpoint == Endpoint::DataIn { "clear IN" } else { "clear OUT" });
        Ok(())
    }

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        assert!(self.is_quiet(), "the device was reset with transfers in flight");
        self.log.push("class reset");
        self.reset_fails.clone().map_or(Ok(()), Err)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        assert!(self.is_quiet(), "the port was reset with transfers in flight");
        self.halted.clear();
        self.log.push("port reset");
        self.port_fails.clone().map_or(Ok(()), Err)
    }
}
