//! Ctrl-C: a flag that long operations check, so that each stops at a safe point.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use thiserror::Error;

/// The flag of the process.
static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The error of an operation that Ctrl-C stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("stopped by Ctrl-C")]
pub struct Interrupted;

crate::coded!(Interrupted => Interrupted "asm2464::interrupted");

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
    /// Watches the process's flag, which [`request`] sets.
    pub fn of_process() -> Self {
        Self(&REQUESTED)
    }

    /// Returns a view that never asks to stop.
    pub fn never() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }
}

/// Sets the process's flag.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// The process's flag itself, for a signal handler that sets it, such as that of `signal_hook::flag::register`.
pub fn process_flag() -> Arc<AtomicBool> {
    Arc::clone(&REQUESTED)
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
        assert!(interrupt.can_ask() && !Interrupt::never().can_ask());
    }
}
