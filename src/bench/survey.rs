//! What is behind the bridge, and what its firmware can do: asked before anything is written.

use std::time::Duration;

use super::error::BenchError;
use super::path::WINDOW_AT;
use crate::bridge::{Bridge, CommandError, DataPhase, Transport};
use crate::scsi::{Command, ScsiStatus, XdataAddress};

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
            return Ok(Behind::Ssd(format!("{:.1} GB", capacity.bytes() as f64 / 1e9)));
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
