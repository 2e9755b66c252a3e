//! A bridge on any transport: typed commands above, a transport below, real or virtual pipes under both.
//!
//! # The way of a command
//! A [`Port`] opens its unit by the firmware that runs there: the vendor's as a [`Bridge`], the open one as an
//! [`OpenBridge`].
//!
//! - [`Bridge`] turns a [`Command`](asm2464::scsi::Command) into a CDB and its [`DataPhase`], and the [`CommandEnd`] into a
//!   result or a [`CommandError`]. A [`Transport`] carries the CDB: [`BulkOnly`], one command at a time, or [`Uas`], many in
//!   flight, each a [`Job`] of a [`Workload`].
//! - [`OpenBridge`] sends control requests ([`open::OpenCommand`]), and the bulk data that some of them arm.
//!
//! Both move bytes through [`Pipes`] and [`ControlPipes`], which submit transfers, complete them, and recover a unit.
//! [`crate::usb`] provides those of real devices, the crate `asm2464-dock` those of virtual ones. [`Watched`] may stand in
//! between and show every transfer to a [`Monitor`].
//!
//! ```
//! use asm2464::scsi::XdataAddress;
//! use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
//! use asm2464_host::bridge::Port;
//!
//! let unit = VirtualUnit::in_memory(Scenario::default(), b"serial number", None)?;
//! let mut bridge = VirtualPort::new("unit", unit).open()?;
//! bridge.xdata_write(XdataAddress::main(0x5FF0), 0xA5)?;
//! let mut byte = [0];
//! bridge.xdata_read(XdataAddress::main(0x5FF0), &mut byte)?;
//! assert_eq!(byte, [0xA5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why so
//! Everything above the pipes is the same code for a dock and for a unit in software, so that a test without a dock executes
//! what runs on one. The pipes are asynchronous, and nothing else is: one thread submits and reaps, because a unit answers
//! in the order of its endpoints, and a flash is a sequence of steps.
//!
//! Errors say what the caller can do ([`TransportErrorKind`]): a unit that is gone is not recovered, a pipe that stalls is.
//! A command whose answer is lost is never repeated on its own: a write may have happened.
//!
//! # What is not known
//! How real units behave with streams under load beyond 31 tags, and which of the recovery's steps a hung unit needs: the
//! order of [`OpenBridge::strobe_engines`] is that of owners.

mod attached;
pub mod bulk_only;
mod client;
mod error;
mod log;
pub mod open;
mod pipes;
mod port;
pub mod setup;
mod storage;
mod transport;
pub mod uas;
mod xdata;

pub use asm2464::TransportKind;
pub(crate) use attached::SUPER_SPEED_PACKET;
pub use attached::{BusSpeed, Location, PortPath, UnitInfo};
pub use bulk_only::BulkOnly;
pub use client::Bridge;
pub use error::{CommandError, TransportError, TransportErrorKind};
pub use open::{ControlError, OpenBridge};
pub use pipes::{
    ControlPipes, Endpoint, Monitor, Monitors, PipeAction, PipeError, Pipes, Reaped, SETUP_LEN, Submitted, Tap,
    TransferEnd, TransferId, Watched, control_data_len, deadline, is_to_host,
};
pub use port::Port;
pub use storage::{Bay, Behind, Storage};
pub use transport::{AnyTransport, CommandEnd, DataPhase, Job, JobData, Transport, Workload};
pub use uas::Uas;
pub(crate) use xdata::XdataStep;
