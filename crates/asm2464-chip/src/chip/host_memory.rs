//! Memory that devices behind the bridge reach as bus masters: the SRAM and the NVMe queues.

use asm2464::sram::{SRAM_ADDRESS, SRAM_LEN};

use super::dma::Dma;
use super::fabric::HostMemory;
use super::nvme::{Came, Nvme};
use super::sram::Sram;

/// The blocks that answer requests from the PCIe side.
pub(super) struct Targets<'a> {
    pub(super) sram: &'a mut Sram,
    pub(super) nvme: &'a mut Nvme,
    pub(super) dma: &'a mut Dma,
    /// A write has arrived.
    pub(super) is_written: bool,
}

/// Offset of an address in the SRAM.
fn in_sram(address: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(address.checked_sub(SRAM_ADDRESS)?).ok()?;
    at.checked_add(len).filter(|end| *end <= SRAM_LEN).map(|_| at)
}

impl HostMemory for Targets<'_> {
    fn read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let Some(at) = in_sram(address, data.len()) else { return self.nvme.pcie_read(address, data) };
        data.copy_from_slice(&self.sram.bytes()[at..at + data.len()]);
        true
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        if let Some(at) = in_sram(address, data.len()) {
            self.sram.load(at, data);
        } else {
            match self.nvme.pcie_write(address, data) {
                None => return false,
                Some(Came::Entry(released)) => self.dma.release(released),
                Some(Came::Bytes) => {}
            }
        }
        self.is_written = true;
        true
    }
}
