//! Measures a bridge, after a check that it works correctly.
//!
//! A GPU runtime moves data by a handful of *paths*: commands of the vendor's firmware, or control requests and streams
//! of the open one. A bench tells how fast each is on this dock, cable and host, and whether bytes come through
//! unchanged. docs/bench.md describes the figures; nothing here prints.
//!
//! # The trip
//!
//! ```text
//!  BenchPlan ─┐               UnitSurvey    Integrity             Row, Row, Row
//!             ▼                    ▲            ▲                       ▲
//!  Live ─► BenchedUnit ────────► survey ─────► check ─► each Point: measure ─► restore ─► BenchReport
//!            │      │                           │            │
//!            │      └ open: control requests    │            └ row: warm-up, repetitions, Tally ─► Figures
//!            └ vendor: SCSI commands            └ pattern, written and read back; ready_sram between memory and SRAM
//! ```
//!
//! - [`DataPath`] is a table: each row has all that is fixed about one path, with what it sends and whether it writes.
//! - [`BenchPlan`] selects paths, sizes and depths. They make [`Point`]s, one for each [`Row`].
//! - `BenchedUnit` is the part that depends on the firmware. `Bridge` and `OpenBridge` implement it. `UnitSurvey` is what
//!   a unit says of itself: how much each path moves and how many at once, and which can't run. `PreparedUnit` adds what
//!   is behind it, the results of the checks, and what was in a GPU's memory. It and the plan make the points.
//! - [`run()`] surveys the unit, writes a pattern and reads it back, measures each point, and returns a
//!   [`BenchReport`] with an [`Outcome`] in each row. A `Halt` ends a row early: with an outcome, or with an error that
//!   ends the bench.
//! - [`comparison`] holds the rows against published figures and against an earlier report. [`soak`] runs the mixture
//!   of a runtime for hours instead, and counts errors.
//!
//! # What it changes
//!
//! If [`BenchEvent::Initialising`] was reported, the vendor's firmware is initialised as by a GPU runtime when the bench
//! ends, successfully or not. On open firmware, if the plan writes or a GPU has to complete reads, PCIe's power is
//! switched on, and missing bus numbers and BAR addresses are assigned; these changes stay. The contents of a GPU's
//! memory are restored, also after an error or Ctrl-C, as long as the unit answers.
//!
//! # Why it is so
//!
//! - **A path that writes says so in its row.** With an SSD behind the bridge WRITE(16) overwrites it, so no row has a
//!   default for `writes`, and the SSD's guard is asked before anything is sent.
//! - **What can hang a unit comes last.** READ(16) without an SSD is never answered. A path that gave no answer is not
//!   tried at another size: that would only cost its time-out.
//! - **A recovery clears what was set up before.** On the vendor's firmware it clears bus numbers and addresses behind
//!   the bridge, so PCIe's rows after it are skipped with that reason. Before, they failed, and lost writes counted as
//!   measured.
//! - **Each repetition moves data for a time, not a number of commands.** A path of 1 MB/s and one of 700 MB/s then take
//!   as long. The row has the median and the range of the repetitions, and latencies of all commands.
//!
//! Tried and dropped: an error type of its own, because callers told only a refusal and Ctrl-C apart, which every
//! failure's kind says; a bench that is generic over the firmware, which the one object `BenchedUnit` replaced; rows
//! that only tiny-gpu could complete (READ(16), F2 towards the host, a DMA that E5 starts), because no dock that
//! somebody owns takes those ways; predictions by `bench`, which are a benchmark of the program now.
//!
//! Not known: how fast any path is on silicon. No bench has run on a dock, so the published figures that rows are held
//! against are other people's. Whether vendor firmware takes WRITE(16) at high speed is not known either.
//!
//! # Example
//!
//! The unit here is virtual, so the figures measure this machine.
//!
//! ```
//! use std::time::Duration;
//!
//! use asm2464::interrupt::Interrupt;
//! use asm2464_chip::practice;
//! use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
//! use asm2464_host::bridge::Port;
//! use asmpatch::bench::{self, BenchPlan, BenchUnit, Effort, DataPath};
//!
//! let image = practice::image().to_file();
//! let unit = VirtualUnit::in_memory(Scenario::default(), b"seed of its serial number", Some(&image))?;
//! let mut port = VirtualPort::new("unit", unit);
//! let unit = BenchUnit::from(&port.attached()?);
//! let effort = Effort { repetition: Duration::from_millis(20), ..Effort::SELF_TEST };
//! // E4 only reads, so this plan changes nothing.
//! let plan = BenchPlan::new([DataPath::E4Stock], effort, 1);
//! let report = bench::run(&mut port.open()?, unit, &plan, Interrupt::never(), &mut ())?;
//! assert!(report.best(DataPath::E4Stock).is_some_and(|mb_per_s| mb_per_s > 0.0));
//! # Ok::<(), asm2464::AnyFailure>(())
//! ```

pub mod comparison;
mod open;
mod path;
mod pcie;
mod plan;
mod report;
mod row;
mod run;
pub mod soak;
mod unit;
mod vendor;

#[cfg(test)]
mod tests;

pub use path::{DataPath, IntegrityCheck};
pub use plan::{BenchPlan, Effort, Point};
pub use report::{BenchReport, BenchUnit, Figures, Integrity, Outcome, Row, SCHEMA, Skip, Spread};
pub use run::run;
pub use unit::BenchEvent;
