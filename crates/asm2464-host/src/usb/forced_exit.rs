//! Release of devices when the process ends without unwinding, at a second Ctrl-C. Linux binds no driver to an
//! interface that a process leaves behind.
//!
//! The kernel lets any request claim a free interface, so a request after the release would take the device back from
//! the kernel's driver, and recovery would reset the port under it. A device's handle is therefore [`Gated`]: each
//! request passes a gate. The release closes the gate and waits until no request is inside. A closed gate lets no
//! request in: the device is gone for this process.
//!
//! The gate is around every request to a device, and closes when the process ends without unwinding.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rusb::{Context, DeviceHandle};

use super::power::{self, SWITCHED_OFF};
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
    power::give_all_back();
}

/// The hub ports that this process has switched off and not on again.
pub fn ports_left_off() -> Vec<PortPath> {
    SWITCHED_OFF.left()
}

/// The gate around every request to a device.
pub(super) static GATE: Gate = Gate::new();

/// Counts the requests inside, and never opens again once it is closed.
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    inside: usize,
    closed: Option<Closed>,
}

/// What a closed gate does with a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// It refuses the request: the device is gone.
    Refuses,
    /// It blocks the request's thread until the process ends.
    Keeps,
}

/// A request inside the gate. It leaves when this is dropped.
pub(super) struct Inside<'a>(&'a Gate);

impl Gate {
    pub(super) const fn new() -> Self {
        Self { state: Mutex::new(GateState { inside: 0, closed: None }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters. Once the gate is closed, the device is gone.
    pub(super) fn enter(&self) -> rusb::Result<Inside<'_>> {
        let keeps = |state: &mut GateState| state.closed == Some(Closed::Keeps);
        let waited = self.changed.wait_while(self.lock(), keeps);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed.is_some() {
            return Err(rusb::Error::NoDevice);
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// Closes the gate, and waits until nobody is inside, but no longer than this.
    pub(super) fn close(&self, longest: Duration, closed: Closed) {
        let mut state = self.lock();
        state.closed = Some(closed);
        let is_used = |state: &mut GateState| state.inside > 0;
        drop(self.changed.wait_timeout_while(state, longest, is_used));
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside -= 1;
        // Only then: with no thread to wake, it would still be a system call for every transfer.
        if state.closed.is_some() {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn gate() -> &'static Gate {
        Box::leak(Box::new(Gate::new()))
    }

    #[test]
    fn once_the_gate_is_closed_no_request_begins_however_threads_race() {
        let (gate, requests) = (gate(), &*Box::leak(Box::new(AtomicUsize::new(0))));
        for _ in 0..4 {
            // They stay at the closed gate, as in a process that ends.
            thread::spawn(move || {
                loop {
                    let _inside = gate.enter().unwrap();
                    requests.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        while requests.load(Ordering::SeqCst) < 10_000 {
            thread::yield_now();
        }
        gate.close(Duration::from_secs(60), Closed::Keeps);
        let begun = requests.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(requests.load(Ordering::SeqCst), begun);
    }

    #[test]
    fn the_gate_closes_behind_a_request_that_has_begun_or_after_its_time() {
        let gate = gate();
        let inside = gate.enter().unwrap();
        let ended = &*Box::leak(Box::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            ended.store(1, Ordering::SeqCst);
            drop(inside);
        });
        gate.close(Duration::from_secs(60), Closed::Keeps);
        assert_eq!(ended.load(Ordering::SeqCst), 1);

        let gate = self::gate();
        let _hangs = gate.enter().unwrap();
        gate.close(Duration::from_millis(20), Closed::Keeps);
        assert!(gate.lock().closed.is_some());
    }

    #[test]
    fn a_request_after_the_release_reports_that_the_device_is_gone_and_never_waits() {
        let gate = gate();
        gate.close(Duration::from_secs(60), Closed::Refuses);
        let (result, answer) = std::sync::mpsc::channel();
        thread::spawn(move || result.send(gate.enter().map(drop)));
        let answer = answer.recv_timeout(Duration::from_secs(60)).expect("it waits");
        assert_eq!(answer.map_err(crate::usb::error::pipe_error), Err(crate::bridge::PipeError::Disconnected));
    }
}
