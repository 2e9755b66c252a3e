#![doc = include_str!("../README.md")]

pub mod digest;
pub mod escape;
mod failure;
pub mod firmware;
pub mod flash;
pub mod interrupt;
pub mod progress;
pub mod scsi;
mod serde_text;
pub mod sram;
pub mod text;
pub mod tlp;
mod transport;

pub use failure::{AnyFailure, Coded, Failure, Kind, Label, Named, ParseError, Quote};
pub use tlp::Bdf;
pub use transport::TransportKind;
