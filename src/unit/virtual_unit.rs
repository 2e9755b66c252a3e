//! A virtual bridge as a unit: in the folder that `--device virtual:DIR` names.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use super::Unit;
use super::error::OpenError;
use super::selector::TransportChoice;
use crate::bridge::{Bridge, Location, Speed, UnitInfo};
use crate::virtual_bridge::{LinkSpeed, VirtualPort};

/// The port of the unit in `dir`; without one, of the unit in the user's data folder.
///
/// # Errors
/// [`OpenError::Virtual`], [`OpenError::NoDataFolder`].
pub(super) fn port(dir: Option<PathBuf>) -> Result<VirtualPort, OpenError> {
    Ok(VirtualPort::open_dir(&folder(dir)?)?)
}

/// Opens the unit over Bulk-Only, which is what a unit in this process speaks.
///
/// # Errors
/// As [`port`]; [`OpenError::VirtualUas`]; [`OpenError::Absent`].
pub(super) fn open(dir: Option<PathBuf>, choice: TransportChoice) -> Result<Unit, OpenError> {
    if choice == TransportChoice::Uas {
        return Err(OpenError::VirtualUas);
    }
    let dir = folder(dir)?;
    let mut port = VirtualPort::open_dir(&dir)?;
    let transport = port.transport()?;
    let unit = port.unit().lock();
    let descriptors = unit.descriptors();
    let identity = &descriptors.identity;
    let info = UnitInfo {
        location: Location::Virtual(dir),
        id: identity.id,
        state: descriptors.state,
        manufacturer: identity.manufacturer.clone(),
        product: identity.product.clone(),
        serial: Some(identity.serial.clone()).filter(|serial| !serial.is_empty()),
        speed: match descriptors.speed {
            LinkSpeed::High => Speed::High,
            LinkSpeed::Super => Speed::Super,
        },
        driver: None,
    };
    drop(unit);
    Ok(Unit { info, bridge: Bridge::new(transport) })
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
