//! Measures a bridge, after a check that it works correctly.
//!
//! [`run()`] measures the vendor's firmware and [`run_open`] the open one. Both find out what is behind the bridge,
//! write a pattern and read it back, measure each path at each size and depth, and return a [`BenchReport`].
//! Nothing here prints.

pub mod baseline;
mod beyond;
mod error;
mod event;
mod integrity;
pub mod measure;
mod open;
mod path;
mod pattern;
mod plan;
mod predict;
mod report;
mod run;
pub mod soak;
mod subject;
mod tally;
mod tlp;
mod vendor;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use error::BenchError;
pub use event::BenchEvent;
pub use open::run_open;
pub use path::{Path, UnknownPath};
pub use pattern::Pattern;
pub use plan::BenchPlan;
pub use predict::{Limit, Prediction, ROUND_TRIP_US};
pub use report::{BenchReport, BenchUnit, Figures, Integrity, Outcome, Row, SCHEMA, Skip, Spread};
pub use vendor::run;
