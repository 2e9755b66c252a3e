//! Ctrl-C: a flag that long operations look at, so that each stops where it is safe.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// The message after the first Ctrl-C.
static FIRST: OnceLock<fn()> = OnceLock::new();
/// What a process that is ended by a second Ctrl-C still does.
static LAST: OnceLock<fn()> = OnceLock::new();

/// The exit status of a process that a second Ctrl-C ends: 128 and SIGINT's number, as shells have it.
const INTERRUPTED: i32 = 130;
/// How long that may take: a host controller that hangs must not keep the process.
const LAST_TIMEOUT: Duration = Duration::from_secs(3);

/// Stopped by Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Diagnostic)]
#[error("stopped by Ctrl-C")]
#[diagnostic(code(asmpatch::interrupted))]
pub struct Interrupted;

/// A view of the flag.
///
/// The library takes it as an argument, so that a program without a signal handler, or a test, can stop an operation
/// in the same way.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt<'a>(&'a AtomicBool);

impl<'a> Interrupt<'a> {
    /// Watches a flag of the caller's.
    pub const fn watching(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }

    /// Whether to stop.
    pub fn is_requested(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails when it is time to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(self) -> Result<(), Interrupted> {
        if self.is_requested() { Err(Interrupted) } else { Ok(()) }
    }
}

impl Interrupt<'static> {
    /// Watches the process's flag, which is only ever set where [`install`] was called: elsewhere Ctrl-C ends the process.
    pub fn of_process() -> Self {
        Self(&REQUESTED)
    }

    /// Never asks to stop.
    pub fn never() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }
}

/// Prints what the first Ctrl-C does, and that a second one would do harm. It runs on
/// a thread of its own, and the first that is said stays.
pub fn on_request(tell: fn()) {
    let _ = FIRST.set(tell);
}

/// Says what a second Ctrl-C still does before it ends the process, as nothing is unwound then. It runs on a thread of
/// its own, and the first that is said stays.
pub fn before_forced_exit(work: fn()) {
    let _ = LAST.set(work);
}

/// Makes Ctrl-C, SIGTERM and SIGHUP set the process's flag, and gives a view of it. The second one ends the process
/// at once with status 130, for an operation that does not come to its next safe place.
///
/// Only commands that run long install it: the others simply end at the first one.
pub fn install() -> Interrupt<'static> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // Where no handler can be set Ctrl-C ends the process at once, as it would without us.
        let _ = ctrlc::set_handler(|| {
            if REQUESTED.swap(true, Ordering::Relaxed) {
                if let Some(work) = LAST.get() {
                    aside(*work).join_within(LAST_TIMEOUT);
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

/// Work on a thread of its own, so that a terminal that takes no text, or a panic, does not end the handler.
struct Aside(Receiver<()>);

fn aside(work: fn()) -> Aside {
    let (done, ended) = mpsc::channel();
    // Without a thread the work is left out, and its end is not waited for.
    let _ = thread::Builder::new().spawn(move || {
        work();
        let _ = done.send(());
    });
    Aside(ended)
}

impl Aside {
    fn join_within(self, longest: Duration) {
        let _ = self.0.recv_timeout(longest);
    }
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
    }
}
