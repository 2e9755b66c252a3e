//! SCSI as the bridge speaks it: commands, sense data, and the wrappers of Bulk-Only and UAS. Pure: no I/O.

pub mod bot;
mod cdb;
mod command;
mod sense;
pub mod uas;

pub use cdb::{Cdb, CdbError};
pub use command::{Command, DataLength, ResetMode, XdataAddress, XdataPage};
pub use sense::{ScsiStatus, Sense, SenseKey};
