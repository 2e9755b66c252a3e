//! A transport's pipes to a virtual unit in this process.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use asm2464_chip::chip::Speed;
use asm2464_host::bridge::{
    ControlPipes, Endpoint, PipeError, Pipes, Reaped, SETUP_LEN, TransferEnd, TransferId, control_data_len, is_to_host,
};

use super::descriptors::STREAMS;
use super::responder::Reply;
use super::unit::{ControlAnswer, SharedUnit, VirtualUnit};

/// The alternate setting of UAS.
const UAS: u8 = 1;

/// The pipes of one attachment, on one of its alternates. Once the unit has left the bus they are disconnected for
/// good; open new ones then.
///
/// A transfer that would never be answered ends in [`PipeError::Timeout`] at once, without waiting for the timeout.
/// Only a busy unit (the scenario's timing) takes real time.
#[derive(Debug)]
pub struct VirtualPipes {
    unit: SharedUnit,
    /// Number of the attachment.
    attachment: u64,
    alternate: u8,
    streams: u16,
    transfers: Vec<VirtualTransfer>,
    /// Submitted transfers, oldest first. On one stream of an endpoint only the oldest moves.
    submitted: VecDeque<TransferId>,
    back: VecDeque<Reaped>,
}

#[derive(Debug, Default)]
struct VirtualTransfer {
    buffer: Vec<u8>,
    flight: Option<Submission>,
}

/// Target of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferTarget {
    Bulk(Endpoint, u16),
    Control,
}

#[derive(Debug, Clone, Copy)]
struct Submission {
    way: TransferTarget,
    /// The unit has a control request that it has not answered.
    is_begun: bool,
    len: usize,
    moved: usize,
}

impl VirtualPipes {
    /// Opens the pipes of a unit on its current alternate, Bulk-Only's; `None` while the unit is away.
    pub fn open(unit: &SharedUnit) -> Option<Self> {
        let locked = unit.lock();
        locked.is_attached().then(|| Self {
            unit: unit.clone(),
            attachment: locked.attachments(),
            alternate: 0,
            streams: 0,
            transfers: Vec::new(),
            submitted: VecDeque::new(),
            back: VecDeque::new(),
        })
    }

    /// The alternate setting.
    pub const fn alternate(&self) -> u8 {
        self.alternate
    }

    /// Switches the unit to its UAS alternate; `None` in the boot loader, which has only Bulk-Only.
    pub fn with_uas(mut self) -> Option<Self> {
        let mut unit = self.unit.lock();
        if !unit.set_alternate(UAS) {
            return None;
        }
        let streams = if unit.descriptors().speed == Speed::Super { STREAMS } else { 0 };
        drop(unit);
        (self.alternate, self.streams) = (UAS, streams);
        Some(self)
    }

    /// Puts a transfer of `len` bytes in flight. `len` is `None` if its buffer is too short, which is refused.
    fn start(&mut self, transfer: TransferId, way: TransferTarget, len: Option<usize>) -> Result<(), PipeError> {
        drop(attached(&self.unit, self.attachment)?);
        let slot = &mut self.transfers[transfer.0];
        match (len, slot.flight) {
            (Some(len), None) => {
                slot.flight = Some(Submission { way, is_begun: false, len, moved: 0 });
                self.submitted.push_back(transfer);
                Ok(())
            }
            _ => Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned())),
        }
    }

    /// Ends a transfer, if it is in flight.
    fn end(&mut self, id: TransferId, end: TransferEnd) {
        self.submitted.retain(|submitted| *submitted != id);
        let slot = &mut self.transfers[id.0];
        let Some(Submission { moved, .. }) = slot.flight.take() else { return };
        self.back.push_back(Reaped { transfer: id, moved, end });
    }

    /// Offers every transfer that may move to the unit once. Returns `true` if anything moved or completed.
    fn offer(&mut self) -> bool {
        let shared = self.unit.clone();
        let mut has_moved = false;
        let Ok(mut unit) = attached(&shared, self.attachment) else {
            while let Some(id) = self.submitted.front() {
                self.end(*id, TransferEnd::Failed(PipeError::Disconnected));
                has_moved = true;
            }
            return has_moved;
        };
        let mut at = 0;
        while let Some(&id) = self.submitted.get(at) {
            if !self.is_oldest(at) {
                at += 1;
                continue;
            }
            let VirtualTransfer { buffer, flight: Some(flight) } = &mut self.transfers[id.0] else {
                at += 1;
                continue;
            };
            let before = flight.moved;
            let end = match flight.way {
                TransferTarget::Bulk(endpoint, stream) => bulk(&mut unit, endpoint, stream, buffer, flight),
                TransferTarget::Control => control(&mut unit, buffer, flight),
            };
            has_moved |= flight.moved > before;
            match end {
                Some(end) => {
                    self.end(id, end);
                    has_moved = true;
                }
                None => at += 1,
            }
        }
        has_moved
    }

    /// Whether no transfer before this place in the queue goes the same way.
    fn is_oldest(&self, at: usize) -> bool {
        let way_of = |id: &TransferId| self.transfers[id.0].flight.map(|flight| flight.way);
        let way = way_of(&self.submitted[at]);
        self.submitted.iter().take(at).all(|before| way_of(before) != way)
    }
}

impl Pipes for VirtualPipes {
    fn streams(&self) -> u16 {
        self.streams
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.transfers.push(VirtualTransfer { buffer: vec![0; capacity], flight: None });
        self.submitted.reserve(self.transfers.len());
        self.back.reserve(self.transfers.len());
        Ok(TransferId(self.transfers.len() - 1))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        let buffer = &mut self.transfers[transfer.0].buffer;
        buffer.resize(buffer.len().max(capacity), 0);
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        let transfer = &mut self.transfers[transfer.0];
        if transfer.flight.is_some() { &mut [] } else { &mut transfer.buffer }
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        let way = TransferTarget::Bulk(endpoint, stream);
        let fits = len <= self.transfers[transfer.0].buffer.len();
        self.start(transfer, way, if fits { Some(len) } else { None })
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        let until = asm2464_host::bridge::deadline(timeout);
        loop {
            if let Some(reaped) = self.back.pop_front() {
                return Ok(Some(reaped));
            }
            // Ask before the transfers are offered: see `VirtualUnit::wake_in`.
            let busy = self.unit.lock().wake_in();
            if self.offer() {
                continue;
            }
            // Work that became due in between may have made the unit busy again, as the next page of its flash does.
            let busy = busy.or_else(|| self.unit.lock().wake_in());
            let rest = until.saturating_duration_since(Instant::now());
            match busy {
                Some(busy) if busy < rest => std::thread::sleep(busy),
                Some(_) | None => return Err(PipeError::Timeout),
            }
        }
    }

    fn cancel(&mut self, transfer: TransferId) {
        self.end(transfer, TransferEnd::Cancelled);
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        for transfer in &self.transfers {
            if let Some(Submission { way: TransferTarget::Bulk(used, _), .. }) = transfer.flight
                && used == endpoint
            {
                // Linux's xHCI driver refuses it too.
                return Err(PipeError::Other("a halt can't be cleared with transfers in flight".to_owned()));
            }
        }
        attached(&self.unit, self.attachment)?.clear_halt(endpoint);
        Ok(())
    }

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        const GET_STATUS: [u8; SETUP_LEN] = [0x80, 0, 0, 0, 0, 0, 2, 0];
        let mut unit = attached(&self.unit, self.attachment)?;
        let is_done = unit.mass_storage_reset();
        // Firmware that stalls this request still answers GET_STATUS.
        let is_silent = !is_done && unit.control(GET_STATUS, &[]) == ControlAnswer::Silent;
        drop(unit);
        if is_silent {
            return Err(PipeError::Timeout);
        }
        if is_done { Ok(()) } else { Err(PipeError::Stall) }
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        let mut unit = attached(&self.unit, self.attachment)?;
        if unit.reset_by_host(self.alternate) { Ok(()) } else { Err(PipeError::Disconnected) }
    }
}

impl ControlPipes for VirtualPipes {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        let len = control_data_len(&self.transfers[transfer.0].buffer);
        self.start(transfer, TransferTarget::Control, len)
    }
}

/// Locks the unit if this attachment is still the current one.
fn attached(unit: &SharedUnit, attachment: u64) -> Result<MutexGuard<'_, VirtualUnit>, PipeError> {
    let unit = unit.lock();
    if unit.is_attached() && unit.attachments() == attachment { Ok(unit) } else { Err(PipeError::Disconnected) }
}

/// Offers a bulk transfer to the unit. Returns how it ended, if it did.
fn bulk(
    unit: &mut VirtualUnit,
    endpoint: Endpoint,
    stream: u16,
    buffer: &mut [u8],
    flight: &mut Submission,
) -> Option<TransferEnd> {
    let rest = &mut buffer[flight.moved..flight.len];
    let reply = match endpoint {
        Endpoint::DataOut | Endpoint::Command => unit.bulk_out(endpoint, stream, rest),
        Endpoint::DataIn | Endpoint::Status => unit.bulk_in(endpoint, stream, rest),
    };
    let (moved, end) = match reply {
        Reply::Done(count) => (count, Some(TransferEnd::Completed)),
        Reply::Part(count) => (count, None),
        Reply::Silent => (0, None),
        Reply::Babble(count) => (count, Some(TransferEnd::Failed(PipeError::Overflow))),
        Reply::Stall => (0, Some(TransferEnd::Failed(PipeError::Stall))),
        Reply::Gone => (0, Some(TransferEnd::Failed(PipeError::Disconnected))),
    };
    flight.moved += moved;
    end
}

/// Sends a control request to the unit, or asks for its answer. Returns how it ended, if it did.
fn control(unit: &mut VirtualUnit, buffer: &mut [u8], flight: &mut Submission) -> Option<TransferEnd> {
    let (setup, data) = buffer.split_first_chunk_mut::<SETUP_LEN>()?;
    let data = &mut data[..flight.len];
    let answer = if flight.is_begun {
        unit.control_reply(*setup)
    } else {
        flight.is_begun = true;
        unit.control(*setup, if is_to_host(setup[0]) { &[] } else { data })
    };
    match answer {
        ControlAnswer::Done(received) if is_to_host(setup[0]) => {
            let fits = received.len() <= data.len();
            flight.moved = received.len().min(data.len());
            data[..flight.moved].copy_from_slice(&received[..flight.moved]);
            Some(if fits { TransferEnd::Completed } else { TransferEnd::Failed(PipeError::Overflow) })
        }
        ControlAnswer::Done(_) => {
            flight.moved = flight.len;
            Some(TransferEnd::Completed)
        }
        ControlAnswer::Stall => Some(TransferEnd::Failed(PipeError::Stall)),
        ControlAnswer::Silent => None,
        ControlAnswer::Gone => Some(TransferEnd::Failed(PipeError::Disconnected)),
    }
}
