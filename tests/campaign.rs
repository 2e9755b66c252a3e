//! Runs random histories against real processes on virtual units: power loss, unplugging, wire faults, kill -9,
//! signals, lost terminals, full disks. See docs/reliability.md.
//!
//!     cargo test --test campaign -- --histories 10000 --seed 1
//!     cargo test --test campaign -- --seed 1 --only 4711
//!
//! `ASMPATCH_BIN` names a binary to use instead of cargo's test build, and `ASMPATCH_OPEN_NEW_IMAGE` the newest open
//! firmware. Without it the practice image's open sibling takes its place.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

#[cfg(target_os = "linux")]
mod schemas;

#[cfg(target_os = "linux")]
mod campaign {
    mod check;
    mod draw;
    mod feature;
    mod history;
    mod play;
    mod printed;
    mod process;
    pub mod runner;
    mod tally;
    mod watchdog;
    mod world;
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    campaign::runner::main()
}

// Signals, terminals and full disks are those of Linux.
#[cfg(not(target_os = "linux"))]
fn main() {}
