//! Measures a bridge, after a check that it works correctly.
//!
//! [`run()`] finds out what is behind the bridge, writes a pattern and reads it back, measures each path at each size
//! and depth, and returns a [`BenchReport`]. Nothing here prints.
//!
//! It measures a `Bridge`, which runs the vendor's firmware, or an `OpenBridge`. If [`BenchEvent::Initialising`] was
//! reported, the vendor's firmware is initialised as by a GPU runtime when the bench ends, successfully or not. On open
//! firmware, if the plan writes or a GPU has to complete reads, PCIe's power is switched on, and missing bus numbers
//! and BAR addresses are assigned; these changes stay. The contents of a GPU's memory are restored, also after an error
//! or Ctrl-C, as long as the unit answers.

pub mod baseline;
mod behind;
mod benched_unit;
mod halt;
mod integrity;
mod measure;
mod open;
mod path;
mod pattern;
mod plan;
mod report;
mod run;
pub mod soak;
mod tally;
mod tlp;
mod vendor;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use path::{Check, Path, UnknownPath};
pub use pattern::Pattern;
pub use plan::{BenchEvent, BenchPlan, Effort, Point};
pub use report::{BenchReport, BenchUnit, Figures, Integrity, Outcome, Row, SCHEMA, Skip, Spread};
pub use run::run;
