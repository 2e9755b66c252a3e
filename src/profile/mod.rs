//! What firmware does on the chip model, for its authors: a profile by function, line coverage, a timeline.
//!
//! Each is an [`Observer`](crate::mcu::Observer) for [`Chip::run_observed`](crate::chip::Chip::run_observed), so that a run
//! without one costs nothing. A firmware that idles is executed until the chip model has found that out, and so long its
//! main loop is seen here too.

mod calls;
mod coverage;
mod functions;
mod timeline;

pub use calls::{CallStack, Frame};
pub use coverage::Coverage;
pub use functions::{FunctionCost, Profile};
pub use timeline::{Timeline, TimelineWatch};
