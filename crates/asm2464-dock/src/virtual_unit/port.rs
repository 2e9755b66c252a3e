//! A virtual unit that `--device` names: a port that stays while the unit comes and goes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use asm2464::TransportKind;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{
    AnyTransport, Bridge, BulkOnly, Location, OpenBridge, Port, PortError, Timeouts, Transport as _, Uas, UnitInfo,
    Watch, Watched,
};
use thiserror::Error;
use tracing::info;

use super::descriptors::Descriptors;
use super::folder::VirtualOpenError;
use super::pipes::VirtualPipes;
use super::unit::{SharedUnit, VirtualUnit};

/// Interval between checks for an interrupt while the unit is away.
const TICK: Duration = Duration::from_millis(20);

/// Reasons a virtual unit was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unopened {
    /// The unit has no power, or has left the bus.
    #[error("the virtual unit {location} is not on the bus")]
    Absent {
        /// The unit.
        location: Location,
    },
    /// The firmware in the unit's flash does not enumerate.
    #[error("the virtual unit {location} is not on the bus: the firmware in its flash (flash.bin) does not enumerate")]
    Mute {
        /// The unit.
        location: Location,
    },
    /// UAS was requested of a unit in its boot loader, which has only Bulk-Only.
    #[error("the virtual unit {location} offers no UAS")]
    NoUas {
        /// The unit.
        location: Location,
    },
    /// The unit's firmware speaks another protocol.
    #[error("the virtual unit {location} runs its {state}, which takes none of the open firmware's requests")]
    OtherProtocol {
        /// The unit.
        location: Location,
        /// The unit's state.
        state: BridgeState,
    },
}

asm2464::coded!(Unopened {
    Absent => Gone "asm2464::virtual_unit::absent",
    Mute => Device "asm2464::virtual_unit::mute",
    NoUas => Device "asm2464::virtual_unit::no_uas",
    OtherProtocol => Device "asm2464::virtual_unit::other_protocol",
});

/// A port with a virtual unit.
#[derive(Debug)]
pub struct VirtualPort {
    location: Location,
    unit: SharedUnit,
    /// Number of the attachment that was last opened. A later one means that the unit has come back.
    opened: u64,
    /// What watches the unit's transfers.
    watch: Watch,
}

impl VirtualPort {
    /// Opens the port of the unit in a folder, `virtual:DIR`.
    ///
    /// # Errors
    /// [`VirtualOpenError`].
    pub fn open_dir(dir: &Path) -> Result<Self, VirtualOpenError> {
        Ok(Self::new(dir, VirtualUnit::open(dir, None)?))
    }

    /// Creates a port with this unit. Messages call it `virtual:DIR`.
    pub fn new(dir: impl Into<PathBuf>, unit: VirtualUnit) -> Self {
        Self {
            location: Location::Virtual(dir.into()),
            unit: SharedUnit::new(unit),
            opened: 0,
            watch: Watch::default(),
        }
    }

    /// Watches the unit's transfers from its next opening on.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// The unit.
    pub fn unit(&self) -> &SharedUnit {
        &self.unit
    }

    /// Opens Bulk-Only over the pipes of the current attachment.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn transport(&mut self) -> Result<AnyTransport, Unopened> {
        let pipes = self.claim()?;
        match BulkOnly::new(self.watched(pipes)) {
            Ok(engine) => Ok(Box::new(engine)),
            // Transfers only use this process's memory, so this fails only if the unit has left.
            Err(_) => Err(self.absent()),
        }
    }

    /// Opens UAS over the streams of the current attachment; `None` in the boot loader, which has only Bulk-Only.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn uas(&mut self) -> Result<Option<AnyTransport>, Unopened> {
        let pipes = self.claim()?.with_uas().ok();
        let uas = pipes.and_then(|pipes| Uas::new(self.watched(pipes)).ok());
        Ok(uas.map(|uas| Box::new(uas) as AnyTransport))
    }

    /// Opens the control requests of a unit that runs open firmware.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn control(&mut self) -> Result<OpenBridge, Unopened> {
        let pipes = self.claim()?;
        let unit = self.unit.lock();
        let (state, speed) = (unit.descriptors().state, unit.descriptors().bus_speed());
        if state != BridgeState::OpenFirmware {
            return Err(Unopened::OtherProtocol { location: self.location.clone(), state });
        }
        drop(unit);
        Ok(OpenBridge::new(Box::new(self.watched(pipes)), speed))
    }

    /// What the unit reports about itself.
    pub fn info(&self) -> UnitInfo {
        self.described(self.unit.lock().descriptors())
    }

    fn described(&self, descriptors: &Descriptors) -> UnitInfo {
        let identity = &descriptors.identity;
        UnitInfo {
            location: self.location.clone(),
            id: identity.id,
            state: descriptors.state,
            manufacturer: identity.manufacturer.clone(),
            product: identity.product.clone(),
            serial: Some(identity.serial.clone()).filter(|serial| !serial.is_empty()),
            speed: descriptors.bus_speed(),
            driver: None,
        }
    }

    /// Attaches the port's watch to the pipes.
    fn watched(&self, pipes: VirtualPipes) -> Watched<VirtualPipes> {
        let alternate = pipes.alternate();
        self.watch.over(pipes, &self.info(), alternate, || self.raw_descriptors())
    }

    fn raw_descriptors(&self) -> Option<Vec<u8>> {
        let unit = self.unit.lock();
        let descriptors = unit.descriptors();
        unit.is_attached().then(|| [&descriptors.device[..], &descriptors.configuration, &descriptors.bos].concat())
    }

    /// Claims the interface of the current attachment.
    fn claim(&mut self) -> Result<VirtualPipes, Unopened> {
        let mut unit = self.unit.lock();
        unit.poll();
        if unit.is_attached() {
            // Alternate 0 always exists.
            let _ = unit.reset_by_host(0);
        }
        self.opened = unit.attachments();
        drop(unit);
        VirtualPipes::open(&self.unit).ok_or_else(|| self.absent())
    }

    fn absent(&self) -> Unopened {
        let location = self.location.clone();
        if self.unit.lock().is_mute() { Unopened::Mute { location } } else { Unopened::Absent { location } }
    }
}

impl From<Unopened> for PortError {
    fn from(error: Unopened) -> Self {
        Self::new(error)
    }
}

impl Port for VirtualPort {
    fn location(&self) -> Location {
        self.location.clone()
    }

    fn attached(&mut self) -> Result<UnitInfo, PortError> {
        let mut unit = self.unit.lock();
        unit.poll();
        if !unit.is_attached() {
            drop(unit);
            return Err(self.absent().into());
        }
        Ok(self.described(unit.descriptors()))
    }

    fn descriptors(&mut self) -> Option<Vec<u8>> {
        self.raw_descriptors()
    }

    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge<AnyTransport>, PortError> {
        let bulk_only = self.transport()?;
        let uas = if wanted == Some(TransportKind::BulkOnly) { None } else { self.uas()? };
        let transport = match uas {
            Some(uas) => uas,
            None if wanted.is_some_and(TransportKind::is_uas) => {
                return Err(Unopened::NoUas { location: self.location.clone() }.into());
            }
            None => bulk_only,
        };
        let state = self.unit.lock().descriptors().state;
        info!("{}: opened over {} ({state})", self.location, transport.kind());
        Ok(Bridge::with_timeouts(transport, Timeouts::of(state)))
    }

    fn open_control(&mut self) -> Result<OpenBridge, PortError> {
        let bridge = self.control()?;
        info!("{}: opened for control requests ({})", self.location, BridgeState::OpenFirmware);
        Ok(bridge)
    }

    fn power_cycle(&mut self) -> Result<bool, PortError> {
        let mut unit = self.unit.lock();
        let switches = unit.scenario().port_power;
        if switches {
            unit.replug();
            let off_for = unit.wake_in().unwrap_or_default();
            drop(unit);
            std::thread::sleep(off_for);
        }
        Ok(switches)
    }

    fn wait_for_return(&mut self, deadline: Duration, interrupt: Interrupt<'_>) -> Result<Option<UnitInfo>, PortError> {
        let until = asm2464_host::bridge::deadline(deadline);
        loop {
            let mut unit = self.unit.lock();
            let wait = unit.wake_in();
            unit.poll();
            let is_back = unit.is_attached() && unit.attachments() > self.opened;
            drop(unit);
            if is_back {
                let attached = self.attached()?;
                info!("{}: {} is attached ({})", self.location, attached.id, attached.state);
                return Ok(Some(attached));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || interrupt.is_requested() {
                return Ok(None);
            }
            std::thread::sleep(wait.unwrap_or(TICK).min(TICK).min(left));
        }
    }
}
