//! A stream of transfers.

use std::time::Duration;

use super::error::ControlError;
use super::job::OpenJob;

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
