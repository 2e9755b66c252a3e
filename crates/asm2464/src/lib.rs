//! What an ASM2464PD and its firmware images are. The chip is a USB4-to-PCIe bridge, as in enclosures for SSDs and GPUs.
//!
//! This crate is for everyone who touches such a unit or its firmware: it has the image's container and addresses, the
//! configuration blocks, the SCSI commands and their wrappers, and the vocabulary of PCIe. Everything is pure: bytes in,
//! values or a typed error out. `asm2464-host` drives a unit with it, and `asm2464-chip` models the chip.
//!
//! ```
//! use asm2464::scsi::{Command, XdataAddress};
//!
//! // E4 reads memory of the 8051: here the version of the running firmware.
//! let cdb = Command::XdataRead { from: XdataAddress::VERSION, len: 6 }.cdb();
//! assert_eq!(cdb.as_slice(), [0xE4, 0x06, 0x50, 0x07, 0xF0, 0x00]);
//! ```

mod bdf;
mod coded;
pub mod digest;
pub mod escape;
pub mod firmware;
pub mod flash;
pub mod interrupt;
pub mod progress;
#[cfg(feature = "schemas")]
mod schema_types;
pub mod scsi;
mod serde_text;
pub mod sram;
pub mod tlp;
mod transport;
mod work;

pub use bdf::Bdf;
pub use coded::{Coded, Quote};
pub use transport::TransportKind;
pub use work::{Simulated, Work};
