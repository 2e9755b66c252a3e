//! Drives an ASM2464PD unit: a USB-to-PCIe bridge, as in enclosures for SSDs and GPUs.
//!
//! This crate is for programs that use such a unit, such as GPU runtimes. [`usb`] finds and opens one. [`bridge`] sends
//! commands to the vendor's firmware over Bulk-Only or UAS, and control requests to open firmware. [`pcie`] finds the
//! devices behind the bridge on either firmware, and reads and writes their memory.
//!
//! Errors have stable codes. Nothing is printed; `tracing` events tell what happens. A process that ends without
//! unwinding gives its devices back with [`usb::release_all`].
//!
//! `examples/unit.rs` reads a unit's memory, lists what is behind it, and moves data into its SRAM.

pub mod bridge;
pub mod pcie;
pub mod usb;
