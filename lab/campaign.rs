//! Runs random histories against real processes on virtual units: power loss, unplugging, wire faults, kill -9,
//! signals, lost terminals, full disks. See docs/lab/reliability.md.
//!
//!     cargo test --test campaign -- --histories 10000 --seed 1
//!     cargo test --test campaign -- --seed 1 --only 4711
//!
//! `ASMPATCH_BIN` names a binary to use instead of cargo's test build, and `ASMPATCH_OPEN_NEW_IMAGE` the newest open
//! firmware. Without it, the campaign uses the open variant of the practice image.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

#[cfg(target_os = "linux")]
#[path = "../tests/printed_lines/mod.rs"]
mod printed_lines;
#[cfg(target_os = "linux")]
#[path = "../tests/pty/mod.rs"]
mod pty;
#[cfg(target_os = "linux")]
#[path = "../tests/schemas/mod.rs"]
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

// The campaign makes its signals, terminals and full disks with Linux's interfaces.
#[cfg(not(target_os = "linux"))]
fn main() {}
