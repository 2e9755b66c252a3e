//! Whether a unit can be measured at all: asked before anything is sent.

use super::error::BenchError;
use crate::firmware::BridgeState;

/// Lets pass only what runs the vendor's firmware: the boot loader takes the commands that write the flash and no
/// others, the open firmware control requests in place of SCSI. Source: the reference's table of states.
///
/// # Errors
/// [`BenchError::NoFirmware`].
pub const fn runs_firmware(state: BridgeState) -> Result<(), BenchError> {
    match state {
        BridgeState::Vendor => Ok(()),
        BridgeState::BootLoader | BridgeState::OpenFirmware => Err(BenchError::NoFirmware { state }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_vendors_firmware_is_measured() {
        assert!(runs_firmware(BridgeState::Vendor).is_ok());
        for state in [BridgeState::BootLoader, BridgeState::OpenFirmware] {
            let error = runs_firmware(state).unwrap_err();
            assert!(error.to_string().contains(&state.to_string()), "{error}");
        }
    }
}
