//! A unit in software, with its SPI flash in a file. It powers on like the chip and speaks Bulk-Only and UAS on the wire.
//!
//! # The way of a transfer
//! A host opens a [`VirtualPort`], or QEMU connects to [`usbredir`]. [`VirtualPipes`], or a session, offers each transfer to
//! the [`VirtualUnit`]. It knows power, presence on the bus and endpoint 0 while no firmware runs, and passes bulk data to
//! what answers now, a [`Responder`]: the firmware in the flash on the chip model (`chip_unit`), the boot loader in native
//! code (`boot_loader`), or a program's own. In between, `wire` cuts transfers into packets and injects the faults of the
//! [`Scenario`], which neither firmware nor boot loader sees. The [`Reply`] travels back.
//!
//! # Why so
//! Everything above the pipes is the code that runs on hardware, so a test that passes here has executed it. The flash is
//! cells with NOR's rules ([`SpiFlash`](asm2464_chip::spi_flash::SpiFlash)): an erase that is cut short leaves what a
//! real one leaves.
//!
//! The boot loader is native code, because its own is in the chip's ROM, whose contents are not known; its behaviour is
//! that of open flashers and of notes on it. docs/virtual-unit.md describes the unit's behaviour where the chip's details
//! are not known.
//!
//! The crate's page has an example.

mod boot_loader;
mod chip_unit;
mod descriptors;
mod folder;
mod pipes;
mod port;
mod replug;
mod responder;
mod scenario;
mod setup;
mod unit;
#[cfg(unix)]
pub mod usbredir;
mod wire;

#[cfg(test)]
mod tests;

pub use chip_unit::FirmwareCounts;
pub use descriptors::{Descriptors, Identity, STREAMS};
pub use pipes::VirtualPipes;
pub use port::VirtualPort;
pub use replug::replug;
pub use responder::{Reply, Responder};
pub use scenario::{
    BulkHangs, CpuReset, Downstream, Durations, Factory, Fault, FaultKind, FaultPlan, PowerOnState, Scenario, SetKey,
};
pub use unit::{ControlAnswer, SharedUnit, VirtualUnit};
