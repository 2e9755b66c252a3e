//! SCSI as the bridge speaks it: commands, sense data, and the wrappers of Bulk-Only and UAS. Pure: no I/O.

pub mod bot;
mod capacity;
mod cdb;
mod command;
mod inquiry;
mod long_read;
pub mod opcode;
pub mod runtime;
mod sense;
pub mod uas;

pub use capacity::Capacity;
pub use cdb::{Cdb, CdbError};
pub use command::BLOCK_LEN;
pub use command::{Command, DataLength, ResetMode, XDATA_PAGE_LEN, XDATA_READ_MAX, XdataAddress, XdataPage};
pub use inquiry::{INQUIRY_LEN, Inquiry, InquiryError};
pub use long_read::{LONG_READ, LONG_READ_LEN, has_long_read};
pub use sense::SENSE_LEN;
pub use sense::{ScsiStatus, Sense, SenseKey};
