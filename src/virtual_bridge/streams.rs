//! A virtual bridge in this process, as UAS's pipes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::descriptors::{LinkSpeed, STREAMS};
use super::handle::{SharedBridge, VirtualPipes};
use super::unit::{InReply, NoSuchAlternate, OutReply};
use crate::bridge::{Endpoint, PipeError, Reaped, StreamPipes, TransferEnd, TransferId};

/// The alternate setting of UAS.
const UAS: u8 = 1;

/// One attachment's UAS pipes.
///
/// What would never be answered ends in [`PipeError::Timeout`] at once, as [`VirtualPipes`] does it.
#[derive(Debug)]
pub struct VirtualStreams {
    pipes: VirtualPipes,
    streams: u16,
    transfers: Vec<Transfer>,
    /// What is submitted, oldest first: on one stream of an endpoint only the oldest moves.
    submitted: VecDeque<TransferId>,
    back: VecDeque<Reaped>,
}

#[derive(Debug, Default)]
struct Transfer {
    buffer: Vec<u8>,
    flight: Option<Flight>,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    endpoint: Endpoint,
    stream: u16,
    len: usize,
    moved: usize,
}

impl VirtualStreams {
    /// Selects UAS on a unit.
    ///
    /// # Errors
    /// [`NoSuchAlternate`] in the boot loader.
    pub fn open(pipes: VirtualPipes) -> Result<Self, NoSuchAlternate> {
        let mut unit = pipes.unit().lock();
        unit.set_alternate(UAS)?;
        let streams = if unit.descriptors().speed == LinkSpeed::Super { STREAMS } else { 0 };
        drop(unit);
        Ok(Self { pipes, streams, transfers: Vec::new(), submitted: VecDeque::new(), back: VecDeque::new() })
    }

    /// The unit.
    pub fn unit(&self) -> &SharedBridge {
        self.pipes.unit()
    }

    /// Offers every transfer that may move to the unit, once. `true` where one came back.
    fn offer(&mut self) -> bool {
        let unit = self.pipes.attached();
        let mut came_back = false;
        let Ok(mut unit) = unit else {
            for id in self.submitted.drain(..) {
                let flight = self.transfers[id.0].flight.take();
                let moved = flight.map_or(0, |flight| flight.moved);
                self.back.push_back(Reaped { transfer: id, moved, end: TransferEnd::Failed(PipeError::Disconnected) });
                came_back = true;
            }
            return came_back;
        };
        let mut at = 0;
        while let Some(&id) = self.submitted.get(at) {
            let is_oldest = !self.submitted.iter().take(at).any(|before| {
                let key = |id: TransferId| self.transfers[id.0].flight.map(|flight| (flight.endpoint, flight.stream));
                key(*before) == key(id)
            });
            let transfer = &mut self.transfers[id.0];
            let Some(flight) = transfer.flight.as_mut().filter(|_| is_oldest) else {
                at += 1;
                continue;
            };
            let rest = &mut transfer.buffer[flight.moved..flight.len];
            let end = match flight.endpoint {
                Endpoint::DataOut | Endpoint::Command => match unit.bulk_out(flight.endpoint, flight.stream, rest) {
                    OutReply::Accepted(count) => {
                        flight.moved += count;
                        (flight.moved == flight.len).then_some(TransferEnd::Completed)
                    }
                    OutReply::Stall => Some(TransferEnd::Failed(PipeError::Stall)),
                    OutReply::Gone => Some(TransferEnd::Failed(PipeError::Disconnected)),
                    OutReply::Silent => None,
                },
                Endpoint::DataIn | Endpoint::Status => match unit.bulk_in(flight.endpoint, flight.stream, rest) {
                    InReply::Data(count) => {
                        flight.moved += count;
                        Some(TransferEnd::Completed)
                    }
                    InReply::Stall => Some(TransferEnd::Failed(PipeError::Stall)),
                    InReply::Gone => Some(TransferEnd::Failed(PipeError::Disconnected)),
                    InReply::Silent => None,
                },
            };
            match end {
                Some(end) => {
                    let moved = flight.moved;
                    transfer.flight = None;
                    self.submitted.remove(at);
                    self.back.push_back(Reaped { transfer: id, moved, end });
                    came_back = true;
                }
                None => at += 1,
            }
        }
        came_back
    }
}

impl StreamPipes for VirtualStreams {
    fn streams(&self) -> u16 {
        self.streams
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.transfers.push(Transfer { buffer: vec![0; capacity], flight: None });
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
        drop(self.pipes.attached()?);
        let slot = &mut self.transfers[transfer.0];
        if slot.flight.is_some() || len > slot.buffer.len() {
            return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()));
        }
        slot.flight = Some(Flight { endpoint, stream, len, moved: 0 });
        self.submitted.push_back(transfer);
        Ok(())
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(reaped) = self.back.pop_front() {
                return Ok(Some(reaped));
            }
            // Asked before the transfers are offered: see `VirtualBridge::wake_in`.
            let busy = self.unit().lock().wake_in();
            if self.offer() {
                continue;
            }
            let Some(busy) = busy else { return Err(PipeError::Timeout { transferred: 0 }) };
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(busy.min(rest));
        }
    }

    fn cancel(&mut self, transfer: TransferId) {
        if let Some(flight) = self.transfers[transfer.0].flight.take() {
            self.submitted.retain(|submitted| *submitted != transfer);
            self.back.push_back(Reaped { transfer, moved: flight.moved, end: TransferEnd::Cancelled });
        }
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        self.pipes.attached()?.clear_halt(endpoint);
        Ok(())
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        let mut unit = self.pipes.attached()?;
        unit.bus_reset();
        unit.set_alternate(UAS).map_err(|_| PipeError::Disconnected)
    }
}
