//! The ASM2464PD's 8051, emulated: the firmware that asmpatch patches is executed here before it is written anywhere.
//!
//! [`Machine`] is the CPU with its code banks ([`CodeSpace`]), its two pages of XDATA ([`Xdata`]) and its special
//! function registers. What hangs on XDATA besides memory implements [`Registers`]. [`Observer`]s see each
//! instruction before it is executed; [`Trace`] is one. [`FirmwareCpu`] executes SCSI commands on an image's own
//! dispatcher; [`conventions`] says how that keeps them.

mod bus;
pub mod checklist;
mod chip_registers;
mod code_space;
pub mod conventions;
mod disasm;
mod error;
mod firmware_cpu;
mod machine;
mod observer;
mod region;
mod sfr;
mod spi_flash;
mod xdata;

pub(crate) use bus::Bus;
pub use chip_registers::ChipRegisters;
pub use code_space::CodeSpace;
#[cfg(test)]
pub(crate) use disasm::Keys;
pub use disasm::{Line, LineKind, disassemble, disassemble_in, listing};
pub use error::RunError;
pub use firmware_cpu::{DEFAULT_BUDGET, FirmwareCpu, Reply, Wire};
pub use machine::{Machine, Outcome, Reg, STACK_START};
pub use observer::{Observer, Step, Trace};
pub use region::Region;
pub(crate) use sfr::Sfrs;
pub use sfr::{SFR_CODE_BANK, SFR_XDATA_PAGE};
pub use spi_flash::{FlashGone, MemoryFlash, SpiFlash};
pub use xdata::{Access, AccessKind, PlainMemory, Registers, Xdata, XdataMemory};
