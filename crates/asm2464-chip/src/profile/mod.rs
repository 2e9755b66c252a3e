//! Measurements of firmware on the chip model, for firmware authors: a profile by function, line coverage.
//!
//! Each is an [`Observer`](crate::mcu::Observer) for [`Chip::run_observed`](crate::chip::Chip::run_observed), so that a
//! run without one costs nothing. An idle firmware is executed, and its main loop observed, until the chip model
//! notices that it idles.

mod calls;
mod coverage;
mod functions;

pub use coverage::Coverage;
pub use functions::{FunctionCost, Profile};
