//! Release of devices when the process ends without unwinding, at a second Ctrl-C. Linux binds no driver to an
//! interface that a process leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rusb::{Context, DeviceHandle};

use super::awake;

/// Every open device with its claimed interface.
static OPEN: Mutex<Vec<(Weak<DeviceHandle<Context>>, u8)>> = Mutex::new(Vec::new());
static ENDING: AtomicBool = AtomicBool::new(false);

/// Claims an interface. If the process ends before the device is dropped, the interface goes back to the kernel's
/// driver.
///
/// One lock covers registering and claiming. An ending process waits for a claim that has begun and releases it; a
/// claim that has not begun waits for the end.
pub(super) fn claim(handle: &Arc<DeviceHandle<Context>>, interface: u8) -> rusb::Result<()> {
    loop {
        stay_away_at_the_end();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // The process may have begun to end before the lock was taken.
        if ENDING.load(Ordering::SeqCst) {
            continue;
        }
        open.retain(|(other, _)| other.strong_count() > 0);
        open.push((Arc::downgrade(handle), interface));
        let claimed = handle.claim_interface(interface);
        if claimed.is_err() {
            open.pop();
        }
        return claimed;
    }
}

/// Stops a thread from taking a device back while the process ends. The kernel lets any request claim a free interface,
/// and recovery would reset the port under the kernel's driver.
pub(super) fn stay_away_at_the_end() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Releases what this process has taken from the kernel: every interface, and every device that it keeps awake. For a
/// handler that ends the process without unwinding, such as that of a second Ctrl-C; no device can be opened afterwards.
/// Transfers in flight return with the release. A hanging host controller can make this hang, so bound it by a time.
pub fn release_all() {
    ENDING.store(true, Ordering::SeqCst);
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for (handle, interface) in open {
        // The process ends, so there is nobody to report an error to.
        let _ = handle.upgrade().map(|handle| handle.release_interface(interface));
    }
    awake::give_all_back();
}
