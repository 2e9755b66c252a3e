//! Turns an ASM2464PD USB4 enclosure into a USB-to-PCIe bridge for GPUs.
//!
//! The modules follow an image on its way: it comes in ([`fetch`]), is understood ([`firmware`]), changed ([`patch`]),
//! proven ([`mcu`], [`chip`]), written ([`flash`]) through a [`bridge`] with [`usb`] or a [`virtual_bridge`] under it,
//! measured ([`mod@bench`]) and diagnosed ([`doctor`]). [`pcap`] records a virtual bridge's USB traffic.
//!
//! The feature `cli`, on by default, is the program `asmpatch`. With `default-features = false` you get the library
//! without a command line and without a network; the feature `fetch` adds downloads.
//!
//! # Examples
//!
//! Patch an image. The practice image is asmpatch's own and stands in for the vendor's.
//!
//! ```
//! use asmpatch::digest::Sha256Digest;
//! use asmpatch::patch::{Library, PatchSet, Selection};
//! use asmpatch::practice;
//!
//! let stock = practice::image();
//! let library = asmpatch::embedded::patches()?;
//! let digest = Sha256Digest::of(&stock.to_file());
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
//! use asmpatch::bridge::Port;
//! use asmpatch::flash::access::Access;
//! use asmpatch::flash::plan::FlashPlan;
//! use asmpatch::flash::run::{self, FlashOptions};
//! use asmpatch::flash::registers::BUDGET;
//! use asmpatch::interrupt::Interrupt;
//! use asmpatch::practice;
//! use asmpatch::virtual_bridge::{Scenario, VirtualBridge, VirtualPort};
//!
//! let unit = VirtualBridge::in_memory(Scenario::default(), b"seed of its serial number", None)?;
//! let mut port = VirtualPort::new("virtual".to_owned(), unit);
//! let attached = port.attached()?;
//! let blocks = Access::open(&mut port)?.blocks(attached.state)?;
//! let plan = FlashPlan::flash(attached, blocks, None, &practice::image(), |block| Ok(()))?;
//! let options = FlashOptions {
//!     backup_into: None,
//!     return_deadline: Duration::from_secs(10),
//!     replug_deadline: Duration::ZERO,
//!     rewrite: false,
//!     budget: BUDGET,
//! };
//! let report = run::run(&mut port, &plan, &options, &mut (), Interrupt::never()).map_err(|stopped| stopped.error)?;
//! # Ok::<(), asmpatch::failure::AnyFailure>(())
//! ```
//!
//! Read XDATA: the version of the running firmware.
//!
//! ```
//! use asmpatch::bridge::Port;
//! use asmpatch::scsi::XdataAddress;
//! use asmpatch::virtual_bridge::{Scenario, VirtualBridge, VirtualPort};
//!
//! let unit = VirtualBridge::in_memory(Scenario::default(), b"seed of its serial number", None)?;
//! let mut bridge = VirtualPort::new("virtual".to_owned(), unit).open()?;
//! let mut version = [0; 6];
//! bridge.xdata_read(XdataAddress::main(0x07F0), &mut version)?;
//! assert_eq!(version, [0x26, 0x11, 0x21, 0x00, 0x00, 0x01]);
//! # Ok::<(), asmpatch::failure::AnyFailure>(())
//! ```
//!
//! Read a device's BAR through either firmware.
//!
//! ```
//! use asmpatch::bridge::Port;
//! use asmpatch::pcie::{NoTime, Pcie, PcieError, Scope, TlpEngine, VendorTlp};
//! use asmpatch::virtual_bridge::{Scenario, VirtualBridge, VirtualPort};
//!
//! /// The first four bytes of the GPU's first BAR.
//! fn first_bytes(engine: &mut dyn TlpEngine) -> Result<[u8; 4], PcieError> {
//!     let mut patience = NoTime;
//!     let mut pcie = Pcie::new(engine, &mut patience);
//!     let mut survey = pcie.survey(Scope::USUAL)?;
//!     pcie.assign(&mut survey)?;
//!     let gpu = survey.functions.iter().find(|function| function.class >> 16 == 0x03).expect("the unit has a GPU");
//!     let mut bytes = [0; 4];
//!     pcie.memory_write(gpu.bars[0].address, b"GPU!")?;
//!     pcie.memory_read(gpu.bars[0].address, &mut bytes)?;
//!     Ok(bytes)
//! }
//!
//! let port = |scenario: &str| {
//!     let scenario = Scenario::parse(scenario).expect("keys that exist");
//!     let unit = VirtualBridge::in_memory(scenario, b"seed of its serial number", None)?;
//!     Ok::<_, asmpatch::failure::AnyFailure>(VirtualPort::new("virtual".to_owned(), unit))
//! };
//! let mut vendor = port("behind = \"gpu\"")?.open()?;
//! assert_eq!(first_bytes(&mut VendorTlp::new(&mut vendor))?, *b"GPU!");
//! let mut open = port("behind = \"gpu\"\nfactory = \"open\"")?.open_control()?;
//! assert_eq!(first_bytes(&mut open)?, *b"GPU!");
//! # Ok::<(), asmpatch::failure::AnyFailure>(())
//! ```

#[doc(hidden)]
pub mod cli;
mod demo;
pub mod embedded;
pub mod interrupt;

pub use asm2464::{digest, escape, progress, scsi};
pub use asm2464_chip::{chip, mcu, practice, profile, symbols};
pub use asm2464_dock::{pcap, tiny_gpu, virtual_bridge};
pub use asm2464_host::bridge;
pub use asmpatch_core::{bench, devices, doctor, failure, fetch, flash, patch, shell, unit};
pub use asmpatch_files::{atomic, file, toml_file};

/// An image's facts and code files.
pub mod firmware {
    pub use asm2464::firmware::*;
    pub use asm2464_chip::code::*;
}

/// PCIe behind a unit, with the driver of a GPU.
pub mod pcie {
    pub use asm2464_dock::tiny_gpu::{DmaWrite, Job, TinyGpu, TinyGpuError};
    pub use asm2464_host::pcie::*;
}

/// Real devices, and the rules that let a user open them.
pub mod usb {
    pub use asm2464_host::usb::*;
    pub use asmpatch_core::udev_rules::{RULES_PATH, udev_rules};
}
