//! TLPs on the open firmware, by F0.

use super::engine::{EngineError, TlpEngine};
use crate::bridge::OpenBridge;
use crate::bridge::open::{Completion, Tlp};
use crate::chip::Simulated;
use crate::scsi::XdataAddress;

impl TlpEngine for OpenBridge {
    fn simulated(&mut self) -> Option<Simulated> {
        Self::simulated(self)
    }

    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, EngineError> {
        Ok(Self::tlps(self, tlps)?)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), EngineError> {
        Ok(Self::xdata_read(self, from, buffer)?)
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), EngineError> {
        Ok(self.xdata_write_all(writes)?)
    }
}
