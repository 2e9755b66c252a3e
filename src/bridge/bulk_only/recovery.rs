//! What Bulk-Only does when a command goes wrong.

use std::time::Duration;

use tracing::info;

use super::{BulkOnly, Deadline};
use crate::bridge::error::{TransportError, TransportErrorKind};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes};
use crate::scsi::{Cdb, Command};

/// How long the class reset may take. It is a control request without data.
const RESET_TIMEOUT: Duration = Duration::from_secs(2);

impl<P: Pipes> BulkOnly<P> {
    /// Reset recovery (BOT 5.3.4): the class reset, then both halts cleared. Where the unit does not take that, or the
    /// system does not give the transfers back, the port is reset.
    ///
    /// The command's transfers are taken back first: what is still on a pipe would move when its halt is cleared, and
    /// data would arrive where the device waits for a wrapper.
    pub(super) fn reset_recovery(&mut self, cdb: &Cdb) -> Result<(), TransportError> {
        info!("{}: reset recovery: Bulk-Only reset, both pipes' halts cleared", cdb.name());
        let by_class = self
            .withdraw_all()
            .and_then(|()| self.pipes.mass_storage_reset(RESET_TIMEOUT))
            .and_then(|()| self.pipes.clear_halt(Endpoint::DataIn))
            .and_then(|()| self.pipes.clear_halt(Endpoint::DataOut));
        match by_class {
            Ok(()) => Ok(()),
            Err(PipeError::Disconnected) => Err(TransportErrorKind::Disconnected.during(cdb)),
            Err(_) => self.reset_port(cdb),
        }
    }

    fn reset_port(&mut self, cdb: &Cdb) -> Result<(), TransportError> {
        info!("{}: port reset", cdb.name());
        // What could not be taken back before comes back with the reset.
        let reset = self.pipes.reset_port().and_then(|()| self.withdraw_all());
        reset.map_err(|error| TransportErrorKind::from(error).during(cdb))
    }

    /// Recovers from a pipe's error and gives what the caller is to report. A device that is gone is not recovered,
    /// and one that goes during recovery is reported as gone.
    pub(super) fn failed(&mut self, cdb: &Cdb, error: PipeError, deadline: &Deadline) -> TransportError {
        if error == PipeError::Disconnected {
            // They come back by themselves; what does not is the pipes' to keep.
            let _ = self.withdraw_all();
            return TransportErrorKind::Disconnected.during(cdb);
        }
        if let Err(unrecovered) = self.reset_recovery(cdb) {
            return unrecovered;
        }
        let kind = match error {
            PipeError::Timeout => TransportErrorKind::Timeout { deadline: deadline.whole },
            other => other.into(),
        };
        kind.during(cdb)
    }

    /// The same for an answer that the protocol does not allow.
    pub(super) fn broken(&mut self, cdb: &Cdb, what: String) -> TransportError {
        match self.reset_recovery(cdb) {
            Ok(()) => TransportErrorKind::Protocol(what).during(cdb),
            Err(unrecovered) => unrecovered,
        }
    }

    /// Reset recovery, proven by a command; then the port, proven again.
    pub(super) fn bring_back(&mut self) -> Result<(), TransportError> {
        let cdb = Command::TestUnitReady.cdb();
        self.reset_recovery(&cdb)?;
        match self.probe() {
            Ok(()) => Ok(()),
            Err(gone) if gone.is_gone() => Err(gone),
            Err(_) => {
                self.reset_port(&cdb)?;
                self.probe()
            }
        }
    }
}
