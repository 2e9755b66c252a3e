//! Drives an ASM2464PD unit: a USB-to-PCIe bridge, as in enclosures for SSDs and GPUs.
//!
//! This crate is for programs that use such a unit, such as GPU runtimes. [`usb`] finds and opens one. [`bridge`] sends
//! commands to the vendor's firmware over Bulk-Only or UAS, and control requests to open firmware. [`pcie`] finds the
//! devices behind the bridge on either firmware, and reads and writes their memory.
//!
//! A runtime for open firmware needs one type, [`bridge::OpenBridge`]:
//!
//! - [`bring_link_up`](bridge::OpenBridge::bring_link_up) switches PCIe on and waits for the link, up to a deadline;
//! - [`dword`](bridge::OpenBridge::dword) sends one TLP, [`tlps`](bridge::OpenBridge::tlps) many in flight;
//! - [`memory_read`](bridge::OpenBridge::memory_read) and [`memory_write`](bridge::OpenBridge::memory_write) move any
//!   bytes behind a BAR, whose addresses [`Bar::at`](pcie::Bar::at) checks;
//! - [`sram_write`](bridge::OpenBridge::sram_write) and [`sram_read`](bridge::OpenBridge::sram_read) move data through
//!   the SRAM, and [`completions_page`](bridge::OpenBridge::completions_page) is where a device completes a read;
//! - [`attempt`](bridge::OpenBridge::attempt) repeats what the wire or the bridge broke.
//!
//! Every call has a deadline. A unit that is unplugged ends it with
//! [`ControlError::Disconnected`](bridge::ControlError::Disconnected). [`usb::UnitLock`] keeps other programs on this
//! library out, also while the unit is closed or restarts. docs/clients.md has the calls of two runtimes beside these.
//!
//! ```
//! # use asm2464_dock::virtual_unit::{Scenario, VirtualUnit, VirtualPort};
//! use std::time::Duration;
//!
//! use asm2464::interrupt::Interrupt;
//! use asm2464_host::bridge::{OpenBridge, Port};
//! use asm2464_host::pcie::{Pcie, Scope};
//!
//! /// The first four bytes behind the first BAR.
//! fn first_bytes(unit: &mut OpenBridge) -> Result<[u8; 4], Box<dyn std::error::Error>> {
//!     let mut patience = Interrupt::never();
//!     unit.bring_link_up(Duration::from_secs(10), patience)?;
//!     let mut pcie = Pcie::new(unit, &mut patience);
//!     let mut survey = pcie.survey(Scope::USUAL)?;
//!     pcie.assign(&mut survey)?;
//!     let bar = survey.functions.iter().find_map(|function| function.bars.first()).ok_or("no BAR")?;
//!     let mut bytes = [0; 4];
//!     let address = bar.at(0, bytes.len())?;
//!     unit.memory_write(address, b"GPU!")?;
//!     unit.attempt(10, Duration::from_millis(1), |unit| unit.memory_read(address, &mut bytes))?;
//!     Ok(bytes)
//! }
//!
//! # let unit = VirtualUnit::in_memory(Scenario::parse("behind = 'gpu'\nfactory = 'open'")?, b"seed", None)?;
//! # let mut port = VirtualPort::new("unit", unit);
//! assert_eq!(first_bytes(&mut port.open_control()?)?, *b"GPU!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Errors have stable codes. Nothing is printed; `tracing` events tell what happens. A process that ends without
//! unwinding gives its devices back with [`usb::release_all`].
//!
//! `examples/unit.rs` brings a unit's link up, lists what is behind it, and moves data into its SRAM.

pub mod bridge;
pub mod pcie;
pub mod usb;
