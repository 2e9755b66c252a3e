#![doc = include_str!("../README.md")]

mod bdf;
mod coded;
pub mod digest;
pub mod escape;
pub mod firmware;
pub mod flash;
pub mod interrupt;
pub mod progress;
#[cfg(feature = "schemas")]
mod schemas;
pub mod scsi;
mod serde_text;
pub mod sram;
pub mod tlp;
mod transport;

pub use bdf::Bdf;
pub use coded::{Coded, Kind, Label, Quote};
pub use transport::TransportKind;
