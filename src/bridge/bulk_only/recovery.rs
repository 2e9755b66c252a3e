//! Error recovery of Bulk-Only.

use std::time::Duration;

use tracing::info;

use super::{BulkOnly, CommandDeadline};
use crate::bridge::error::{TransportError, TransportErrorKind};
use crate::bridge::pipes::{Endpoint, PipeError, Pipes};
use crate::scsi::{Cdb, Command};

/// Time limit of the class reset, a control request without data.
const RESET_TIMEOUT: Duration = Duration::from_secs(2);

impl<P: Pipes> BulkOnly<P> {
    /// Does a reset recovery (BOT 5.3.4): the class reset, then clears both halts. Resets the port if the unit does not
    /// accept that, or if the system does not return the transfers.
    ///
    /// Cancels the command's transfers first. A transfer still on a pipe would move when its halt is cleared, and data
    /// would arrive while the device waits for a wrapper.
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
        // Transfers that could not be cancelled before return with the reset.
        let reset = self.pipes.reset_port().and_then(|()| self.withdraw_all());
        reset.map_err(|error| TransportErrorKind::from(error).during(cdb))
    }

    /// Recovers from a pipe's error and returns the error to report. Does not recover a device that is gone, and
    /// reports one that leaves during recovery as gone.
    pub(super) fn failed(&mut self, cdb: &Cdb, error: PipeError, deadline: &CommandDeadline) -> TransportError {
        if error == PipeError::Disconnected {
            // The transfers return by themselves. The pipes keep those that don't.
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

    /// Recovers from an answer that violates the protocol, and returns the error to report.
    pub(super) fn broken(&mut self, cdb: &Cdb, what: String) -> TransportError {
        match self.reset_recovery(cdb) {
            Ok(()) => TransportErrorKind::Protocol(what).during(cdb),
            Err(unrecovered) => unrecovered,
        }
    }

    /// Does a reset recovery and checks it with a command. If that fails, resets the port and checks again.
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
