//! A stream of data to the host that belongs to no command. The SRAM's DMA sends on any stream that it is given.

use std::time::{Duration, Instant};

use super::Uas;
use crate::bridge::error::{TransportError, TransportErrorKind};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes, TransferEnd, TransferId};
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
        let came = match self.await_spare(transfer, timeout) {
            Ok(Some((moved, TransferEnd::Completed))) => Ok(moved),
            Ok(Some((_, TransferEnd::Failed(error)))) | Err(error) => Err(failed(error)),
            Ok(Some((_, TransferEnd::Cancelled)) | None) => {
                Err(TransportErrorKind::Timeout { deadline: timeout }.during(READING))
            }
        };
        match came {
            Ok(moved) => {
                let brought = &self.pipes.buffer(transfer)[..moved.min(buffer.len())];
                buffer[..brought.len()].copy_from_slice(brought);
                Ok(brought.len())
            }
            Err(gone) if gone.is_gone() => Err(gone),
            // The DMA may still be armed. Only a port reset disarms it.
            Err(error) => {
                self.pipes.cancel(transfer);
                let _ = self.await_spare(transfer, CANCEL_TIMEOUT);
                self.reset().and(Err(error))
            }
        }
    }

    /// Waits for the transfer; `None` if it has not ended within `timeout`.
    fn await_spare(
        &mut self,
        transfer: TransferId,
        timeout: Duration,
    ) -> Result<Option<(usize, TransferEnd)>, PipeError> {
        let until = Instant::now() + timeout;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.pipes.reap(rest) {
                Ok(Some(reaped)) if reaped.transfer == transfer => return Ok(Some((reaped.moved, reaped.end))),
                Ok(Some(_)) => {}
                Ok(None) if rest.is_zero() => return Ok(None),
                Ok(None) => {}
                Err(PipeError::Timeout) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
