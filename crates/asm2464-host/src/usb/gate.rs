//! The gate around every request to a device, which closes when the process ends without unwinding: see
//! [`super::forced_exit`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
