//! The 8051: the CPU core's memories ([`Bus`]), the flash behind its controller ([`SpiFlash`]), observing instructions
//! ([`Observer`], [`Trace`]), and their text ([`assembly()`]). [`chip`](crate::chip) models the whole ASM2464PD around
//! it.

mod assembly;
mod bus;
mod observer;
mod spi_flash;
mod xdata;

pub use assembly::assembly;
pub use bus::{Bus, CodeSpace, SFR_CODE_BANK, SFR_XDATA_PAGE, Sfrs};
pub use observer::{Observer, Step, Trace};
pub use spi_flash::{FlashGone, MemoryFlash, SpiFlash};
pub use xdata::{AccessKind, XdataMemory};
