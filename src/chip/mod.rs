//! The ASM2464PD as a whole: firmware boots on it from the reset vector and does everything itself.
//!
//! [`Chip`] is the 8051 with its memories and the blocks around it. Each block owns its registers and says in their
//! comments where their meaning is known from: addresses are those of the vendor's 240417 (`c:` common code, `b0:` and
//! `b1:` the banks), "open firmware" is tinygrad's, "chosen" is what no source shows. docs/chip.md has all of it, and
//! what nobody knows. A register that no block owns is memory; [`Chip::unknown_registers`] lists what was touched.
//!
//! # The host's side
//! The seam is packets at the endpoints, and it is synchronous. [`Chip::control`] or [`Chip::begin_control`] and
//! [`Chip::take_control_reply`]; [`Chip::bulk_out`] and [`Chip::bulk_in`], which answer NAK while the firmware has not
//! armed the endpoint; [`Chip::bus_reset`] and its like. In between, [`Chip::run`] lets the firmware work: until there
//! is something new for the host ([`Outcome::Attention`]), until nothing can happen any more without the host
//! ([`Outcome::Parked`]), or until the budget is used up.
//!
//! ```text
//! loop {
//!     move what packets can be moved: bulk_out, bulk_in, take_control_reply
//!     match chip.run(budget) { Attention => again, Parked => wait for the host, ... }
//! }
//! ```
//!
//! Time is simulated: an instruction is the unit. Where the firmware waits for a timer, the time until then is skipped.

pub mod boot;
mod bulk;
pub mod checklist;
mod core;
mod dma;
mod driver;
mod engine;
mod ep0;
mod fabric;
mod flash;
mod halts;
mod host;
mod host_memory;
mod idle;
mod interrupts;
mod link;
mod map;
mod msc;
mod nvme;
mod peripherals;
mod rom;
mod sram;
#[cfg(test)]
mod tests;
mod timers;
mod timing;
mod tlp;
mod uart;
mod uas;
mod unknown;
mod usb;
mod watch;
mod xdata;

pub use core::{Chip, Outcome};
pub use dma::DmaEvent;
pub use driver::{Answer, BulkOnlyReply, Data, Driver, Ending, Runner, UasReply, Unanswered};
pub use ep0::ControlReply;
pub use fabric::{
    Address, Answers, Bar, BlockStore, Completion, DeviceSpec, DriveSpec, Engine, Fabric, Function, HostMemory,
    LinkSpec, MemoryFunction, Place, Request, StoreFailed, TreeError,
};
pub use map::{Block, Register, register_name, registers};
pub use rom::image_in;
pub use sram::SRAM_LEN;
pub use timing::{CLOCK_MHZ, Simulated, Work, cycles as instruction_cycles};
pub use unknown::UnknownAccess;
pub use usb::{COMMAND_OUT, DATA_IN, DATA_OUT, InReply, OutReply, STATUS_IN, Speed, UsbEvent};
pub use watch::Watch;
