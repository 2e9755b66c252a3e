//! A device with planned answers, which may violate the protocol. After those it answers nothing.

use std::collections::VecDeque;
use std::time::Duration;

use asm2464::scsi::uas::HostIu;
use asm2464_host::bridge::{Endpoint, PipeError, Pipes, Reaped, TransferEnd, TransferId};

/// The planned answers. Each is sent once.
#[derive(Debug)]
pub(super) struct Lies {
    pub data: Option<Vec<u8>>,
    pub status: Option<Vec<u8>>,
    /// The later answers on the status pipe.
    pub further: VecDeque<Vec<u8>>,
    /// Whether cancelling a transfer cancels everything on its endpoint.
    pub cancels_endpoints: bool,
    /// Whether transfers return only to a host that waits for them.
    pub is_late: bool,
    /// Whether the host knows of transfers that are back without asking for them.
    pub is_known: bool,
    /// Whether cancelled transfers stay out.
    pub keeps_cancelled: bool,
    /// Whether the device takes no command.
    pub takes_nothing: bool,
    /// Whether the data pipes stall.
    pub stalls: bool,
    /// What a submission and a port reset fail with.
    pub submitting: Option<PipeError>,
    pub resetting: Option<PipeError>,
    pub streams: u16,
    /// Number of streams after a port reset.
    pub streams_after_reset: u16,
}

impl Default for Lies {
    fn default() -> Self {
        Self {
            data: None,
            status: None,
            further: VecDeque::new(),
            cancels_endpoints: false,
            is_late: false,
            is_known: false,
            keeps_cancelled: false,
            takes_nothing: false,
            stalls: false,
            submitting: None,
            resetting: None,
            streams: 32,
            streams_after_reset: 32,
        }
    }
}

#[derive(Debug)]
pub(super) struct Liar {
    plan: Lies,
    buffers: Vec<Vec<u8>>,
    flying: Vec<(TransferId, Endpoint, usize)>,
    back: VecDeque<Reaped>,
    resets: usize,
    /// The LUN of each command.
    luns: Vec<u8>,
}

impl Liar {
    pub fn new(plan: Lies) -> Self {
        Self { plan, buffers: Vec::new(), flying: Vec::new(), back: VecDeque::new(), resets: 0, luns: Vec::new() }
    }

    pub fn in_flight(&self) -> usize {
        self.flying.len() + self.back.len()
    }

    pub fn luns(&self) -> &[u8] {
        &self.luns
    }

    pub fn resets(&self) -> usize {
        self.resets
    }
}

impl Pipes for Liar {
    fn streams(&self) -> u16 {
        self.plan.streams
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
        &mut self.buffers[transfer.0]
    }

    fn submit(&mut self, id: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        assert!(stream <= self.plan.streams, "stream {stream} does not exist");
        if let Some(error) = &self.plan.submitting {
            return Err(error.clone());
        }
        let answer = match endpoint {
            Endpoint::Command if !self.plan.takes_nothing => {
                if let Some(HostIu::Command(command)) = HostIu::parse(&self.buffers[id.0]) {
                    self.luns.push(command.lun);
                }
                self.back.push_back(Reaped { transfer: id, moved: len, end: TransferEnd::Completed });
                return Ok(());
            }
            Endpoint::Command => None,
            Endpoint::DataIn | Endpoint::DataOut if self.plan.stalls => {
                self.back.push_back(Reaped { transfer: id, moved: 0, end: TransferEnd::Failed(PipeError::Stall) });
                return Ok(());
            }
            Endpoint::Status => self.plan.status.take().or_else(|| self.plan.further.pop_front()),
            Endpoint::DataIn | Endpoint::DataOut => self.plan.data.take(),
        };
        match answer {
            Some(bytes) if bytes.len() > len => {
                self.back.push_back(Reaped { transfer: id, moved: len, end: TransferEnd::Failed(PipeError::Overflow) });
            }
            Some(bytes) => {
                self.buffers[id.0][..bytes.len()].copy_from_slice(&bytes);
                self.back.push_back(Reaped { transfer: id, moved: bytes.len(), end: TransferEnd::Completed });
            }
            None => self.flying.push((id, endpoint, len)),
        }
        Ok(())
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        let is_there = !self.plan.is_late || !timeout.is_zero();
        is_there.then(|| self.back.pop_front()).flatten().map(Some).ok_or(PipeError::Timeout)
    }

    fn reap_known(&mut self) -> Option<Reaped> {
        self.plan.is_known.then(|| self.back.pop_front()).flatten()
    }

    fn answers_control(&mut self) -> bool {
        !self.plan.takes_nothing
    }

    fn cancel(&mut self, transfer: TransferId) {
        if self.plan.keeps_cancelled {
            return;
        }
        // Nobody has waited for it, so it has not moved.
        if let Some(reaped) = self.back.iter_mut().find(|reaped| self.plan.is_late && reaped.transfer == transfer) {
            (reaped.moved, reaped.end) = (0, TransferEnd::Cancelled);
        }
        let Some(&(_, endpoint, _)) = self.flying.iter().find(|(id, ..)| *id == transfer) else { return };
        let whole = self.plan.cancels_endpoints;
        for (transfer, ..) in self.flying.extract_if(.., |(id, on, _)| *id == transfer || whole && *on == endpoint) {
            self.back.push_back(Reaped { transfer, moved: 0, end: TransferEnd::Cancelled });
        }
    }

    fn clear_halt(&mut self, _endpoint: Endpoint) -> Result<(), PipeError> {
        Ok(())
    }

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        panic!("UAS has no mass storage reset");
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        assert!(self.plan.keeps_cancelled || self.in_flight() == 0, "the port was reset with transfers in flight");
        self.resets += 1;
        if let Some(error) = &self.plan.resetting {
            return Err(error.clone());
        }
        self.plan.streams = self.plan.streams_after_reset;
        Ok(())
    }
}
