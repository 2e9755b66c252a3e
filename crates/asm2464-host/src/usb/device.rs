//! An opened device: its kernel driver is detached and its interface claimed. Dropping it undoes both.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use tracing::info;

use super::awake::Awake;
use super::descriptors::INTERFACE;
use super::discovery::{Found, KnownUnits, find_at};
use super::docks::OtherChip;
use super::error::{OPEN, UsbError, pipe_error};
use super::forced_exit::{Gated, is_released};
use super::lock::UnitLock;
use crate::bridge::setup::set_configuration;
use crate::bridge::{Endpoint, PipeError, PortPath};

/// Time limit of a control request without data (USB 3.2, 9.2.6.4).
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the boot loader needs after a port reset. Source: openpilot's flasher.
const BOOT_LOADER_SETTLES: Duration = Duration::from_secs(3);

/// An opened bridge, on one alternate setting.
///
/// Dropping it, also by an unwinding panic, releases the interface and gives the unit back to its kernel driver. A
/// second Ctrl-C, which does not unwind, does the same.
#[derive(Debug)]
pub(super) struct ClaimedDevice {
    // Fields drop in order: dropping the handle releases the interface.
    pub(super) handle: Gated,
    pub(super) port: PortPath,
    pub(super) alternate: u8,
    alternates: usize,
    state: BridgeState,
    _awake: Awake,
    _lock: UnitLock,
}

impl ClaimedDevice {
    /// Opens a bridge on one of its alternate settings, and detaches the kernel's driver.
    ///
    /// # Errors
    /// [`UsbError`].
    pub(super) fn open(found: &Found, alternate: u8) -> Result<Self, UsbError> {
        match Self::try_open(found, alternate) {
            // The kernel may bind its driver to a unit that was just plugged in after the check and before the claim.
            Err(UsbError::Busy { users, lock: None, .. }) if users.is_empty() => Self::try_open(found, alternate),
            other => other,
        }
    }

    fn try_open(found: &Found, alternate: u8) -> Result<Self, UsbError> {
        let port = &found.port;
        if is_released() {
            return Err(UsbError::Gone { port: port.clone() });
        }
        if let Some(chip) = OtherChip::with(found.info.id) {
            return Err(UsbError::of_other_chip(port, chip));
        }
        let lock = UnitLock::take(port)?;
        let layout = found.layout()?;
        let handle = found.in_own_context()?.open().map_err(|source| found.failed(OPEN, source))?;
        let awake = Awake::of(port);
        // Only if a driver is bound: otherwise libusb would bind one on release.
        if handle.kernel_driver_active(INTERFACE).unwrap_or(false) {
            info!("{port}: taken from the kernel's driver");
            handle
                .set_auto_detach_kernel_driver(true)
                .map_err(|source| UsbError::of("detach the kernel driver of", port, source))?;
        }
        let handle = Gated::claim(handle, INTERFACE).map_err(|source| found.failed("claim", source))?;
        let (state, alternates) = (found.info.state, layout.alternates);
        let device = Self { handle, port: port.clone(), alternate, alternates, state, _awake: awake, _lock: lock };
        device.select_alternate()?;
        info!("{port}: interface claimed, alternate setting {alternate}");
        Ok(device)
    }

    /// The device's address on the bus.
    pub(super) fn address(&self) -> u8 {
        self.handle.at_rest().device().address()
    }

    /// Switches the device to another alternate setting.
    ///
    /// # Errors
    /// [`UsbError`].
    pub(super) fn on_alternate(mut self, alternate: u8) -> Result<Self, UsbError> {
        self.alternate = alternate;
        self.select_alternate()?;
        Ok(self)
    }

    /// Selects the alternate setting. A kernel driver may have left another one selected. A device with only one
    /// setting is not asked: the boot loader need not know the request.
    fn select_alternate(&self) -> Result<(), UsbError> {
        self.try_select_alternate()
            .map_err(|source| UsbError::of("choose the alternate setting of", &self.port, source))
    }

    fn try_select_alternate(&self) -> rusb::Result<()> {
        if self.alternates > 1 { self.handle.enter()?.set_alternate_setting(INTERFACE, self.alternate) } else { Ok(()) }
    }

    /// Resets the port of a unit in its boot loader, and waits until it is ready. Returns `false` if the unit is
    /// enumerated again and this device is unusable.
    pub(super) fn reset_boot_loader(&self) -> Result<bool, UsbError> {
        info!("{}: port reset of the boot loader, {} s to settle", self.port, BOOT_LOADER_SETTLES.as_secs());
        let outcome = self.handle.enter().and_then(|handle| handle.reset());
        thread::sleep(BOOT_LOADER_SETTLES);
        match outcome {
            Ok(()) => Ok(true),
            Err(rusb::Error::NotFound | rusb::Error::NoDevice) => Ok(false),
            Err(source) => Err(UsbError::of("reset the port of", &self.port, source)),
        }
    }

    /// Sends SET_CONFIGURATION 1, selects the alternate setting, and clears the halts of both Bulk-Only pipes.
    pub(super) fn configure(&self) -> Result<(), UsbError> {
        self.try_configure().map_err(|source| UsbError::of("configure", &self.port, source))
    }

    fn try_configure(&self) -> rusb::Result<()> {
        // Send the request directly: Linux refuses to set the configuration of a device whose interface is claimed.
        let handle = self.handle.enter()?;
        let [kind, request, value, ..] = set_configuration(1);
        handle.write_control(kind, request, value.into(), 0, &[], CONTROL_TIMEOUT)?;
        handle.set_alternate_setting(INTERFACE, self.alternate)?;
        for endpoint in [Endpoint::DataOut, Endpoint::DataIn] {
            handle.clear_halt(endpoint.address())?;
        }
        Ok(())
    }

    /// Resets the port and sets up the interface as before.
    pub(super) fn reset(&self) -> Result<(), PipeError> {
        self.handle.enter().and_then(|handle| handle.reset()).map_err(pipe_error)?;
        if self.state == BridgeState::BootLoader {
            thread::sleep(BOOT_LOADER_SETTLES);
            return self.try_configure().map_err(pipe_error);
        }
        self.try_select_alternate().map_err(pipe_error)
    }
}

/// Time that a unit may take to come back if it left the bus with the reset.
const RETURN: Duration = Duration::from_secs(5);
/// Interval between looks for the unit.
const TICK: Duration = Duration::from_millis(100);

/// Opens a unit for Bulk-Only, also in its boot loader, which moves no bulk data at first. `is_reset` is `true` if the
/// boot loader's port was reset since the unit came up.
///
/// The boot loader needs a port reset, about 3 s, SET_CONFIGURATION 1, alternate 0, and CLEAR_FEATURE(HALT) on both
/// pipes. Source: openpilot's flasher, in use on devices.
///
/// # Errors
/// [`UsbError`].
pub(super) fn open_bulk_only(found: &Found, is_reset: bool) -> Result<ClaimedDevice, UsbError> {
    let mut device = ClaimedDevice::open(found, found.bulk_only()?)?;
    if found.info.state != BridgeState::BootLoader {
        return Ok(device);
    }
    if !is_reset && !device.reset_boot_loader()? {
        // The host did not recognise the device, and enumerates it again.
        drop(device);
        device = come_back(&found.port, &found.known)?;
    }
    device.configure()?;
    Ok(device)
}

/// Opens the unit after a new enumeration. Retries while the system settles.
fn come_back(port: &PortPath, known: &Arc<KnownUnits>) -> Result<ClaimedDevice, UsbError> {
    let until = Instant::now() + RETURN;
    loop {
        let opened = match find_at(port, known)? {
            Some(found) => found.bulk_only().and_then(|alternate| ClaimedDevice::open(&found, alternate)),
            None => Err(UsbError::Gone { port: port.clone() }),
        };
        match opened {
            Err(error) if error.may_pass() && Instant::now() < until => thread::sleep(TICK),
            other => return other,
        }
    }
}
