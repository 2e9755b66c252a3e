//! Release of devices when the process ends without unwinding, at a second Ctrl-C. Linux binds no driver to an
//! interface that a process leaves behind.
//!
//! The kernel lets any request claim a free interface, so a request after the release would take the device back from
//! the kernel's driver, and recovery would reset the port under it. A device's handle is therefore [`Gated`]: each
//! request passes a gate. The release closes the gate and waits until no request is inside. A closed gate lets no
//! request in: the device is gone for this process.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rusb::{Context, DeviceHandle};

use super::awake;
use super::gate::{Closed, GATE, Inside};
use super::power::SWITCHED_OFF;
use crate::bridge::PortPath;

/// Every open device with its claimed interface.
static OPEN: Mutex<Vec<(Weak<DeviceHandle<Context>>, u8)>> = Mutex::new(Vec::new());
/// Time that requests which have begun may still take. A submission takes microseconds, a port reset about a second.
/// It is less than a forced exit waits for the release.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(2);

/// A device's handle. Every request through it passes the gate.
#[derive(Debug)]
pub(super) struct Gated(Arc<DeviceHandle<Context>>);

/// A handle whose requests may go to the device: it is not released before this is dropped.
///
/// A thread must not hold two at once: if the gate closes in between, the second is refused.
pub(super) struct Admitted<'a> {
    handle: &'a DeviceHandle<Context>,
    _inside: Inside<'static>,
}

impl Gated {
    /// Claims an interface. If the process ends before the device is dropped, the interface goes back to the kernel's
    /// driver.
    pub(super) fn claim(handle: DeviceHandle<Context>, interface: u8) -> rusb::Result<Self> {
        let handle = Arc::new(handle);
        let _inside = GATE.enter()?;
        handle.claim_interface(interface)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(other, _)| other.strong_count() > 0);
        open.push((Arc::downgrade(&handle), interface));
        Ok(Self(handle))
    }

    /// Lets requests go to the device. Once the device is released, it is gone.
    pub(super) fn enter(&self) -> rusb::Result<Admitted<'_>> {
        Ok(Admitted { handle: &self.0, _inside: GATE.enter()? })
    }

    /// The handle, for what sends the device no request: its events, its memory, its address, cancelling transfers.
    pub(super) fn at_rest(&self) -> &DeviceHandle<Context> {
        &self.0
    }
}

impl Deref for Admitted<'_> {
    type Target = DeviceHandle<Context>;

    fn deref(&self) -> &Self::Target {
        self.handle
    }
}

/// Whether the devices are released. A transfer that fails then fails because of the release.
pub(super) fn is_released() -> bool {
    GATE.enter().is_err()
}

/// Stops the thread here if the process ends.
pub(super) fn stop_at_the_end() {
    drop(GATE.enter());
}

/// Releases what this process has taken from the kernel: every port that it switched off, every interface, and every
/// device that it keeps awake. For a handler that ends the process without unwinding, such as that of a second Ctrl-C.
///
/// Every device is gone for this process then: a request, also one in flight, ends with `Disconnected`, and opening one
/// with [`UsbError::Gone`](super::UsbError::Gone). A host controller that hangs can make this hang, so give it a time
/// limit, and then ask for [`ports_left_off`].
pub fn release_all() {
    release(Closed::Refuses);
}

/// As [`release_all`], but a thread that uses a device stops there until the process ends. So no thread reports an
/// error that the release has caused.
pub fn release_all_and_stop() {
    release(Closed::Keeps);
}

fn release(closed: Closed) {
    GATE.close(REQUESTS_TIMEOUT, closed);
    // First: without power the unit is gone, whatever else is released.
    SWITCHED_OFF.give_all_back();
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for (handle, interface) in open {
        // The process ends, so there is nobody to report an error to.
        let _ = handle.upgrade().map(|handle| handle.release_interface(interface));
    }
    awake::give_all_back();
}

/// The hub ports that this process has switched off and not on again.
pub fn ports_left_off() -> Vec<PortPath> {
    SWITCHED_OFF.left()
}
