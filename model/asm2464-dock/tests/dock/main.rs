//! Tests of the code that drives a unit, on a unit in software.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod pcie;
mod register_flash;
mod uas;
