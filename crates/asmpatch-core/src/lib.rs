//! What asmpatch's commands do, without a command line: for updaters and other front ends.
//!
//! The modules follow an image on its way: it comes in ([`fetch`]), is changed ([`patch`]), written ([`flash`]) to a
//! [`unit`], measured ([`mod@bench`]) and diagnosed ([`doctor`]). Data files are handed in: known docks ([`devices`]),
//! patches and manifests.

pub mod bench;
pub mod devices;
pub mod doctor;
pub mod failure;
pub mod fetch;
pub mod flash;
pub mod patch;
#[cfg(feature = "schemas")]
mod schema_types;
pub mod shell;
#[cfg(test)]
mod tests;
pub mod udev_rules;
pub mod unit;

use asm2464::{digest, escape, interrupt, progress, scsi};
use asm2464_chip::{chip, mcu, practice};
use asm2464_dock::{pcap, tiny_gpu, virtual_bridge};
use asm2464_host::{bridge, usb};
use asmpatch_files::{atomic, file, toml_file};

/// The image's facts and code files.
mod firmware {
    pub(crate) use asm2464::firmware::*;
    pub(crate) use asm2464_chip::code::*;
}

/// PCIe behind a unit, with the driver of a GPU.
mod pcie {
    pub(crate) use asm2464_dock::tiny_gpu::{TinyGpu, TinyGpuError};
    pub(crate) use asm2464_host::pcie::*;
}
