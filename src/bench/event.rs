//! Progress of a bench, while it runs.

use std::time::Duration;

use super::plan::Point;

/// Progress of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchEvent {
    /// The survey and the integrity check.
    Checking,
    /// The unit will be initialised as by a GPU runtime. Restart it after the bench.
    Initialising,
    /// A row begins.
    Row {
        /// The row's number, from 0.
        index: usize,
        /// The number of rows.
        of: usize,
        /// The point that the row measures.
        point: Point,
    },
    /// A soak is running.
    Soaking {
        /// Time since the soak began.
        elapsed: Duration,
        /// Bytes that the unit has moved.
        bytes: u64,
        /// Errors so far.
        errors: u64,
    },
}
