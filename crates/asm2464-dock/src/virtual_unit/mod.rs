//! A unit in software, with its SPI flash in a file. It powers on like the chip and speaks Bulk-Only and UAS
//! on the wire. Everything above the wire is the code that runs on hardware.
//!
//! docs/virtual-unit.md describes the unit's behaviour where the chip's details are not known.

mod boot_loader;
mod chip_unit;
mod descriptors;
mod disk;
mod nor;
mod open;
mod pipes;
mod port;
mod replug;
mod replug_requests;
mod responder;
mod scenario;
pub(crate) mod setup;
mod timing;
mod unit;
#[cfg(unix)]
pub mod usbredir;
mod wire;

#[cfg(test)]
mod tests;

pub use chip_unit::Counts;
pub use descriptors::{Descriptors, Identity, STREAMS};
pub use nor::{FLASH_LEN, FlashFault, NorFlash, PAGE_LEN, SECTOR_LEN};
pub use open::VirtualOpenError;
pub use pipes::VirtualPipes;
pub use port::{Unopened, VirtualPort};
pub use replug::{ReplugError, replug};
pub use responder::{Reply, Responder};
pub use scenario::{
    Behind, BulkHangs, CpuReset, Factory, Fault, FaultKind, FaultPlan, PowerOnState, Scenario, ScenarioError,
};
pub use timing::Timing;
pub use unit::{ControlAnswer, NoSuchAlternate, SharedUnit, VirtualUnit};
