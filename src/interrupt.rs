//! Ctrl-C: the process's flag and its signal handler.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use asm2464::interrupt::Interrupt;
use asm2464::interrupt::request;

/// Prints the message after the first Ctrl-C.
static FIRST: OnceLock<fn()> = OnceLock::new();

/// The exit status after a second Ctrl-C: 128 plus SIGINT's number, as in shells.
const INTERRUPTED: i32 = 130;
/// How long the release of devices may take: a hanging host controller must not keep the process alive.
const LAST_TIMEOUT: Duration = Duration::from_secs(3);

/// Sets the function that reports the first Ctrl-C, and that a second one would do harm. It runs on a separate thread.
/// Later calls have no effect.
pub fn on_request(tell: fn()) {
    let _ = FIRST.set(tell);
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
            if request() {
                let _ = aside(asm2464_host::usb::release_all).recv_timeout(LAST_TIMEOUT);
                let _ = aside(crate::cli::terminal::clear).recv_timeout(LAST_TIMEOUT);
                let _ = aside(crate::cli::tell_ports_left_off).recv_timeout(LAST_TIMEOUT);
                std::process::exit(INTERRUPTED);
            }
            if let Some(tell) = FIRST.get() {
                aside(*tell);
            }
        });
    });
    Interrupt::of_process()
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
