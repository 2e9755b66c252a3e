//! What an ASM2464PD and its firmware images are. The chip is a USB4-to-PCIe bridge, as in enclosures for SSDs and GPUs.
//!
//! This crate is for everyone who touches such a unit or its firmware: it has the image's container and addresses, the
//! configuration blocks, the SCSI commands and their wrappers, and the vocabulary of PCIe. Everything is pure: bytes in,
//! values or a typed error out. `asm2464-host` drives a unit with it, and `asm2464-chip` models the chip.
//!
//! What is in an image, and the commands that write it to a unit and then ask what runs:
//!
//! ```
//! use asm2464::firmware::{CodeAddress, Image, Part};
//! use asm2464::scsi::{Command, ResetMode, XdataAddress};
//!
//! // Code that jumps to itself, with its version; wrapped in what the chip's ROM needs to start it.
//! let mut code = vec![0; 0x300];
//! code[..2].copy_from_slice(&[0x80, 0xFE]);
//! code[0x200..0x206].copy_from_slice(&[0x26, 0x11, 0x21, 0x00, 0x00, 0x01]);
//! let file = Image::from_body(code)?.to_file();
//!
//! let image = Image::parse(&file)?;
//! assert_eq!(image.version().to_string(), "261121.00.00.01");
//! let at: CodeAddress = "c:0x0000".parse()?;
//! assert_eq!(image.body()[at.body_offset().0 as usize], 0x80);
//!
//! let parts = Part::ALL.into_iter().filter(|part| !part.of(&file).is_empty());
//! let writes = parts.map(|part| Command::FlashWrite { part, len: part.of(&file).len() as u32 });
//! let asks = [Command::Reset(ResetMode::CpuReset), Command::XdataRead { from: XdataAddress::VERSION, len: 6 }];
//! let commands: Vec<_> = writes.chain(asks).map(|command| command.cdb()).collect();
//! assert_eq!(commands[0].as_slice()[..2], [0xE3, 0x50]);
//! assert_eq!(commands[2].as_slice(), [0xE4, 0x06, 0x50, 0x07, 0xF0, 0x00]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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

pub use bdf::Bdf;
pub use coded::{Coded, Kind, Label, Quote};
pub use transport::TransportKind;
