//! Ctrl-C: a flag that long operations check, so that each stops at a safe point.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use crate::pcie::Patience;

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Prints the message after the first Ctrl-C.
static FIRST: OnceLock<fn()> = OnceLock::new();
/// Runs before a second Ctrl-C ends the process.
static LAST: OnceLock<fn()> = OnceLock::new();

/// The exit status after a second Ctrl-C: 128 plus SIGINT's number, as in shells.
const INTERRUPTED: i32 = 130;
/// How long [`LAST`] may take: a hanging host controller must not keep the process alive.
const LAST_TIMEOUT: Duration = Duration::from_secs(3);

/// The error of an operation that Ctrl-C stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Diagnostic)]
#[error("stopped by Ctrl-C")]
#[diagnostic(code(asmpatch::interrupted))]
pub struct Interrupted;

/// A view of the flag.
///
/// The library takes it as an argument, so that a program without a signal handler, or a test, can stop an operation in
/// the same way.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt<'a>(&'a AtomicBool);

impl<'a> Interrupt<'a> {
    /// Watches a flag of the caller's own.
    pub const fn watching(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }

    /// Whether this view can ask to stop at all: it is not [`Interrupt::never`].
    pub fn can_ask(self) -> bool {
        !std::ptr::eq(self.0, Interrupt::never().0)
    }

    /// Whether to stop.
    pub fn is_requested(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error if it is time to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(self) -> Result<(), Interrupted> {
        if self.is_requested() { Err(Interrupted) } else { Ok(()) }
    }
}

impl Interrupt<'static> {
    /// Watches the process's flag, which is only set after [`install`] was called: without it, Ctrl-C ends the process.
    pub fn of_process() -> Self {
        Self(&REQUESTED)
    }

    /// Returns a view that never asks to stop.
    pub fn never() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }
}

/// Work on PCIe waits for a device by the clock, until Ctrl-C.
impl Patience for Interrupt<'_> {
    fn wait(&mut self, milliseconds: u64) {
        thread::sleep(Duration::from_millis(milliseconds));
    }

    fn goes_on(&mut self) -> bool {
        !self.is_requested()
    }
}

/// Sets the function that reports the first Ctrl-C, and that a second one would do harm. It runs on a separate thread.
/// Later calls have no effect.
pub fn on_request(tell: fn()) {
    let _ = FIRST.set(tell);
}

/// Sets what runs after a second Ctrl-C, before the process ends without unwinding. It runs on a separate thread. Later
/// calls have no effect.
pub fn before_forced_exit(work: fn()) {
    let _ = LAST.set(work);
}

/// Makes Ctrl-C, SIGTERM and SIGHUP set the process's flag, and returns a view of it. The second one ends the process
/// at once with status 130, in case an operation does not reach its next safe point.
///
/// Only commands that run long install it: other commands end at the first Ctrl-C.
pub fn install() -> Interrupt<'static> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // If no handler can be set, Ctrl-C ends the process at once, as it would anyway.
        let _ = ctrlc::set_handler(|| {
            if REQUESTED.swap(true, Ordering::Relaxed) {
                if let Some(work) = LAST.get() {
                    let _ = aside(*work).recv_timeout(LAST_TIMEOUT);
                }
                std::process::exit(INTERRUPTED);
            }
            if let Some(tell) = FIRST.get() {
                aside(*tell);
            }
        });
    });
    Interrupt(&REQUESTED)
}

/// Works on a separate thread, so that a terminal that takes no text, or a panic, does not end the handler.
fn aside(work: fn()) -> Receiver<()> {
    let (done, ended) = mpsc::channel();
    // If the thread can't be started, the work is skipped and nobody waits for it.
    let _ = thread::Builder::new().spawn(move || {
        work();
        let _ = done.send(());
    });
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_asks_to_stop() {
        let flag = AtomicBool::new(false);
        let interrupt = Interrupt::watching(&flag);
        assert_eq!(interrupt.check(), Ok(()));
        flag.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.check(), Err(Interrupted));
        assert_eq!(Interrupt::never().check(), Ok(()));
        assert!(interrupt.can_ask() && Interrupt::of_process().can_ask() && !Interrupt::never().can_ask());
    }
}
