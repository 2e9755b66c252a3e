//! A model of the whole ASM2464PD: firmware boots on it from the reset vector and runs unmodified.
//!
//! [`boot`] proves with it that an image can be flashed again; a virtual unit runs it behind its wire; firmware authors
//! observe and measure their code on it.
//!
//! # The way of an access
//! [`Chip`] is the 8051 with its memories and the blocks around it; `core` has its run loop. The CPU's read or write of
//! XDATA goes to `xdata`, which asks `map` which [`Block`] owns the address: plain memory needs no call, and everything
//! else is dispatched by `peripherals` to the block. A block owns its registers, lists them in a table of [`Register`]s,
//! and its comments cite the source of each meaning: code addresses are those of the vendor's 240417 (`c:` common code,
//! `b0:` and `b1:` the banks), "open firmware" is tinygrad's, and "chosen" means that no source shows it. docs/lab/chip.md has
//! the whole list. A register that no block owns is memory; [`Chip::unknown_registers`] lists those that were touched.
//!
//! A block that reaches what is behind the bridge sends a [`TlpRequest`] into the [`Fabric`], a tree of PCIe devices built
//! from [`DeviceSpec`]s. They answer with a [`TlpCompletion`], and reach the SRAM and the NVMe queues as bus masters.
//!
//! # The host's side
//! The host exchanges packets with the endpoints, synchronously: [`Chip::control`], or [`Chip::begin_control`] and
//! [`Chip::take_control_reply`]; [`Chip::bulk_out`] and [`Chip::bulk_in`], which answer NAK while the firmware has not
//! armed the endpoint; [`Chip::bus_reset`] and similar methods. In between, [`Chip::run`] lets the firmware work until
//! there is something new for the host ([`RunEnd::Attention`]), until nothing can happen without the host
//! ([`RunEnd::Parked`]), or until the budget is used up.
//!
//! ```text
//! loop {
//!     move what packets can be moved: bulk_out, bulk_in, take_control_reply
//!     match chip.run(budget) { Attention => again, Parked => wait for the host, ... }
//! }
//! ```
//!
//! [`Driver`] is such a host, for whoever has none:
//!
//! ```
//! use asm2464::scsi::{Command, XdataAddress};
//! use asm2464_chip::chip::{Data, Ending, boot};
//! use asm2464_chip::practice;
//!
//! // Power on, enumerate, select alternate 0, which is Bulk-Only, and send INQUIRY.
//! let mut unit = boot::booted(&practice::image(), 0)?;
//! unit.chip.sram_mut()[..4].copy_from_slice(b"SRAM");
//! let read = Command::XdataRead { from: XdataAddress::main(0xF000), len: 4 }.cdb();
//! let answer = unit.command(read.as_slice(), Data::In(4)).unwrap();
//! assert_eq!((answer.ending, &answer.data[..]), (Ending::Good, &b"SRAM"[..]));
//! # Ok::<(), boot::BootFault>(())
//! ```
//!
//! # Why so
//! Answers come from the firmware, never from the model: descriptors, sense and stalls of a hand-written model would repeat
//! what we believe of the firmware, and prove nothing about an image. Where a source is missing the model picks the simplest
//! behaviour, and says so; recordings of real chips are replayed against it (`model/lab/silicon`).
//!
//! Time is simulated, in units of one instruction. While the firmware only waits for a timer, that time is skipped. Clock
//! cycles are counted for reports and do not drive the model: they are known of the chip's relatives alone, and no recording
//! shows a wait that depends on them.
//!
//! # What is not known
//! The boot ROM, so a chip powers on with the image already loaded ([`image_in`] does the ROM's part, by what is seen of
//! it); how long a block takes, wherever a comment says "chosen"; the other XDATA page, which holds PHY and link settings.
//! docs/lab/chip.md ends with the open questions.

mod arrival;
pub mod boot;
mod core;
mod counting;
mod driver;
mod engine;
mod ep0;
mod fabric;
mod flash;
mod host;
mod link;
mod map;
mod msc;
mod nvme;
mod pcie;
mod peripherals;
mod reset;
mod serial;
mod sram;
mod ssd;
#[cfg(test)]
mod tests;
mod timers;
mod uas;
mod usb;
mod xdata;

pub use boot::ProofBudget;
pub use core::{CLOCK_MHZ, Chip, RunEnd, Work, cycles as instruction_cycles};
pub use driver::{Answer, BulkOnlyReply, Data, Driver, Ending, Runner, UasReply, Unanswered};
pub use ep0::ControlReply;
pub use fabric::{
    Answers, BarSpec, BlockStore, ConfigAddress, DeviceEngine, DeviceSpec, DriveSpec, Engine, Fabric, HostMemory,
    LinkSpec, MemoryFunction, StoreFailed, TlpCompletion, TlpRequest,
};
pub use map::{Block, Register, UnknownAccess, register_name, registers, unaliased};
pub use pcie::EarlyLanes;
pub use peripherals::Watch;
pub use reset::{Board, PartRevision, image_in};
pub use serial::SupplySensor;
pub use usb::{COMMAND_OUT, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN, Speed, UsbEvent};
