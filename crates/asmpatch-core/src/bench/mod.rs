//! Measures a bridge, after a check that it works correctly.
//!
//! [`run()`] measures the vendor's firmware and [`run_open`] the open one. Each finds out what is behind the bridge,
//! writes a pattern and reads it back, measures each path at each size and depth, and returns a [`BenchReport`].
//! Nothing here prints.

pub mod baseline;
mod beyond;
mod error;
pub mod integrity;
pub mod measure;
mod open;
mod path;
mod pattern;
mod predict;
mod report;
mod run;
mod tally;
mod tlp;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use error::BenchError;
pub use open::run_open;
pub use path::{Path, UnknownPath};
pub use pattern::Pattern;
pub use predict::{Limit, Prediction, ROUND_TRIP_US};
pub use report::{BenchReport, BenchUnit, Figures, Integrity, Outcome, Row, SCHEMA, Spread};
pub use run::{BenchEvent, BenchPlan, run};
