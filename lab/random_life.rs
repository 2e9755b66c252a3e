//! Random life: firmware on the chip model under a host that may do anything at any moment. The host sends commands of
//! all kinds and gives some up half-way, sends meaningless requests, resets, suspends and unplugs. See
//! docs/lab/reliability.md, "Random life".
//!
//!     cargo test --release --test random_life -- --instructions 1000000000 --seed 1
//!     cargo test --release --test random_life -- --image vendor --seed 1 --life 4711
//!
//! After each life the host recovers the unit by every means except a power cycle. If the unit stays dead, the program
//! prints seed, life and the shortest sequence of steps that leads there.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "its output is its result, and a panic is how it fails")]

#[path = "../tests/chip_images/mod.rs"]
mod chip_images;

mod random_life {
    mod host;
    mod judge;
    mod reduce;
    pub mod runner;
    mod steps;
}

fn main() -> std::process::ExitCode {
    random_life::runner::main()
}
