//! A virtual unit that `--device` names: a port that stays while the unit comes and goes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind, TransportKind};
use asm2464_host::bridge::{
    AnyTransport, Bridge, BulkOnly, Location, Monitors, OpenBridge, Port, Uas, UnitInfo, Watched,
};
use tracing::info;

use super::descriptors::Descriptors;
use super::pipes::VirtualPipes;
use super::unit::{SharedUnit, VirtualUnit};

/// Interval between checks for an interrupt while the unit is away.
const TICK: Duration = Duration::from_millis(20);

/// A port with a virtual unit.
#[derive(Debug)]
pub struct VirtualPort {
    location: Location,
    unit: SharedUnit,
    /// Number of the attachment that was last opened. A later one means that the unit has come back.
    opened: u64,
    /// What watches the unit's transfers.
    monitors: Monitors,
}

impl VirtualPort {
    /// Opens the port of the unit in a folder, `virtual:DIR`.
    ///
    /// # Errors
    /// As for [`VirtualUnit::open`].
    pub fn open_dir(dir: &Path) -> Result<Self, Failure> {
        Ok(Self::new(dir, VirtualUnit::open(dir, None)?))
    }

    /// Creates a port with this unit. Messages call it `virtual:DIR`.
    pub fn new(dir: impl Into<PathBuf>, unit: VirtualUnit) -> Self {
        Self {
            location: Location::Virtual(dir.into()),
            unit: SharedUnit::new(unit),
            opened: 0,
            monitors: Monitors::default(),
        }
    }

    /// Watches the unit's transfers from its next opening on.
    pub fn watch(&mut self, monitors: Monitors) {
        self.monitors = monitors;
    }

    /// The unit.
    pub fn unit(&self) -> &SharedUnit {
        &self.unit
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

    /// Puts the port's monitors on the pipes.
    fn watched(&self, pipes: VirtualPipes) -> Watched<VirtualPipes> {
        let alternate = pipes.alternate();
        let info = self.described(self.unit.lock().descriptors());
        self.monitors.over(pipes, &info, alternate, || self.raw_descriptors())
    }

    fn raw_descriptors(&self) -> Option<Vec<u8>> {
        let unit = self.unit.lock();
        let descriptors = unit.descriptors();
        unit.is_attached().then(|| [&descriptors.device[..], &descriptors.configuration, &descriptors.bos].concat())
    }

    /// Claims the interface of the current attachment.
    fn claim(&mut self) -> Result<VirtualPipes, Failure> {
        let mut unit = self.unit.lock();
        unit.poll();
        if unit.is_attached() {
            unit.reset_by_host(0);
        }
        self.opened = unit.attachments();
        drop(unit);
        VirtualPipes::open(&self.unit).ok_or_else(|| self.absent())
    }

    /// The error if the unit is not on the bus: it has no power, has left, or its firmware does not enumerate.
    fn absent(&self) -> Failure {
        let message = format!("the virtual unit {} is not on the bus", self.location);
        if self.unit.lock().is_mute() {
            let label = Kind::Device.code("asm2464::virtual_unit::mute");
            return Failure::new(label, message + ": the firmware in its flash (flash.bin) does not enumerate");
        }
        Failure::new(Kind::Gone.code("asm2464::virtual_unit::absent"), message)
    }
}

impl Port for VirtualPort {
    fn location(&self) -> Location {
        self.location.clone()
    }

    fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
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

    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
        let uas = if wanted == Some(TransportKind::BulkOnly) { None } else { self.claim()?.with_uas() };
        // Transfers only use this process's memory, so an engine can't be made only if the unit has left.
        let transport: AnyTransport = match uas {
            Some(pipes) => Box::new(Uas::new(self.watched(pipes)).map_err(|_| self.absent())?),
            None if wanted.is_some_and(TransportKind::is_uas) => {
                let label = Kind::Device.code("asm2464::virtual_unit::no_uas");
                let message = format!("the virtual unit {} offers no UAS", self.location);
                return Err(Failure::new(label, message).into());
            }
            None => {
                let pipes = self.claim()?;
                Box::new(BulkOnly::new(self.watched(pipes)).map_err(|_| self.absent())?)
            }
        };
        let state = self.unit.lock().descriptors().state;
        info!("{}: opened over {} ({state})", self.location, transport.kind());
        Ok(Bridge::new(transport, state))
    }

    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
        let pipes = self.claim()?;
        let unit = self.unit.lock();
        let (state, speed) = (unit.descriptors().state, unit.descriptors().bus_speed());
        drop(unit);
        if state != BridgeState::OpenFirmware {
            let label = Kind::Device.code("asm2464::virtual_unit::other_protocol");
            let unit = &self.location;
            let message =
                format!("the virtual unit {unit} runs its {state}, which takes none of the open firmware's requests");
            return Err(Failure::new(label, message).into());
        }
        info!("{}: opened for control requests ({state})", self.location);
        Ok(OpenBridge::new(Box::new(self.watched(pipes)), speed))
    }

    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
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

    fn wait_for_return(
        &mut self,
        deadline: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<UnitInfo>, AnyFailure> {
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
