//! Virtual units, and what tests of several paths do with them.

use asm2464::firmware::Image;
use asm2464::scsi::Lun;
use asm2464_dock::gpu_card::TinyGpu;
use asm2464_dock::virtual_unit::{FirmwareCounts, Scenario, SharedUnit, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Bridge, CommandError, TransportError, TransportErrorKind};
use asm2464_host::pcie::{NoTime, Pcie, Scope, TlpEngine};

/// Two matrices for the card.
pub const A: [u8; 4] = [3, 250, 77, 9];
pub const B: [u8; 4] = [11, 8, 200, 31];

/// A unit with this image, else with the practice image.
pub fn unit(scenario: &str, image: Option<&Image>) -> VirtualPort {
    let file = image.map(Image::to_file);
    let scenario = Scenario::parse(scenario).unwrap();
    VirtualPort::new("unit", VirtualUnit::in_memory(scenario, b"unit", file.as_deref()).unwrap())
}

/// Whether a command had no answer in time.
pub fn is_timeout(error: &CommandError) -> bool {
    matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Timeout { .. }, .. }))
}

/// Finds the card, if there is one, and assigns addresses.
pub fn opened(engine: &mut dyn TlpEngine) -> Option<TinyGpu> {
    let mut patience = NoTime;
    let mut pcie = Pcie::new(engine, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL).unwrap();
    pcie.assign(&mut survey).unwrap();
    TinyGpu::open(&mut pcie, &survey).unwrap()
}

/// Has the vendor's firmware train the PCIe link, which it does at the first question for a medium.
pub fn trained(mut bridge: Bridge) -> Bridge {
    bridge.read_capacity(Lun::ZERO).unwrap();
    bridge
}

/// Counts the firmware's commands and instructions during `work`.
pub fn counted<T>(unit: &SharedUnit, work: impl FnOnce() -> T) -> (T, FirmwareCounts) {
    let before = unit.lock().counts();
    let result = work();
    let after = unit.lock().counts();
    (result, after - before)
}
