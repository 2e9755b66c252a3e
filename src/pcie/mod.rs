//! What is behind the bridge on PCIe: the link, the tree of functions, their configuration space and memory.
//!
//! A [`TlpEngine`] carries requests of one dword through the bridge, by what its firmware offers: [`VendorTlp`] by the
//! engine's registers through E4 and E5, [`OpenBridge`](crate::bridge::OpenBridge) by F0. [`Pcie`] is what a GPU runtime works with on either: configuration space, memory
//! behind BARs, the bridge's SRAM as a buffer for DMA. [`survey`](Pcie::survey) finds the tree.
//!
//! Nothing here knows the time. [`Patience`] says how long a device that is not ready is waited for. Every loop over what a
//! device answers has a bound.

mod access;
mod bar;
mod capability;
mod engine;
mod error;
mod function;
mod layout;
mod names;
mod note;
mod open;
mod place;
mod sram_reads;
mod survey;
#[cfg(test)]
mod tests;
mod tiny_gpu;
mod vendor;

pub use access::{Link, NoTime, Patience, Pcie, SRAM_ADDRESS, SRAM_WINDOW_LEN};
pub use bar::{Bar, BarKind};
pub use capability::{Capabilities, Capability, CapabilityFault, CapabilityKind, ExpressCapability, LinkRate};
pub use engine::{EngineError, TlpEngine};
pub use error::PcieError;
pub use function::{Buses, Function, Header, Window};
pub use layout::{Layout, NoRoom};
pub use names::{Names, class_name, vendor_name};
pub use note::{Change, Note};
pub use place::Bdf;
pub use sram_reads::SramReadError;
pub use survey::{Scope, Survey};
pub use tiny_gpu::{DmaWrite, Entry, Job, TinyGpu, TinyGpuError};
pub use vendor::VendorTlp;
