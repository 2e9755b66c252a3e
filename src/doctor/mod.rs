//! What keeps a GPU runtime from starting on a unit: examined, judged, and written down for a maintainer.
//!
//! [`examine()`] asks the unit and changes nothing that outlasts its power, [`diagnose()`] judges what was found, and
//! [`DoctorReport`] holds it with what the chip model answers to the same questions. [`Experiment`]s are for owners who ask for them:
//! they write, and may hang the unit.

mod diagnose;
mod examine;
mod experiments;
mod questions;
mod report;
#[cfg(test)]
mod tests;

pub use diagnose::{Diagnosis, Line, Verdict, diagnose};
pub use examine::{DoctorOptions, Examination, PipeState, Problem, Timing, examine};
pub use experiments::{Answer, Experiment, Finding};
pub use questions::{Exchange, Question};
pub use report::{DoctorReport, SCHEMA as REPORT_SCHEMA, hashed};
