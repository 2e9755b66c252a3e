//! One transfer of a stream, and how errors and the log name it.

use std::ops::Range;

use super::super::pipes::{Endpoint, SETUP_LEN};
use super::command::OpenCommand;

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
