//! A model of the whole ASM2464PD: firmware boots on it from the reset vector and runs unmodified.
//!
//! [`Chip`] is the 8051 with its memories and the blocks around it. Each block owns its registers, and their comments
//! cite the source of each meaning: code addresses are those of the vendor's 240417 (`c:` common code, `b0:` and `b1:`
//! the banks), "open firmware" is tinygrad's, and "chosen" means that no source shows it. docs/chip.md has the whole
//! list, and the open questions. A register that no block owns is memory; [`Chip::unknown_registers`] lists those that
//! were touched.
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
//! Time is simulated, in units of one instruction. While the firmware only waits for a timer, that time is skipped.

pub mod boot;
mod bulk;
mod core;
mod dma;
mod driver;
mod engine;
mod ep0;
mod fabric;
mod flash;
mod host;
mod i2c;
mod idle;
mod interrupts;
mod link;
mod map;
mod msc;
mod nvme;
mod pcie_link;
mod peripherals;
mod proof_budget;
mod register;
mod reset;
mod sram;
#[cfg(test)]
mod tests;
mod timers;
mod timing;
mod tlp;
mod uart;
mod uas;
mod usb;
mod xdata;

pub use core::{Chip, RunEnd};
pub use driver::{
    Answer, BOOT_BUDGETS, BOOT_RESETS, BulkOnlyReply, Data, Driver, Ending, Runner, UasReply, Unanswered,
};
pub use ep0::ControlReply;
pub use fabric::{
    Answers, BarSpec, BlockStore, ConfigAddress, DeviceEngine, DeviceSpec, DriveSpec, Engine, EngineKind, Fabric,
    HostMemory, LinkSpec, MemoryFunction, StoreFailed, TlpCompletion, TlpRequest, TreeError,
};
pub use flash::FlashDefects;
pub use i2c::SupplySensor;
pub use map::{Block, UnknownAccess, register_name, registers, unaliased};
pub use pcie_link::EarlyLanes;
pub use peripherals::Watch;
pub use proof_budget::ProofBudget;
pub use register::Register;
pub use reset::{Board, PartRevision, image_in};
pub use timing::{CLOCK_MHZ, Work, cycles as instruction_cycles};
pub use usb::{COMMAND_OUT, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN, Speed, UsbEvent};
