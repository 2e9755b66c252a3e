//! Diagnosis of what keeps a GPU runtime from starting on a unit, with a report for maintainers.
//!
//! [`examine()`] looks at the unit and returns [`Facts`](crate::unit::facts::Facts); all that it changes is undone by a power cycle. [`diagnose()`]
//! infers from them, whenever they were found. A [`Report`] holds them without what is private.

mod diagnose;
mod examine;
mod findings;
mod questions;
mod report;

pub use diagnose::{Diagnosis, OPEN_RUNTIME, PATCHED_RUNTIME, TopicLine, Verdict, diagnose};
pub use examine::{DoctorOptions, examine};
pub use findings::{Candidate, SupplyState, Wanted};
pub use questions::Question;
pub use report::{Report, SCHEMA as REPORT_SCHEMA, hashed};
