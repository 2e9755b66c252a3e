//! Check whether a unit can be measured, before anything is sent.

use super::error::BenchError;
use crate::firmware::BridgeState;

/// Returns an error unless the unit runs firmware with paths to measure. The boot loader takes only the commands that
/// write the flash. Source: the reference's table of states.
///
/// # Errors
/// [`BenchError::NoFirmware`].
pub const fn runs_firmware(state: BridgeState) -> Result<(), BenchError> {
    match state {
        BridgeState::Vendor | BridgeState::OpenFirmware => Ok(()),
        BridgeState::BootLoader => Err(BenchError::NoFirmware { state }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_loader_is_not_measured() {
        for state in [BridgeState::Vendor, BridgeState::OpenFirmware] {
            assert!(runs_firmware(state).is_ok());
        }
        let error = runs_firmware(BridgeState::BootLoader).unwrap_err();
        assert!(error.to_string().contains("boot loader"), "{error}");
    }
}
