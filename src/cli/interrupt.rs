//! Ctrl-C: the process's flag and its signal handler.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::interrupt::request;

/// Prints the message after the first Ctrl-C.
static FIRST: OnceLock<fn()> = OnceLock::new();

/// The exit status after a second Ctrl-C: 128 plus SIGINT's number, as in shells.
const INTERRUPTED: i32 = 130;
/// How long the process lives on after a second Ctrl-C: a hanging host controller must not keep it alive.
const LAST: Duration = Duration::from_secs(3);
/// The part of it in which only the release of devices is waited for: what is said afterwards needs time, too.
const RELEASE: Duration = Duration::from_millis(2500);

/// Sets the function that reports the first Ctrl-C, and that a second one would do harm. It runs on a separate thread.
/// Later calls have no effect.
pub fn on_request(tell: fn()) {
    let _ = FIRST.set(tell);
}

/// Makes Ctrl-C, SIGTERM and SIGHUP set the process's flag, and returns a view of it. The second one ends the process
/// within 3 s with status 130, in case an operation does not reach its next safe point. A run that has printed its JSON
/// document and holds no unit ends with its own status.
///
/// Only commands that run long install it: other commands end at the first Ctrl-C.
pub fn install() -> Interrupt<'static> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // If no handler can be set, Ctrl-C ends the process at once, as it would anyway.
        let _ = ctrlc::set_handler(|| {
            if request() {
                let began = Instant::now();
                until(began + RELEASE, asm2464_host::usb::release_all);
                until(began + LAST, crate::cli::terminal::clear);
                until(began + LAST, crate::cli::tell_ports_left_off);
                // Once the result is out, the run ends by itself, with the status that belongs to it. But a run that still
                // holds a unit can't give it back any more, and ends here.
                if crate::cli::has_json() {
                    thread::sleep((began + LAST).saturating_duration_since(Instant::now()));
                }
                std::process::exit(INTERRUPTED);
            }
            if let Some(tell) = FIRST.get() {
                aside(*tell);
            }
        });
    });
    Interrupt::of_process()
}

/// Works on a separate thread, and waits for it until the deadline at most.
fn until(deadline: Instant, work: fn()) {
    let _ = aside(work).recv_timeout(deadline.saturating_duration_since(Instant::now()));
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
    fn works_that_hang_share_one_deadline_and_the_last_one_is_waited_for_too() {
        static DONE: OnceLock<()> = OnceLock::new();
        // On a busy machine any step may take seconds longer than its deadline.
        let hang: fn() = || thread::sleep(Duration::from_secs(3600));
        let began = Instant::now();
        until(began + Duration::from_millis(100), hang);
        until(began + Duration::from_secs(60), || {
            let _ = DONE.set(());
        });
        assert!(DONE.get().is_some());
        until(began + Duration::from_millis(400), hang);
        until(began + Duration::from_millis(400), hang);
        let elapsed = began.elapsed();
        assert!(elapsed >= Duration::from_millis(400) && elapsed < Duration::from_secs(600), "{elapsed:?}");
    }
}
