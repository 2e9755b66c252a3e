//! What devices behind the bridge reach as bus masters: the SRAM, and the NVMe queues.

use super::dma::Dma;
use super::fabric::HostMemory;
use super::nvme::Nvme;
use super::sram::Sram;

/// Where the SRAM stands for the PCIe side. Source: tinygrad's hardware probing.
const SRAM: u64 = 0x0020_0000;

/// The blocks that answer the PCIe side.
pub(super) struct Targets<'a> {
    pub(super) sram: &'a mut Sram,
    pub(super) nvme: &'a mut Nvme,
    pub(super) dma: &'a mut Dma,
    /// A write came.
    pub(super) is_written: bool,
}

impl HostMemory for Targets<'_> {
    fn read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let at = address.checked_sub(SRAM).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.sram.bytes().get(at..at.checked_add(data.len())?)) {
            Some(found) => {
                data.copy_from_slice(found);
                true
            }
            None => self.nvme.pcie_read(address, data),
        }
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        let within = |base: u64, len: usize| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            at.checked_add(data.len()).filter(|end| *end <= len).map(|_| at)
        };
        if let Some(at) = within(SRAM, super::SRAM_LEN) {
            self.sram.load(at, data);
        } else if within(self.nvme.base(), Nvme::QUEUE_LEN).is_some() {
            if let Some(released) = self.nvme.pcie_write(address, data) {
                self.dma.release(released);
            }
        } else {
            return false;
        }
        self.is_written = true;
        true
    }
}
