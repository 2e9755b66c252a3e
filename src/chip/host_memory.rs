//! What devices behind the bridge reach as bus masters: the SRAM, and the NVMe completion queue.

use super::dma::Dma;
use super::fabric::HostMemory;
use super::nvme::Nvme;
use super::sram::Sram;
use crate::mcu::XdataMemory;

/// Where the SRAM stands for the PCIe side. Source: tinygrad's hardware probing.
const SRAM: u64 = 0x0020_0000;

/// The blocks that take writes from the PCIe side.
pub(super) struct Targets<'a> {
    pub(super) memory: &'a XdataMemory,
    pub(super) sram: &'a mut Sram,
    pub(super) nvme: &'a mut Nvme,
    pub(super) dma: &'a mut Dma,
    /// A write came.
    pub(super) is_written: bool,
}

impl HostMemory for Targets<'_> {
    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        let within = |base: u64, len: usize| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            at.checked_add(data.len()).filter(|end| *end <= len).map(|_| at)
        };
        if let Some(at) = within(SRAM, super::SRAM_LEN) {
            self.sram.load(at, data);
        } else if within(Nvme::base(self.memory), Nvme::QUEUE_LEN).is_some() {
            if let Some(released) = self.nvme.pcie_write(address, data, self.memory) {
                self.dma.release(released);
            }
        } else {
            return false;
        }
        self.is_written = true;
        true
    }
}
