//! A transport sends CDBs with their data to the device and returns status and sense, one at a time or with many in
//! flight.

use std::time::Duration;

use asm2464::TransportKind;
use asm2464::scsi::Cdb;

use super::error::{TransportError, TransportErrorKind};
use super::pipes::Pipes;
use super::workload::{CommandEnd, DataPhase, Job, JobData, Workload};

/// Carries commands to a bridge.
pub trait Transport {
    /// The pipes below, if there are any.
    fn pipes(&mut self) -> Option<&mut dyn Pipes> {
        None
    }

    /// Its kind. [`TransportKind::Uas`] is UAS without streams here.
    fn kind(&self) -> TransportKind;

    /// Maximum number of commands in flight.
    fn max_depth(&self) -> usize;

    /// Runs one command. A CHECK CONDITION is a [`CommandEnd`], not an error.
    ///
    /// # Errors
    /// [`TransportError`] if the wire failed. The transport has then already tried to recover the device.
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<CommandEnd, TransportError> {
        let mut single = Single { cdb: *cdb, data, was_sent: false, completion: None };
        self.run(&mut single, 1, timeout)?;
        single
            .completion
            .ok_or_else(|| TransportErrorKind::Protocol("the queue ended without an answer".to_owned()).during(*cdb))
    }

    /// Runs a stream of commands with up to `depth` in flight.
    ///
    /// # Errors
    /// [`TransportError`], as for [`Transport::execute`]. Jobs in flight at that time are lost.
    fn run(&mut self, workload: &mut dyn Workload, depth: usize, timeout: Duration) -> Result<(), TransportError>;

    /// Recovers the device, so that the next command can be sent.
    ///
    /// # Errors
    /// [`TransportError`] if recovery fails.
    fn recover(&mut self) -> Result<(), TransportError>;

    /// Whether the unit answers a control request, possibly with a stall. A transport that can't check returns `true`.
    fn answers_control(&mut self) -> bool {
        self.pipes().is_none_or(|pipes| pipes.answers_control())
    }
}

/// Any transport, for use from one thread at a time.
pub type AnyTransport = Box<dyn Transport + Send>;

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn pipes(&mut self) -> Option<&mut dyn Pipes> {
        (**self).pipes()
    }

    fn kind(&self) -> TransportKind {
        (**self).kind()
    }

    fn max_depth(&self) -> usize {
        (**self).max_depth()
    }

    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<CommandEnd, TransportError> {
        (**self).execute(cdb, data, timeout)
    }

    fn run(&mut self, workload: &mut dyn Workload, depth: usize, timeout: Duration) -> Result<(), TransportError> {
        (**self).run(workload, depth, timeout)
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        (**self).recover()
    }
}

/// One command as a workload: the only copy is between the caller's data and the transfer's buffer.
struct Single<'a> {
    cdb: Cdb,
    data: DataPhase<'a>,
    was_sent: bool,
    completion: Option<CommandEnd>,
}

impl Workload for Single<'_> {
    fn buffer_len(&self) -> usize {
        self.data.len()
    }

    fn next(&mut self, buffer: &mut [u8]) -> Option<Job> {
        if std::mem::replace(&mut self.was_sent, true) {
            return None;
        }
        let data = match &self.data {
            DataPhase::None => JobData::None,
            DataPhase::In(wanted) => JobData::In(wanted.len()),
            DataPhase::Out(data) => {
                buffer[..data.len()].copy_from_slice(data);
                JobData::Out(data.len())
            }
        };
        Some(Job { cdb: self.cdb, data, id: 0 })
    }

    fn complete(&mut self, _job: &Job, completion: &CommandEnd, data: &[u8], _elapsed: Duration) -> bool {
        if let DataPhase::In(wanted) = &mut self.data {
            wanted[..data.len()].copy_from_slice(data);
        }
        self.completion = Some(*completion);
        true
    }
}
