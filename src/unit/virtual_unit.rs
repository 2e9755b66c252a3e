//! Selects and opens a virtual unit, in the folder that `--device virtual:DIR` names.

use std::path::PathBuf;

use asm2464::TransportKind;
use asm2464::firmware::BULK_ONLY_CLASS;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{AnyTransport, UnitInfo, Watch};
use asm2464_host::usb::DescriptorFault;
use etcetera::BaseStrategy;

use super::error::ConnectError;

/// Returns the port of the unit in `dir`; without `dir`, of the unit in the user's data folder.
///
/// # Errors
/// [`ConnectError::Virtual`], [`ConnectError::NoDataFolder`].
pub(super) fn port(dir: Option<PathBuf>, watch: Watch) -> Result<VirtualPort, ConnectError> {
    let mut port = VirtualPort::open_dir(&folder(dir)?)?;
    port.watch(watch);
    Ok(port)
}

/// Selects the powered unit in `dir`.
///
/// # Errors
/// As for [`port`]; [`ConnectError::Unopened`].
pub(super) fn choose(dir: Option<PathBuf>, watch: Watch) -> Result<(UnitInfo, VirtualPort), ConnectError> {
    let mut port = VirtualPort::open_dir(&folder(dir)?)?;
    // Only a unit on the bus has a transport, and descriptors that can be read.
    port.transport()?;
    port.watch(watch);
    Ok((port.info(), port))
}

/// Opens the unit: over UAS if it offers it, unless Bulk-Only is requested.
///
/// # Errors
/// [`ConnectError::NoUas`] if UAS is requested in the boot loader; [`ConnectError::Unopened`].
pub(super) fn open(
    port: &mut VirtualPort,
    info: &UnitInfo,
    wanted: Option<TransportKind>,
) -> Result<AnyTransport, ConnectError> {
    let bulk_only = port.transport()?;
    let streams = if wanted == Some(TransportKind::BulkOnly) { None } else { port.uas()? };
    match streams {
        Some(streams) => Ok(streams),
        None if wanted.is_some_and(TransportKind::is_uas) => {
            let fault = DescriptorFault::NoClass("UAS (8/6/62)", BULK_ONLY_CLASS);
            Err(ConnectError::NoUas { location: info.location.clone(), fault })
        }
        None => Ok(bulk_only),
    }
}

fn folder(dir: Option<PathBuf>) -> Result<PathBuf, ConnectError> {
    if let Some(dir) = dir {
        return Ok(dir);
    }
    let strategy = etcetera::choose_base_strategy().map_err(|error| ConnectError::NoDataFolder(error.to_string()))?;
    Ok(strategy.data_dir().join("asmpatch").join("virtual-bridge"))
}
