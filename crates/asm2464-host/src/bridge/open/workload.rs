//! A stream of transfers, and how errors and the log name them.

use std::ops::Range;
use std::time::Duration;

use super::super::pipes::{Endpoint, SETUP_LEN};
use super::command::OpenCommand;
use super::error::ControlError;

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
    /// unit. `elapsed` is the time from submission to end, or 0 if the workload is not timed.
    ///
    /// # Errors
    /// Any error ends the stream and cancels the transfers in flight.
    fn complete(&mut self, job: OpenJob, data: &[u8], elapsed: Duration) -> Result<(), ControlError>;
}

/// One transfer of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenJob {
    /// A control request.
    Control(OpenCommand),
    /// Bulk data of this many bytes: to the unit on [`Endpoint::DataOut`], from it on [`Endpoint::DataIn`].
    Bulk(Endpoint, usize),
}

impl OpenJob {
    /// The bulk endpoint; `None` for the control endpoint.
    pub(super) const fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Control(_) => None,
            Self::Bulk(endpoint, _) => Some(endpoint),
        }
    }

    /// Whether both use the same endpoint, which keeps their order.
    pub(super) fn goes_with(self, other: Self) -> bool {
        self.endpoint() == other.endpoint()
    }

    /// Number of bytes that the transfer moves.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Control(command) => command.len(),
            Self::Bulk(_, len) => len,
        }
    }

    /// Range of the received data in the buffer, if the transfer moved `moved` bytes.
    pub(super) fn brought(self, moved: usize) -> Range<usize> {
        match self {
            Self::Control(command) if command.is_read() => SETUP_LEN..SETUP_LEN + moved,
            Self::Bulk(Endpoint::DataIn, _) => 0..moved,
            _ => 0..0,
        }
    }
}

/// A request, as errors and the log name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum OpenRequest {
    /// A control request, or the bulk data that it announced.
    Command(OpenCommand),
    /// Bulk data that no control request announced.
    #[display("bulk data {} the unit", if *_0 == Endpoint::DataIn { "from" } else { "to" })]
    Bulk(Endpoint),
    /// A reset of the port.
    #[display("a reset of the port")]
    PortReset,
}

impl OpenRequest {
    /// The request of a job, given the last control request.
    pub(super) fn of(job: OpenJob, armed_by: Option<OpenCommand>) -> Self {
        match (job, armed_by) {
            (OpenJob::Control(command), _) | (_, Some(command)) => Self::Command(command),
            (OpenJob::Bulk(endpoint, _), None) => Self::Bulk(endpoint),
        }
    }
}
