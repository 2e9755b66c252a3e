//! Opens a unit for Bulk-Only, also in its boot loader, which moves no bulk data at first.
//!
//! The boot loader needs a port reset, about 3 s, SET_CONFIGURATION 1, alternate 0, and CLEAR_FEATURE(HALT) on both
//! pipes. Source: openpilot's flasher, in use on devices.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;

use super::device::Device;
use super::discovery::{Found, find_at};
use super::error::UsbError;
use super::known_units::KnownUnits;
use crate::bridge::PortPath;

/// Time that a unit may take to come back after the reset has thrown it off the bus.
const RETURN: Duration = Duration::from_secs(5);
/// Interval between looks for the unit.
const TICK: Duration = Duration::from_millis(100);

/// Opens the unit and prepares its pipes. `is_reset` is `true` if a boot loader's port was reset since the unit came
/// up.
///
/// # Errors
/// [`UsbError`].
pub(super) fn open(found: &Found, is_reset: bool) -> Result<Device, UsbError> {
    let mut device = Device::open(found, found.bulk_only()?)?;
    if found.info.state != BridgeState::BootLoader {
        return Ok(device);
    }
    if !is_reset && !device.reset_boot_loader()? {
        // The host could not tell that it is the same device, and enumerates it again.
        drop(device);
        device = come_back(&found.port, &found.known)?;
    }
    device.configure()?;
    Ok(device)
}

/// Opens the unit after a new enumeration. Retries while the system settles.
fn come_back(port: &PortPath, known: &Arc<KnownUnits>) -> Result<Device, UsbError> {
    let until = Instant::now() + RETURN;
    loop {
        let opened = match find_at(port, known)? {
            Some(found) => found.bulk_only().and_then(|alternate| Device::open(&found, alternate)),
            None => Err(UsbError::Gone { port: port.clone() }),
        };
        match opened {
            Err(UsbError::Gone { .. } | UsbError::Busy { .. } | UsbError::Permission { .. })
                if Instant::now() < until =>
            {
                thread::sleep(TICK);
            }
            other => return other,
        }
    }
}
