//! Ctrl-C and every other signal: the process's flag, and what ends the process.

use std::io;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;

use crate::cli::words::{print, terminal};

/// The exit status after a second Ctrl-C: 128 plus SIGINT's number, as in shells.
const INTERRUPTED: i32 = 130;
/// How long the process lives on after a second Ctrl-C: a hanging host controller must not keep it alive.
const GRACE: Duration = Duration::from_secs(3);
/// The part of it that may pass until the devices are released: the message afterwards needs time, too.
const RELEASE: Duration = Duration::from_millis(2500);

/// Interval between looks for signals if the pipe that announces them fails.
#[cfg(unix)]
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What is said of units that are being written: by whoever writes them.
#[derive(Debug)]
pub struct Writing {
    /// Whether a unit is being written.
    pub is_under_way: fn() -> bool,
    /// Says what the first Ctrl-C does to it.
    pub tell_how_to_stop: fn(),
    /// Says how it stands as the process ends.
    pub tell: fn(),
}

static WRITING: OnceLock<Writing> = OnceLock::new();

/// Says from now on how units stand that are being written.
pub fn ask_of(writing: Writing) {
    // The same each time.
    let _ = WRITING.set(writing);
}

/// Makes Ctrl-C set the process's flag, and returns a view of it. So do SIGTERM, SIGHUP and SIGQUIT. The second of
/// these ends the process within 3 s with status 130, in case an operation does not reach its next safe point. A run
/// that has printed its JSON document and holds no unit ends with its own status. Every other signal that can be caught
/// is ignored, except for those that a fault in the program causes: docs/recovery.md, "Ctrl-C".
///
/// Only commands that run long install it: other commands end at the first signal.
pub fn install() -> Interrupt<'static> {
    static INSTALLED: Once = Once::new();
    // If no handler can be set, a signal ends the process at once, as it would anyway.
    INSTALLED.call_once(|| drop(watch()));
    Interrupt::of_process()
}

#[cfg(unix)]
fn watch() -> io::Result<()> {
    use signal_hook::consts::signal::*;
    use signal_hook::iterator::backend::SignalDelivery;
    use signal_hook::iterator::exfiltrator::SignalOnly;
    use signal_hook::{flag, low_level};

    const STOPPING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
    /// Signals of a fault in the program, signals that nobody can catch, and those that stop a background job.
    const NOT_CAUGHT: [i32; 10] =
        [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGKILL, SIGSTOP, SIGTTIN, SIGTTOU];
    /// The highest signal's number anywhere, real-time signals included.
    const HIGHEST: i32 = 64;

    // Even where no thread can be started, the first Ctrl-C asks to stop, and no signal ends a write.
    for signal in STOPPING {
        flag::register(signal, asm2464::interrupt::process_flag())?;
    }
    let (read, write) = UnixStream::pair()?;
    let mut signals = SignalDelivery::with_pipe(read, write, SignalOnly, STOPPING)?;
    let handle = signals.handle();
    for signal in (1..=HIGHEST).filter(|signal| !NOT_CAUGHT.contains(signal)) {
        // Some numbers are not signals, or are the C library's own.
        let _ = handle.add_signal(signal);
    }
    // `Signals`, which does the same, panics if its pipe fails.
    let watch = move || {
        loop {
            await_wake(signals.get_read_mut());
            for signal in signals.pending() {
                match signal {
                    // Never while a unit is being written.
                    SIGTSTP if !WRITING.get().is_some_and(|writing| (writing.is_under_way)()) => {
                        let _ = low_level::emulate_default_handler(SIGTSTP);
                    }
                    stopping if STOPPING.contains(&stopping) => on_stop(),
                    _ => {}
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}

/// Waits until a signal's handler has written to the pipe. If the pipe fails, it returns after a moment, so that signals
/// are looked for all the same.
#[cfg(unix)]
fn await_wake(pipe: &mut impl io::Read) {
    match pipe.read(&mut [0]) {
        Ok(1..) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Ok(0) | Err(_) => thread::sleep(LOOK_AGAIN),
    }
}

#[cfg(windows)]
fn watch() -> io::Result<()> {
    let stop = || {
        asm2464::interrupt::request();
        on_stop();
    };
    ctrlc::set_handler(stop).map_err(io::Error::other)
}

/// What follows the first Ctrl-C and the second, once the flag is set.
fn on_stop() {
    static HAS_STOPPED: AtomicBool = AtomicBool::new(false);
    if !HAS_STOPPED.swap(true, Ordering::Relaxed) {
        aside(|| WRITING.get().into_iter().for_each(|writing| (writing.tell_how_to_stop)()));
        return;
    }
    let began = Instant::now();
    until(began + RELEASE, asm2464_host::usb::release_all_and_stop);
    until(began + GRACE, last_words);
    // Once the result is out, the run ends by itself, with the status that belongs to it. But a run that still holds a
    // unit can't give it back any more, and ends here.
    if print::has_json() {
        thread::sleep((began + GRACE).saturating_duration_since(Instant::now()));
    }
    std::process::exit(INTERRUPTED);
}

/// Says what a process that ends at a second Ctrl-C leaves behind.
fn last_words() {
    terminal::clear();
    if let Some(writing) = WRITING.get() {
        (writing.tell)();
    }
    for port in asm2464_host::usb::ports_left_off() {
        errln!(
            "the hub's port {port} is still without power: unplug the hub from the host and from its own supply, wait \
             five seconds, plug both in again"
        );
    }
}

/// Runs `work` on a separate thread, and waits for it until the deadline at most.
fn until(deadline: Instant, work: fn()) {
    let _ = aside(work).recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Runs `work` on a separate thread, so that a terminal that takes no text, or a panic, does not end the handler.
fn aside(work: fn()) -> Receiver<()> {
    let (done, ended) = mpsc::channel();
    let works = move || {
        work();
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(works).is_err() {
        work();
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_pipe_that_fails_only_delays_the_look_for_signals() {
        struct Fails(io::ErrorKind);

        impl io::Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
        }

        for (kind, waits) in [(io::ErrorKind::OutOfMemory, true), (io::ErrorKind::Interrupted, false)] {
            let began = Instant::now();
            await_wake(&mut Fails(kind));
            assert!(!waits || began.elapsed() >= LOOK_AGAIN, "{kind}: the thread must not spin");
        }
        let (mut pipe, other) = UnixStream::pair().unwrap();
        drop(other);
        let began = Instant::now();
        await_wake(&mut pipe);
        assert!(began.elapsed() >= LOOK_AGAIN, "the pipe is closed");
    }

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
