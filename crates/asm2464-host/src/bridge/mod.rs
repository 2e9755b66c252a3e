//! A bridge on any transport: typed commands above, a transport below.
//!
//! [`Bridge`] turns [`Command`](asm2464::scsi::Command)s into results. A [`Transport`] carries CDBs: Bulk-Only
//! ([`bulk_only`]) or [`uas`], both over any [`Pipes`]. [`OpenBridge`] speaks the open firmware's control requests over
//! any [`ControlPipes`]. [`crate::usb`] provides the pipes of real devices, the crate `asm2464-dock` those of
//! virtual ones. Everything above the pipes is the same code.

pub mod bulk_only;
mod client;
mod command_error;
mod error;
mod log;
pub mod open;
mod pipes;
mod port;
pub mod survey;
mod transport;
pub mod uas;
mod unit_info;
mod watch;
mod workload;
mod xdata_steps;

pub use asm2464::TransportKind;
pub use bulk_only::BulkOnly;
pub use client::{Bridge, Timeouts};
pub use command_error::CommandError;
pub use error::{Activity, TransportError, TransportErrorKind};
pub use open::{ControlError, OpenBridge};
pub use pipes::{
    ControlPipes, Endpoint, PipeError, Pipes, Reaped, SETUP_LEN, TransferEnd, TransferId, control_data_len, deadline,
};
pub use port::{Port, PortError};
pub use survey::{Behind, Storage};
pub use transport::{AnyTransport, Transport};
pub use uas::Uas;
pub use unit_info::{BusSpeed, Location, ParsePortPathError, PortPath, UnitInfo};
pub use watch::{Monitor, Opened, PipeAction, Submitted, Tap, Watch, Watched};
pub use workload::{CommandEnd, DataPhase, Job, JobData, Workload};
pub use xdata_steps::XdataStep;
