//! The 8051: code banks ([`CodeSpace`]), two pages of XDATA ([`XdataMemory`]), the flash it works on ([`SpiFlash`]),
//! disassembly.
//!
//! [`chip`](crate::chip) is the whole ASM2464PD around it. [`Observer`]s see each instruction before it is executed;
//! [`Trace`] is one. [`Machine`] calls single routines.

mod bus;
mod code_space;
mod disasm;
mod error;
mod machine;
mod observer;
mod sfr;
mod spi_flash;
mod xdata;

pub(crate) use bus::Bus;
pub use code_space::CodeSpace;
#[cfg(test)]
pub(crate) use disasm::Keys;
pub use disasm::{Line, LineKind, disassemble, disassemble_in, listing};
pub use error::RunError;
pub use machine::{Machine, Outcome, Reg, STACK_START};
pub use observer::{Observer, Step, Trace};
pub(crate) use sfr::Sfrs;
pub use sfr::{SFR_CODE_BANK, SFR_XDATA_PAGE};
pub use spi_flash::{FlashGone, MemoryFlash, SpiFlash};
pub use xdata::{Access, AccessKind, PlainMemory, Registers, Xdata, XdataMemory};
