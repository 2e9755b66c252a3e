//! Opens a unit in its boot loader, which moves no bulk data as it comes up.
//!
//! It needs a port reset, about 3 s, SET_CONFIGURATION 1, alternate 0, and CLEAR_FEATURE(HALT) on both pipes. Source:
//! openpilot's flasher, in use on devices.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::device::Device;
use super::discovery::{Found, find_at};
use super::error::UsbError;
use crate::bridge::PortPath;
use crate::devices::Devices;

/// How long a unit that the reset has thrown off the bus may take to come back.
const RETURN: Duration = Duration::from_secs(5);
/// How often it is looked for.
const TICK: Duration = Duration::from_millis(100);

/// Opens the unit and makes its pipes ready. `is_reset` says that its port was reset since the unit came up.
///
/// # Errors
/// [`UsbError`].
pub(super) fn open(found: &Found, is_reset: bool) -> Result<Device, UsbError> {
    let alternate = found.bulk_only()?;
    let mut device = Device::open(found, alternate)?;
    if !is_reset && !device.reset_boot_loader()? {
        // The host could not tell that it is the same device, and enumerates it anew.
        drop(device);
        device = come_back(&found.port, &found.known)?;
    }
    device.configure()?;
    Ok(device)
}

/// The unit after it was enumerated anew. What passes while the system settles is tried again.
fn come_back(port: &PortPath, known: &Arc<Devices>) -> Result<Device, UsbError> {
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
