//! A transport sends CDBs with their data to the device and returns status and sense, one at a time or with many in
//! flight: a [`Workload`] gives one [`Job`] after the other.

use std::time::Duration;

use asm2464::TransportKind;
use asm2464::scsi::{Cdb, Lun, ScsiStatus, Sense};

use super::error::{TransportError, TransportErrorKind};
use super::pipes::{Endpoint, Pipes};

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

    /// Runs one command of LUN 0. A CHECK CONDITION is a [`CommandEnd`], not an error.
    ///
    /// # Errors
    /// [`TransportError`] if the wire failed. The transport has then already tried to recover the device.
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<CommandEnd, TransportError> {
        self.execute_on(Lun::ZERO, cdb, data, timeout)
    }

    /// As [`Transport::execute`], for a logical unit that REPORT LUNS lists.
    ///
    /// # Errors
    /// As of [`Transport::execute`].
    fn execute_on(
        &mut self,
        lun: Lun,
        cdb: &Cdb,
        data: DataPhase<'_>,
        timeout: Duration,
    ) -> Result<CommandEnd, TransportError> {
        let mut single = Single { lun, cdb: *cdb, data, was_sent: false, completion: None };
        self.run(&mut single, 1, timeout)?;
        single.completion.ok_or_else(|| {
            TransportErrorKind::Protocol("the queue ended without an answer".to_owned()).during(cdb.name())
        })
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

/// One command as a workload: the only copy is between the caller's data and the transfer's buffer.
struct Single<'a> {
    lun: Lun,
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
        Some(Job { lun: self.lun, cdb: self.cdb, data, id: 0 })
    }

    fn complete(&mut self, _job: &Job, completion: &CommandEnd, data: &[u8], _elapsed: Duration) -> bool {
        if let DataPhase::In(wanted) = &mut self.data {
            wanted[..data.len()].copy_from_slice(data);
        }
        self.completion = Some(*completion);
        true
    }
}

/// The data of one command.
#[derive(Debug)]
pub enum DataPhase<'a> {
    /// No data.
    None,
    /// Device to host, at most the buffer's length.
    In(&'a mut [u8]),
    /// Host to device, the whole slice.
    Out(&'a [u8]),
}

impl DataPhase<'_> {
    /// Borrows the same data for a shorter time, to send a command twice.
    pub fn reborrow(&mut self) -> DataPhase<'_> {
        match self {
            Self::None => DataPhase::None,
            Self::In(buffer) => DataPhase::In(buffer),
            Self::Out(data) => DataPhase::Out(data),
        }
    }

    /// Number of bytes that the host expects to move.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(buffer) => buffer.len(),
            Self::Out(data) => data.len(),
        }
    }

    /// Whether there is no data to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Number of data bytes that were really moved.
    pub transferred: usize,
    /// The SCSI status. Under Bulk-Only a failed CSW is [`ScsiStatus::CheckCondition`].
    pub status: ScsiStatus,
    /// The sense data; Bulk-Only fetches it with REQUEST SENSE.
    pub sense: Option<Sense>,
}

/// Direction of a job's data, and the number of bytes that it uses of the slot's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobData {
    /// No data.
    None,
    /// Device to host, this many bytes.
    In(usize),
    /// Host to device, this many bytes, which the workload has put in the slot's buffer.
    Out(usize),
}

impl JobData {
    /// Endpoint and length of the data; `None` if there is none.
    pub(super) const fn transfer(self) -> Option<(Endpoint, usize)> {
        match self {
            Self::None | Self::In(0) | Self::Out(0) => None,
            Self::In(len) => Some((Endpoint::DataIn, len)),
            Self::Out(len) => Some((Endpoint::DataOut, len)),
        }
    }
}

/// One queued command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// The logical unit that it is for.
    pub lun: Lun,
    /// The command.
    pub cdb: Cdb,
    /// Its data.
    pub data: JobData,
    /// The workload's own number for the command.
    pub id: u64,
}

impl Job {
    /// Limits the command's data to the length of a slot's buffer.
    pub(super) fn clamped(mut self, buffer_len: usize) -> Self {
        self.data = match self.data {
            JobData::None => JobData::None,
            JobData::In(wanted) => JobData::In(wanted.min(buffer_len)),
            JobData::Out(wanted) => JobData::Out(wanted.min(buffer_len)),
        };
        self
    }
}

/// A stream of commands, pulled by the transport whenever a slot is free.
///
/// Buffers belong to the transport and are reused: no command allocates or copies.
pub trait Workload {
    /// Maximum number of bytes that any job moves: the length of every slot's buffer.
    fn buffer_len(&self) -> usize;

    /// Whether [`Workload::complete`] needs the time that each command took. Reading the clock is usually cheap, but in
    /// a virtual machine without a stable TSC it costs as much as a transfer.
    fn is_timed(&self) -> bool {
        false
    }

    /// Returns the next command, or `None` when there are no more. Writes data out into `buffer`.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Job>;

    /// Reports the end of a command. `data` is the received data, empty for data out. `elapsed` is the time from
    /// submission to status, or 0 if the workload is not timed. Return `false` to stop the stream: commands in flight
    /// still complete.
    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], elapsed: Duration) -> bool;
}
