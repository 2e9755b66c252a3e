//! Diagnosis of what keeps a GPU runtime from starting on a unit, with a report for maintainers.
//!
//! A runtime that doesn't start says little: it finds no device, or times out. The cause may be the cable, the supply, the
//! host's driver, the firmware, or the card. The doctor looks at each in turn and says what is wrong, and what to do.
//!
//! # The trip
//!
//! ```text
//!  Port ─► examine ─► Facts ─► diagnose ─► Diagnosis ─► TopicLine, TopicLine ...   worded in src/cli/words/advice.rs
//!                      │          ▲
//!                      │          │ Wanted: the GPUs and the runtime of this version
//!                      ▼          │
//!                   Report ─► JSON, which any later version reads
//! ```
//!
//! - [`examine()`] asks the unit, by the functions of [`unit::ask`](crate::unit::ask) that every command asks by, and
//!   returns [`Facts`](crate::unit::facts::Facts): raw answers, without a verdict.
//! - [`diagnose()`] is pure. Each topic has one rule. Its line has a [`Verdict`], what was found, and
//!   [`Advice`](crate::advice::Advice) as data, because only the program knows its commands.
//! - [`Wanted`] is what a runtime drives: the GPUs of `gpus/*.toml`, and the IDs and the bus of `runtimes/*.toml`.
//! - [`diagnose_tunnels`] does the same for USB4 and Thunderbolt, where a dock is no unit: its facts are the host's.
//! - A [`Report`] is the facts without what is private. The owner can send it, and `doctor --from` diagnoses it again.
//!
//! # Why it is so
//!
//! - **Facts and rules are apart.** A rule that was wrong is right for every report that was written before it.
//! - **Asking changes a unit**, so the examination asks in the order that disturbs least: descriptors, then pipes, then
//!   PCIe, and the flash's controller last. What it writes lasts until the power goes at most. It writes nothing over an
//!   SSD, and nothing while a runtime holds its lock. With [`DoctorOptions::no_write`] it writes nothing at all, and
//!   what it then doesn't know is [`Verdict::Unknown`], not good.
//! - **The last line names what decides.** If something is bad, a runtime can't start. If nothing is, access, firmware,
//!   pipes, link and GPU must be known to be good.
//! - **A redaction is one function**, over the facts' own type, so that no fact reaches a report past it.
//!
//! Tried and dropped: recordings of every transfer, replayed by `--device replay:FILE`, which any later version failed
//! on and nobody could use without the owner's firmware; experiments on the unit, which could hang an owner's dock; one
//! reading of the pipes' check for `doctor` and `reset`, which saved no line and changed what both said.
//!
//! Not known: which registers of the part's revisions matter (the report has `part_revision` for that), and what the
//! fault line is connected to on boards that don't measure their supply.
//!
//! # Example
//!
//! ```
//! use asm2464::interrupt::Interrupt;
//! use asm2464_chip::practice;
//! use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
//! use asm2464_host::bridge::Port;
//! use asmpatch::doctor::{DoctorOptions, Wanted, diagnose, examine};
//! use asmpatch::embedded;
//! use asmpatch::image::Images;
//!
//! let image = practice::image().to_file();
//! let unit = VirtualUnit::in_memory(Scenario::default(), b"seed of its serial number", Some(&image))?;
//! let mut port = VirtualPort::new("unit", unit);
//! let unit = port.attached()?;
//! let options = DoctorOptions { no_write: true, ..DoctorOptions::default() };
//! let images = Images::from(embedded::patches()?);
//! let facts = examine(&mut port, unit, options, &images, Interrupt::never())?;
//!
//! let (gpus, runtime) = (embedded::gpus()?, embedded::runtime()?);
//! let diagnosis = diagnose(&facts, Wanted { gpus: &gpus, runtime: &runtime, expected: None });
//! // The practice image is no firmware that a runtime drives.
//! assert!(diagnosis.because.contains(&"firmware"));
//! # Ok::<(), asm2464::AnyFailure>(())
//! ```

mod diagnose;
mod examine;
mod report;
mod usb4;

pub use diagnose::{BESIDE_USB4, Diagnosis, TopicLine, Verdict, Wanted, at_work, diagnose, is_beside_usb4};
pub use examine::{DoctorOptions, QUESTIONS, examine};
pub use report::{Report, SCHEMA as REPORT_SCHEMA, hashed};
pub use usb4::diagnose_tunnels;
