//! A stream of data to the host that belongs to no command. The SRAM's DMA sends on any stream that it is given.

use std::time::{Duration, Instant};

use super::Uas;
use crate::bridge::error::{TransportError, TransportErrorKind};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes, TransferEnd};
use crate::bridge::transport::Transport as _;

/// Time that a cancelled transfer may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
const READING: &str = "reading a stream";

impl<P: Pipes> Uas<P> {
    pub(super) fn read_stream_of_nobody(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<usize, TransportError> {
        let failed = |error: PipeError| error.during(READING);
        let no_stream = || PipeError::Other("there is no stream that belongs to no command".to_owned());
        let stream = self.spare_stream().ok_or_else(|| failed(no_stream()))?;
        let transfer = self.spare;
        self.pipes.reserve(transfer, buffer.len()).map_err(failed)?;
        self.pipes.submit(transfer, Endpoint::DataIn, stream, buffer.len()).map_err(failed)?;
        let error = match self.await_spare(timeout) {
            Ok((moved, TransferEnd::Completed)) => {
                let brought = &self.pipes.buffer(transfer)[..moved.min(buffer.len())];
                buffer[..brought.len()].copy_from_slice(brought);
                return Ok(brought.len());
            }
            Ok((_, TransferEnd::Cancelled)) | Err(PipeError::Timeout) => {
                TransportErrorKind::Timeout { deadline: timeout }.during(READING)
            }
            Ok((_, TransferEnd::Failed(error))) | Err(error) => failed(error),
        };
        if !error.is_gone() {
            // The DMA may still be armed. Only a port reset disarms it.
            self.pipes.cancel(transfer);
            let _ = self.await_spare(CANCEL_TIMEOUT);
            self.reset()?;
        }
        Err(error)
    }

    /// Waits for the transfer. Returns the bytes moved, and how it ended.
    fn await_spare(&mut self, timeout: Duration) -> Result<(usize, TransferEnd), PipeError> {
        let until = Instant::now() + timeout;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.pipes.reap(rest)? {
                Some(reaped) if reaped.transfer == self.spare => return Ok((reaped.moved, reaped.end)),
                None if rest.is_zero() => return Err(PipeError::Timeout),
                Some(_) | None => {}
            }
        }
    }
}
