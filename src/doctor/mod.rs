//! Examination of what keeps a GPU runtime from starting on a unit, with a report for maintainers.
//!
//! [`examine()`] examines the unit. All that it changes is undone by a power cycle. If asked to, it also puts the
//! questions of the [`DoctorReport`] to the chip model.

mod diagnose;
mod examine;
mod findings;
mod host;
mod questions;
mod report;

pub use diagnose::{Diagnosis, OPEN_RUNTIME, PATCHED_RUNTIME, TopicLine, Verdict, diagnose};
pub use examine::{DoctorOptions, Examination, FlashPart, PipeState, Timing, examine};
pub(crate) use examine::{WHO_ANSWERS, answers};
pub use findings::{Candidate, SupplyState, Wanted};
pub use host::{HostState, SLOW_GOVERNOR};
pub use questions::{Exchange, Problem, Question};
pub use report::{DoctorReport, SCHEMA as REPORT_SCHEMA, hashed};
pub(crate) use report::{FIRST_WITH_RECORD, ReportedUnit};
