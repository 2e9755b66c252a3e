#![doc = include_str!("../README.md")]

mod coded;
pub mod digest;
pub mod escape;
pub mod firmware;
pub mod flash;
pub mod interrupt;
pub mod progress;
pub mod scsi;
mod serde_text;
pub mod sram;
pub mod tlp;
mod transport;

pub use coded::{Coded, Kind, Label, Quote};
pub use tlp::Bdf;
pub use transport::TransportKind;
