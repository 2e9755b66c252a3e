//! A stream of data to the host that belongs to no command. The SRAM's DMA sends on any stream that it is given.

use std::time::{Duration, Instant};

use super::{Role, Uas};
use crate::bridge::error::{TransportError, TransportErrorKind};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes, TransferEnd, TransferId};

/// Time that a cancelled transfer may take to return.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
const READING: &str = "reading a stream";

impl<P: Pipes> Uas<P> {
    /// The last stream, if no tag has its number.
    pub(super) fn stream_of_nobody(&self) -> Option<u16> {
        let streams = self.pipes.streams();
        (self.has_streams() && usize::from(streams) > self.depth).then_some(streams)
    }

    pub(super) fn read_stream_of_nobody(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<usize, TransportError> {
        let failed = |error: PipeError| TransportErrorKind::from(error).during(READING);
        let no_stream = || PipeError::Other("there is no stream that belongs to no command".to_owned());
        let stream = self.stream_of_nobody().ok_or_else(|| failed(no_stream()))?;
        let transfer = self.spare_transfer().map_err(failed)?;
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
                match self.reset() {
                    Ok(()) => Err(error),
                    Err(unrecovered) => Err(unrecovered),
                }
            }
        }
    }

    fn spare_transfer(&mut self) -> Result<TransferId, PipeError> {
        if let Some(transfer) = self.spare {
            return Ok(transfer);
        }
        let transfer = self.pipes.add_transfer(0)?;
        self.roles.resize(self.roles.len().max(transfer.0 + 1), Role::Spare);
        self.roles[transfer.0] = Role::Spare;
        self.spare = Some(transfer);
        Ok(transfer)
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
