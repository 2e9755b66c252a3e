//! Turns an ASM2464PD enclosure into a USB-to-PCIe bridge for GPUs.
//!
//! The modules follow an image on its way: it comes in ([`fetch`]), is changed ([`mod@patch`]), written ([`mod@flash`])
//! to a [`mod@unit`], measured ([`mod@bench`]) and diagnosed ([`doctor`]). The data files, with known docks
//! ([`devices`]), GPUs ([`gpus`]), patches and manifests, are [`embedded`] in the library.
//!
//! The feature `cli`, which is on by default, adds the program itself. Updaters and other front ends leave it out.
//!
//! Patch an image. The practice image is asmpatch's own and stands in for the vendor's.
//!
//! ```
//! use asm2464::digest::Sha256Digest;
//! use asmpatch::patch::{Library, PatchSet, Selection};
//! use asm2464_chip::practice;
//!
//! let stock = practice::image();
//! let digest = Sha256Digest::of(&stock.to_file());
//! let patch = format!(
//!     r#"
//!     id = "status"
//!     title = "Answer the host at once when a write is queued"
//!     purpose = "With a GPU behind the bridge no completion arrives."
//!     source = "Executed on the chip model."
//!     default = true
//!
//!     [[images]]
//!     sha256 = "{digest}"
//!     name = "practice"
//!
//!     [[images.hunks]]
//!     at = "c:0x2A0E"
//!     expect = "0a"
//!     new = "05"
//!     note = "the operand of MOV R7,#0Ah"
//!     "#
//! );
//! let library = Library::of(&[("status.toml", &patch)])?;
//! let patched = PatchSet::resolve(&library, &Selection::default(), &stock, digest)?.apply()?;
//! assert_eq!(patched.receipt.output.sha256, Sha256Digest::of(&patched.image.to_file()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Flash a unit: plan, write, read back, restart, and see what runs. The unit here is virtual; `unit::port` opens a
//! real one.
//!
//! ```
//! use std::time::Duration;
//!
//! use asm2464_host::bridge::Port;
//! use asmpatch::flash::access::Access;
//! use asmpatch::flash::plan::FlashPlan;
//! use asmpatch::flash::run::{self, FlashOptions};
//! use asmpatch::image::Images;
//! use asm2464::flash::BUDGET;
//! use asm2464::interrupt::Interrupt;
//! use asm2464_chip::practice;
//! use asm2464_dock::virtual_unit::{Scenario, VirtualUnit, VirtualPort};
//!
//! let unit = VirtualUnit::in_memory(Scenario::default(), b"seed of its serial number", None)?;
//! let mut port = VirtualPort::new("unit", unit);
//! let attached = port.attached()?;
//! let blocks = Access::open(&mut port)?.blocks(attached.state)?;
//! let images = Images::from(asmpatch::embedded::patches()?);
//! let proof = images.prove(&practice::image())?;
//! let plan = FlashPlan::flash(attached, blocks, None, None, &proof, |block| Ok(()))?;
//! let options = FlashOptions {
//!     backup_into: None,
//!     backup_elsewhere: Vec::new(),
//!     pointers_into: None,
//!     return_deadline: Duration::from_secs(10),
//!     replug_deadline: Duration::ZERO,
//!     rewrite: false,
//!     budget: BUDGET,
//! };
//! let report = run::run(&mut port, &plan, &options, &mut (), Interrupt::never()).map_err(|stopped| stopped.error)?;
//! # Ok::<(), asm2464::AnyFailure>(())
//! ```

pub mod advice;
pub mod bench;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod devices;
pub mod doctor;
pub mod embedded;
pub mod failure;
pub mod fetch;
pub mod file_kind;
pub mod flash;
pub mod gpus;
pub mod image;
pub mod patch;
pub mod pcap;
pub mod practice;
pub mod restart;
pub mod runtimes;
pub mod shell;
pub mod suggest;
#[cfg(test)]
mod tests;
pub mod unit;
