//! A port whose unit is a record.

use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{
    AnyTransport, Bridge, BulkOnly, Location, OpenBridge, Port, PortError, Timeouts, Uas, UnitInfo, Watch,
};
use thiserror::Error;
use tracing::info;

use super::Record;
use super::replay::{Replay, ReplayPipes};

/// Reasons a replay fails.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// A request is not in the record.
    #[error("{0}")]
    NotRecorded(String),
    /// The unit could not be opened when it was recorded.
    #[error("when {location} was recorded, the unit could not be opened: {code}")]
    Unopened {
        /// The record.
        location: Location,
        /// The code of the error.
        code: String,
    },
    /// The recorded unit runs firmware with another protocol.
    #[error("the unit of {location} runs its {state}, which is opened in another way")]
    OtherProtocol {
        /// The record.
        location: Location,
        /// The unit's state.
        state: BridgeState,
    },
}

asm2464::coded!(ReplayError {
    NotRecorded => BadInput "asm2464::replay::not_recorded",
    Unopened => Device "asm2464::replay::unopened",
    OtherProtocol => Device "asm2464::virtual_unit::other_protocol",
});

impl From<ReplayError> for PortError {
    fn from(error: ReplayError) -> Self {
        Self::new(error)
    }
}

/// A port with the unit of a record. Each opening replays the record's next one.
#[derive(Debug)]
pub struct ReplayPort {
    replay: Replay,
    watch: Watch,
}

impl ReplayPort {
    /// Creates a port with the unit of a record.
    pub fn new(record: Record) -> Self {
        Self { replay: Replay::new(record), watch: Watch::default() }
    }

    /// Watches the unit's transfers from its next opening on.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// What the unit reports about itself.
    pub fn info(&self) -> &UnitInfo {
        self.replay.record().unit()
    }

    /// Opens the unit over the transport of the record's next opening.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn transport(&mut self) -> Result<AnyTransport, ReplayError> {
        let UnitInfo { location, state, .. } = self.info();
        if *state == BridgeState::OpenFirmware {
            return Err(ReplayError::OtherProtocol { location: location.clone(), state: *state });
        }
        let alternate = self.next_alternate()?;
        let pipes = self.watch.over(ReplayPipes::new(&self.replay), self.info(), alternate, || self.raw());
        let no_memory = |error: asm2464_host::bridge::PipeError| ReplayError::NotRecorded(error.to_string());
        info!("{}: opened on alternate setting {alternate}", self.info().location);
        Ok(match alternate {
            0 => Box::new(BulkOnly::new(pipes).map_err(no_memory)?),
            _ => Box::new(Uas::new(pipes).map_err(no_memory)?),
        })
    }

    /// Opens the control requests of a unit that runs open firmware.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn control(&mut self) -> Result<OpenBridge, ReplayError> {
        let UnitInfo { location, state, speed, .. } = self.info();
        if *state != BridgeState::OpenFirmware {
            return Err(ReplayError::OtherProtocol { location: location.clone(), state: *state });
        }
        let alternate = self.next_alternate()?;
        let pipes = self.watch.over(ReplayPipes::new(&self.replay), self.info(), alternate, || self.raw());
        info!("{location}: opened for control requests");
        Ok(OpenBridge::new(Box::new(pipes), *speed))
    }

    /// The alternate setting of the record's next opening; 0 after the last one, where any request fails.
    fn next_alternate(&self) -> Result<u8, ReplayError> {
        self.check_record()?;
        match (self.replay.next_opening(), &self.replay.record().unopened) {
            (Some(opening), _) => Ok(opening.alternate),
            (None, Some(code)) => {
                Err(ReplayError::Unopened { location: self.info().location.clone(), code: code.clone() })
            }
            (None, None) => Ok(0),
        }
    }

    fn check_record(&self) -> Result<(), ReplayError> {
        self.replay.diverged().map_or(Ok(()), |why| Err(ReplayError::NotRecorded(why)))
    }

    fn raw(&self) -> Option<Vec<u8>> {
        Some(self.replay.record().descriptors().to_vec()).filter(|bytes| !bytes.is_empty())
    }
}

impl Port for ReplayPort {
    fn location(&self) -> Location {
        self.info().location.clone()
    }

    fn attached(&mut self) -> Result<UnitInfo, PortError> {
        Ok(self.info().clone())
    }

    fn descriptors(&mut self) -> Option<Vec<u8>> {
        self.raw()
    }

    fn open(&mut self) -> Result<Bridge<AnyTransport>, PortError> {
        let state = self.info().state;
        Ok(Bridge::with_timeouts(self.transport()?, Timeouts::of(state)))
    }

    fn open_control(&mut self) -> Result<OpenBridge, PortError> {
        Ok(self.control()?)
    }

    fn check(&self) -> Result<(), PortError> {
        Ok(self.check_record()?)
    }

    /// Returns `None`: a replayed unit does not return to the bus.
    fn wait_for_return(&mut self, _: Duration, _: Interrupt<'_>) -> Result<Option<UnitInfo>, PortError> {
        Ok(None)
    }
}
