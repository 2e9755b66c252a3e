//! Examination of what keeps a GPU runtime from starting on a unit, with a report for maintainers.
//!
//! [`examine()`] examines the unit and changes nothing that outlasts its power. [`DoctorReport`] adds the chip model's
//! answers to the same questions. [`Experiment`]s run only if an owner asks for them: they write, and may hang the
//! unit.

mod examine;
mod experiments;
mod problem;
mod questions;
mod report;

pub(crate) use examine::answers;
pub use examine::{DoctorOptions, Examination, FlashPart, PipeState, Timing, examine};
pub use experiments::{Answer, Experiment, Finding};
pub use problem::Problem;
pub use questions::{Exchange, Question};
pub(crate) use report::FIRST_WITH_RECORD;
pub use report::{DoctorReport, SCHEMA as REPORT_SCHEMA, hashed};
