//! A bridge in software: a unit whose SPI flash is in a file, which powers on like the chip and speaks Bulk-Only and
//! UAS at the level of the wire. Everything above the wire is the code that runs on hardware.
//!
//! Where the reference page leaves a detail of the chip open, docs/virtual-bridge.md says what this unit does.

mod bulk_only;
mod chip;
mod chip_unit;
mod descriptors;
mod disk;
mod exchange;
mod executed;
mod factory;
mod firmware;
mod gate;
mod handle;
mod native;
mod nor;
mod open;
mod pages;
mod pipes;
mod port;
mod power_on;
mod recorded;
mod replug;
mod reply;
mod scenario;
mod target;
mod uas;
mod unit;
#[cfg(unix)]
pub mod usbredir;
mod wire;

#[cfg(test)]
mod tests;

pub use chip::{Chip, DATA_BUFFER_LEN, DATA_BUFFER_WINDOW};
pub use descriptors::{Descriptors, Identity, LinkSpeed, STREAMS};
pub use executed::ExecutedFirmware;
pub use firmware::{Firmware, Reply, TransferStatus};
pub use handle::SharedBridge;
pub use native::NativeFirmware;
pub use nor::{FLASH_LEN, FlashFault, FlashTiming, NorFlash, PAGE_LEN, SECTOR_LEN};
pub use open::OpenError;
pub use pipes::VirtualPipes;
pub use port::{Absence, Absent, VirtualPort};
pub use replug::{ReplugError, replug};
pub use reply::{InReply, OutReply};
pub use scenario::{
    Behind, CpuReset, Engine, Factory, Fault, FaultKind, PowerOnState, Scenario, ScenarioError, Timing,
};
pub use unit::{BusEvent, ControlAnswer, NoSuchAlternate, VirtualBridge};
