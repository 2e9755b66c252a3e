//! SCSI as the bridge speaks it: commands, sense data, and the wrappers of Bulk-Only and UAS. Pure: no I/O.

mod answers;
pub mod bot;
mod cdb;
mod command;
mod lun;
pub mod opcode;
pub mod runtime;
mod sense;
pub mod uas;

pub use answers::{Capacity, INQUIRY_LEN, Inquiry};
pub use cdb::Cdb;
pub use command::{
    BLOCK_LEN, Command, DataLength, LONG_READ, LONG_READ_LEN, ResetMode, XDATA_PAGE_LEN, XDATA_READ_MAX, XdataAddress,
    XdataPage, has_long_read,
};
pub use lun::{Lun, REPORT_LUNS_LEN, listed_luns};
pub use sense::{SENSE_LEN, ScsiStatus, Sense, SenseKey};
