//! PCIe's own error registers, before a soak and after it.

use asm2464_host::pcie::{CapabilityKind, Function, NoTime, Pcie, PcieError, Scope};

use super::ATTEMPTS;
use super::report::{ErrorRegisters, PcieErrors};
use crate::bench::unit::{BenchedUnit, PreparedUnit};

/// Advanced Error Reporting, and the offsets of its two status registers.
const ERROR_REPORTING: u16 = 0x0001;
const UNCORRECTABLE_STATUS: u16 = 0x04;
const CORRECTABLE_STATUS: u16 = 0x10;
/// Secondary PCI Express, and the offset of Lane Error Status.
const SECONDARY_EXPRESS: u16 = 0x0019;
const LANE_ERROR_STATUS: u16 = 0x08;
/// Beginning of the extended space, whose capabilities have IDs of their own.
const EXTENDED: u16 = 0x100;
/// Offset of the dword with Device Status in its upper half.
const DEVICE_STATUS: u16 = 0x08;

/// Reads PCIe's own error registers, of the bridge's ports and of what is behind them. Returns an empty list if PCIe
/// can't be reached: with an SSD behind the bridge, the firmware needs the TLP engine itself.
///
/// # Errors
/// The last of several attempts, between which the unit is recovered.
pub(super) fn read_registers(
    subject: &mut dyn BenchedUnit,
    known: &PreparedUnit,
) -> Result<Vec<PcieErrors>, PcieError> {
    if known.devices.as_ref().is_none_or(|devices| devices.function.is_none()) {
        return Ok(Vec::new());
    }
    let mut attempts = 1;
    loop {
        let outcome = all_registers(&mut Pcie::new(&mut *subject.engine(), &mut NoTime));
        match outcome {
            Err(_) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
        // If this fails, so does the next attempt.
        let _ = subject.revive(known.sram.is_initialised);
    }
}

/// Puts the registers' values after the soak beside those before it.
pub(super) fn join_registers(functions: &mut [PcieErrors], after: &[PcieErrors]) {
    for function in functions {
        let same = after.iter().find(|other| (other.at, &other.id) == (function.at, &function.id));
        function.after = same.map(|other| other.before);
    }
}

/// Reads the error registers of every function that has some.
fn all_registers(pcie: &mut Pcie<'_>) -> Result<Vec<PcieErrors>, PcieError> {
    let survey = pcie.survey(Scope { extended: true, ..Scope::READ_ONLY })?;
    let mut found = Vec::new();
    for function in &survey.functions {
        let registers = registers_of(pcie, function)?;
        if registers != ErrorRegisters::default() {
            let id = format!("{:04x}:{:04x}", function.vendor, function.device);
            found.push(PcieErrors { at: function.at, id, before: registers, after: None });
        }
    }
    Ok(found)
}

fn registers_of(pcie: &mut Pcie<'_>, function: &Function) -> Result<ErrorRegisters, PcieError> {
    let mut registers = ErrorRegisters::default();
    for capability in &function.capabilities.list {
        let mut at = |offset| pcie.config_read(function.at, capability.offset + offset);
        if matches!(capability.kind, CapabilityKind::Express(_)) {
            registers.device_status = Some((at(DEVICE_STATUS)? >> 16) as u16);
        } else if capability.offset >= EXTENDED && capability.id == ERROR_REPORTING {
            registers.uncorrectable = Some(at(UNCORRECTABLE_STATUS)?);
            registers.correctable = Some(at(CORRECTABLE_STATUS)?);
        } else if capability.offset >= EXTENDED && capability.id == SECONDARY_EXPRESS {
            registers.lanes = Some(at(LANE_ERROR_STATUS)?);
        }
    }
    Ok(registers)
}
