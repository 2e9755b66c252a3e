//! The PCIe side of the bridge: the link, the tree of functions, their configuration space and memory.
//!
//! A [`TlpEngine`] carries requests of one dword through the bridge, by the means of its firmware: [`VendorTlp`]
//! through the engine's registers with E4 and E5, [`OpenBridge`](crate::bridge::OpenBridge) with F0. [`Pcie`] offers
//! what a GPU runtime needs on either: configuration space, memory behind BARs, and the bridge's SRAM as a buffer for
//! DMA. [`survey`](Pcie::survey) finds the tree.
//!
//! Nothing here reads the clock. [`Patience`] decides how long to wait for a device that is not ready. Every loop over
//! a device's answers has a bound.

mod access;
mod capability;
mod engine;
mod function;
mod layout;
mod names;
mod sram_reads;
mod survey;

pub use access::{Link, NoTime, Patience, Pcie};
pub use capability::{Capabilities, Capability, CapabilityFault, CapabilityKind, ExpressCapability, LinkRate};
pub use engine::{PcieError, TlpEngine, VendorTlp};
pub use function::{Bar, BarKind, Buses, COMMAND, COMMAND_MASTER, COMMAND_MEMORY, Function, Header, Window};
pub use names::{Names, class_name, is_gpu, is_ssd, vendor_name};
pub use sram_reads::Entry;
pub use survey::{Assignment, Note, Scope, Survey};
