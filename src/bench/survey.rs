//! Whether a unit can be measured at all: asked before anything is sent.

use super::error::BenchError;
use crate::firmware::BridgeState;

/// Returns an error unless the unit runs firmware that has paths to measure: the boot loader takes the commands that write
/// the flash and no others. Source: the reference's table of states.
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
