//! Measures what a bridge does, and first proves that it does it right.
//!
//! [`survey`](crate::bridge::survey) asks what sits behind the bridge, [`integrity`](integrity::check) writes a pattern and
//! reads it back, [`measure`](measure::measure) times one path at one size and depth, and [`run`] strings them into a
//! [`Report`]. Nothing here prints.

pub mod baseline;
mod error;
pub mod integrity;
pub mod measure;
mod path;
mod pattern;
mod report;
mod run;
mod survey;
pub mod svg;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use error::BenchError;
pub use path::{Path, UnknownPath};
pub use pattern::Pattern;
pub use report::{Figures, Integrity, Outcome, Report, Row, SCHEMA, Spread, Unit};
pub use run::{Plan, Progress, run};
pub use survey::runs_firmware;
