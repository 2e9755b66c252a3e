//! What is behind the bridge, and what its firmware can do: asked before anything is written.

use std::time::Duration;

use super::error::BenchError;
use super::path::WINDOW_AT;
use crate::bridge::{Bridge, CommandError, DataPhase, Transport};
use crate::firmware::BridgeState;
use crate::scsi::{Command, ScsiStatus, XdataAddress};

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

/// What READ CAPACITY and E6 Identify tell of what is behind the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// No medium that WRITE(16) could overwrite: a GPU, or nothing.
    NoMedium,
    /// An SSD: its capacity or model.
    Ssd(String),
}

/// Asks READ CAPACITY, then E6 Identify. Only both together say that there is no SSD.
///
/// # Errors
/// [`BenchError::CannotTell`] where READ CAPACITY gets no answer that means anything.
pub fn survey<T: Transport>(bridge: &mut Bridge<T>) -> Result<Behind, BenchError> {
    match bridge.read_capacity() {
        Ok(Some(capacity)) if capacity.blocks > 0 && capacity.block_len > 0 => {
            return Ok(Behind::Ssd(decimal_bytes(capacity.bytes())));
        }
        Ok(_) => {}
        Err(error) => return Err(BenchError::CannotTell(error)),
    }
    match bridge.identify() {
        // Bytes 24 to 63 of Identify Controller are the model number, in ASCII (NVMe base specification 1.4, figure
        // 247). A bridge without an SSD that answers with zeros has none behind it.
        Ok(data) if data[24..64].iter().any(|byte| byte.is_ascii_graphic()) => {
            Ok(Behind::Ssd(String::from_utf8_lossy(&data[24..64]).trim().to_owned()))
        }
        // Refused, short, or without an answer: nobody behind the bridge speaks NVMe.
        Ok(_) | Err(CommandError::CheckCondition { .. } | CommandError::Short { .. }) => Ok(Behind::NoMedium),
        Err(CommandError::Transport(crate::bridge::TransportError::Timeout { .. })) => {
            bridge
                .recover()
                .map_err(|source| BenchError::NotRecovered { path: "E6 (NVMe Identify)".to_owned(), source })?;
            Ok(Behind::NoMedium)
        }
        Err(error) => Err(BenchError::CannotTell(error)),
    }
}

/// Whether E4 takes more than 255 bytes: asks for 256.
///
/// Stock firmware takes the length from CDB byte 1 alone, which is 0 then, and moves no data; with the extension all
/// 256 bytes come. See docs/e4-length-16.md.
///
/// # Errors
/// [`BenchError::Transport`] where the wire failed.
pub fn has_e4_extension<T: Transport>(bridge: &mut Bridge<T>, timeout: Duration) -> Result<bool, BenchError> {
    let mut data = [0; 256];
    let command = Command::XdataRead { from: XdataAddress::main(WINDOW_AT), len: 256 };
    let completion = bridge.execute(command, DataPhase::In(&mut data), timeout)?;
    Ok(completion.status == ScsiStatus::Good && completion.transferred == data.len())
}

/// A capacity as SSDs are sold by it: in powers of 1000, the largest unit that it has at least one of.
fn decimal_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // From 999.95 on, one decimal would make it 1000.0 of the smaller unit.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_told_in_the_unit_that_fits() {
        for (bytes, text) in [
            (512, "512 bytes"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (1_048_576, "1.0 MB"),
            (500_107_862_016, "500.1 GB"),
            (2_000_398_934_016, "2.0 TB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(decimal_bytes(bytes), text);
        }
    }

    #[test]
    fn only_the_vendors_firmware_is_measured() {
        assert!(runs_firmware(BridgeState::Vendor).is_ok());
        for state in [BridgeState::BootLoader, BridgeState::OpenFirmware] {
            let error = runs_firmware(state).unwrap_err();
            assert!(error.to_string().contains(&state.to_string()), "{error}");
        }
    }
}
