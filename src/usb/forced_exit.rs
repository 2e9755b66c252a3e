//! A process that ends without unwinding, at a second Ctrl-C, gives its units back as well: Linux binds no driver to what
//! a process leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rusb::{Context, DeviceHandle};

use super::awake;
use crate::interrupt;

/// Every device that is open, with the interface that is claimed.
static OPEN: Mutex<Vec<(Weak<DeviceHandle<Context>>, u8)>> = Mutex::new(Vec::new());
static ENDING: AtomicBool = AtomicBool::new(false);

/// Claims an interface, and gives it back to the kernel's driver if the process ends before the device is dropped.
///
/// Registered and claimed under one lock: a process that ends waits for a claim that has begun, and gives it back; one
/// that has not begun stays away.
pub(super) fn claim(handle: &Arc<DeviceHandle<Context>>, interface: u8) -> rusb::Result<()> {
    interrupt::before_forced_exit(give_back_all);
    loop {
        stay_away_at_the_end();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // The end may have begun before the lock was had.
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

/// Keeps a thread that still wants something of a device from taking it back while the process ends: the kernel lets
/// any request claim an interface that is free, and recovery would reset the port under the kernel's driver.
pub(super) fn stay_away_at_the_end() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Whatever is in flight comes back with the release.
fn give_back_all() {
    ENDING.store(true, Ordering::SeqCst);
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for (handle, interface) in open {
        // The process ends: there is nobody left to tell.
        let _ = handle.upgrade().map(|handle| handle.release_interface(interface));
    }
    awake::give_all_back();
}
