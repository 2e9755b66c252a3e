//! A virtual bridge in this process, as Bulk-Only's pipes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::unit::{InReply, OutReply, VirtualBridge};
use crate::bridge::{BulkPipes, Endpoint, PipeError};

/// A unit that several owners share: its transports, and whoever plugs it in and out.
#[derive(Debug, Clone)]
pub struct SharedBridge(Arc<Mutex<VirtualBridge>>);

impl SharedBridge {
    /// Shares a unit.
    pub fn new(unit: VirtualBridge) -> Self {
        Self(Arc::new(Mutex::new(unit)))
    }

    /// The unit, for this moment alone.
    pub fn lock(&self) -> MutexGuard<'_, VirtualBridge> {
        // The unit keeps no promise across a panic that a next command could break: it answers, or it does not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipes of the unit as it is attached now; `None` while it is away. Once it has left the bus they are
    /// disconnected for good, and new ones are opened.
    pub fn open_pipes(&self) -> Option<VirtualPipes> {
        let unit = self.lock();
        unit.is_attached().then(|| VirtualPipes { unit: self.clone(), attachment: unit.attachments() })
    }
}

/// One attachment's pipes.
///
/// What would never be answered ends in [`PipeError::Timeout`] at once: nothing waits for a time that is not its own.
/// Only where the unit is busy (the scenario's timing) is there a wait, of as long as it takes.
#[derive(Debug)]
pub struct VirtualPipes {
    unit: SharedBridge,
    attachment: u64,
}

impl VirtualPipes {
    /// The unit.
    pub fn unit(&self) -> &SharedBridge {
        &self.unit
    }

    /// Locks the unit, where this is still the attachment that was opened.
    ///
    /// # Errors
    /// [`PipeError::Disconnected`].
    pub fn attached(&self) -> Result<MutexGuard<'_, VirtualBridge>, PipeError> {
        let unit = self.unit.lock();
        if unit.is_attached() && unit.attachments() == self.attachment {
            Ok(unit)
        } else {
            Err(PipeError::Disconnected)
        }
    }

    /// Sends all of `data` on a stream of an OUT endpoint.
    ///
    /// # Errors
    /// [`PipeError`].
    pub fn send(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        data: &[u8],
        timeout: Duration,
    ) -> Result<usize, PipeError> {
        let deadline = Instant::now() + timeout;
        let mut sent = 0;
        loop {
            let mut unit = self.attached()?;
            let busy = unit.wake_in();
            match unit.bulk_out(endpoint, stream, &data[sent..]) {
                OutReply::Accepted(count) => {
                    sent += count;
                    if sent == data.len() {
                        return Ok(sent);
                    }
                }
                OutReply::Stall => return Err(PipeError::Stall),
                OutReply::Gone => return Err(PipeError::Disconnected),
                OutReply::Silent => {
                    drop(unit);
                    wait_for(busy, deadline).ok_or(PipeError::Timeout { transferred: sent })?;
                }
            }
        }
    }

    /// Asks for up to `buffer.len()` bytes on a stream of an IN endpoint.
    ///
    /// # Errors
    /// [`PipeError`].
    pub fn receive(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<usize, PipeError> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut unit = self.attached()?;
            let busy = unit.wake_in();
            match unit.bulk_in(endpoint, stream, buffer) {
                InReply::Data(count) => return Ok(count),
                InReply::Stall => return Err(PipeError::Stall),
                InReply::Gone => return Err(PipeError::Disconnected),
                InReply::Silent => {
                    drop(unit);
                    wait_for(busy, deadline).ok_or(PipeError::Timeout { transferred: 0 })?;
                }
            }
        }
    }
}

/// Waits as long as the unit is busy; `None` where it will not be ready by the deadline.
fn wait_for(wait: Option<Duration>, deadline: Instant) -> Option<()> {
    let wait = wait?;
    if Instant::now() + wait > deadline {
        return None;
    }
    std::thread::sleep(wait);
    Some(())
}

impl BulkPipes for VirtualPipes {
    fn write(&mut self, data: &[u8], timeout: Duration) -> Result<usize, PipeError> {
        self.send(Endpoint::DataOut, 0, data, timeout)
    }

    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<usize, PipeError> {
        self.receive(Endpoint::DataIn, 0, buffer, timeout)
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        self.attached()?.clear_halt(endpoint);
        Ok(())
    }

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        if self.attached()?.mass_storage_reset() { Ok(()) } else { Err(PipeError::Stall) }
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        self.attached()?.bus_reset();
        Ok(())
    }
}
