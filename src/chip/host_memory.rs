//! What devices behind the bridge reach as bus masters: the SRAM, and the NVMe queues.

use super::dma::Dma;
use super::fabric::HostMemory;
use super::nvme::{self, Came, Nvme};
use super::sram::Sram;
use crate::mcu::XdataMemory;

/// The blocks that the PCIe side reaches.
pub(super) struct Targets<'a> {
    pub(super) memory: &'a mut XdataMemory,
    pub(super) sram: &'a mut Sram,
    pub(super) nvme: &'a mut Nvme,
    pub(super) dma: &'a mut Dma,
    /// A write came.
    pub(super) is_written: bool,
}

/// Where the SRAM has an address.
fn in_sram(address: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(address.checked_sub(nvme::SRAM)?).ok()?;
    at.checked_add(len).filter(|end| *end <= super::SRAM_LEN).map(|_| at)
}

impl HostMemory for Targets<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        if let Some(at) = in_sram(address, into.len()) {
            into.copy_from_slice(&self.sram.bytes()[at..at + into.len()]);
            return true;
        }
        Nvme::pcie_read(address, into, self.memory)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        if let Some(at) = in_sram(address, data.len()) {
            self.sram.load(at, data);
        } else {
            match self.nvme.pcie_write(address, data, self.memory) {
                None => return false,
                Some(Came::Entry(released)) => self.dma.release(released),
                Some(Came::Bytes) => {}
            }
        }
        self.is_written = true;
        true
    }
}
