//! Examination of what keeps a GPU runtime from starting on a unit, with a report for maintainers.
//!
//! [`examine()`] examines the unit and changes nothing that outlasts its power. [`DoctorReport`] adds the chip model's
//! answers to the same questions.

mod diagnose;
mod examine;
mod findings;
mod host;
mod questions;
mod report;

pub use diagnose::{Diagnosis, OPEN_RUNTIME, PATCHED_RUNTIME, TopicLine, Verdict, diagnose};
pub(crate) use examine::answers;
pub use examine::{DoctorOptions, Examination, FlashPart, PipeState, Timing, examine};
pub use findings::{Candidate, RUNTIMES_BUS, SupplyState, Wanted};
pub use host::{HostState, SLOW_GOVERNOR};
pub use questions::{Exchange, Problem, Question};
pub use report::{DoctorReport, SCHEMA as REPORT_SCHEMA, hashed};
pub(crate) use report::{FIRST_WITH_RECORD, ReportedUnit};
