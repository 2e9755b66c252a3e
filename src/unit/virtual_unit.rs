//! A virtual bridge as a unit, in the folder that `--device virtual:DIR` names.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use super::error::OpenError;
use super::selector::TransportChoice;
use super::{OpenUnit, Unit};
use crate::bridge::{Bridge, Location, UnitInfo};
use crate::pcap::Capture;
use crate::usb::DescriptorFault;
use crate::virtual_bridge::{SharedBridge, VirtualPort};

/// Returns the port of the unit in `dir`; without `dir`, of the unit in the user's data folder.
///
/// # Errors
/// [`OpenError::Virtual`], [`OpenError::NoDataFolder`].
pub(super) fn port(dir: Option<PathBuf>, capture: Option<&Capture>) -> Result<VirtualPort, OpenError> {
    let mut port = VirtualPort::open_dir(&folder(dir)?)?;
    if let Some(capture) = capture {
        port.record(capture);
    }
    Ok(port)
}

/// A powered unit that is not opened yet.
pub(super) struct ChosenUnit {
    pub(super) info: UnitInfo,
    port: VirtualPort,
}

/// Selects the unit in `dir`.
///
/// # Errors
/// As for [`port`]; [`OpenError::Unopened`].
pub(super) fn choose(dir: Option<PathBuf>, capture: Option<&Capture>) -> Result<ChosenUnit, OpenError> {
    let dir = folder(dir)?;
    let mut port = VirtualPort::open_dir(&dir)?;
    // Only a unit on the bus has a transport, and descriptors that can be read.
    port.transport()?;
    if let Some(capture) = capture {
        port.record(capture);
    }
    Ok(ChosenUnit { info: told_by(port.unit(), dir), port })
}

impl ChosenUnit {
    /// Opens the unit: over UAS if it offers it, unless Bulk-Only is requested.
    ///
    /// # Errors
    /// [`OpenError::NoUas`] if UAS is requested in the boot loader; [`OpenError::Unopened`].
    pub(super) fn open(mut self, choice: TransportChoice) -> Result<Unit, OpenError> {
        let bulk_only = self.port.transport()?;
        let streams = match choice {
            TransportChoice::Bot => None,
            TransportChoice::Auto | TransportChoice::Uas => self.port.uas()?,
        };
        let transport = match (streams, choice) {
            (Some(streams), _) => streams,
            (None, TransportChoice::Uas) => {
                let fault = DescriptorFault::NoClass("UAS (8/6/62)", (0x08, 0x06, 0x50));
                return Err(OpenError::NoUas { location: self.info.location, fault });
            }
            (None, TransportChoice::Auto | TransportChoice::Bot) => bulk_only,
        };
        Ok(Unit { info: self.info, bridge: Bridge::new(transport) })
    }

    /// Opens the unit for the open firmware's control requests.
    ///
    /// # Errors
    /// [`OpenError::Unopened`].
    pub(super) fn open_control(mut self) -> Result<OpenUnit, OpenError> {
        let bridge = self.port.control()?;
        Ok(OpenUnit { info: self.info, bridge })
    }
}

fn told_by(unit: &SharedBridge, dir: PathBuf) -> UnitInfo {
    let unit = unit.lock();
    let descriptors = unit.descriptors();
    let identity = &descriptors.identity;
    UnitInfo {
        location: Location::Virtual(dir),
        id: identity.id,
        state: descriptors.state,
        manufacturer: identity.manufacturer.clone(),
        product: identity.product.clone(),
        serial: Some(identity.serial.clone()).filter(|serial| !serial.is_empty()),
        speed: descriptors.speed.into(),
        driver: None,
    }
}

fn folder(dir: Option<PathBuf>) -> Result<PathBuf, OpenError> {
    match dir {
        Some(dir) => Ok(dir),
        None => match etcetera::choose_base_strategy() {
            Ok(strategy) => Ok(strategy.data_dir().join("asmpatch").join("virtual-bridge")),
            Err(error) => Err(OpenError::NoDataFolder(error.to_string())),
        },
    }
}
