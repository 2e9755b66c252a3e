//! Random histories against real processes: power loss, unplugging, faults on the wire, kill -9, signals, lost
//! terminals, full disks, on virtual units. See docs/reliability.md.
//!
//!     cargo test --test campaign -- --histories 10000 --seed 1
//!     cargo test --test campaign -- --seed 1 --only 4711
//!
//! `ASMPATCH_BIN` names another binary than the one that cargo built for the tests.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

#[cfg(unix)]
mod check;
#[cfg(unix)]
mod draw;
#[cfg(unix)]
mod history;
#[cfg(unix)]
mod play;
#[cfg(unix)]
mod process;
#[cfg(unix)]
#[path = "../schemas/mod.rs"]
mod schemas;
#[cfg(unix)]
mod tally;
#[cfg(unix)]
mod told;
#[cfg(unix)]
mod watchdog;
#[cfg(unix)]
mod world;

#[cfg(unix)]
mod campaign;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    campaign::main()
}

// Signals, terminals and full disks are Unix's here.
#[cfg(not(unix))]
fn main() {}
