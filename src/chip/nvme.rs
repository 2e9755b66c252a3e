//! The NVMe completion queue: 32 entries that the PCIe side writes, and that the CPU reads through a window.
//!
//! No NVMe device is modelled. Doorbells go nowhere.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xB800-0xB80F: the entry of index 0xC8D5 while 0xC8D6.0 is set. Source: c:0x2608.
const WINDOW: u16 = 0xB800;
const INDEX: u16 = 0xC8D5;
const WINDOW_ON: u16 = 0xC8D6;
/// 0xB26E:0xB26F: the queue's PCIe address / 0x1000. Source: b0:0xD13E writes 0828; open firmware leaves it alone and
/// has its queue at 0x00822000, which is taken for the default.
const QUEUE: u16 = 0xB26E;
/// 0xCEF3: .3 an entry came, write 1 clears. Source: c:0x4821, 0x3EDE, 0x10E7.
const EVENTS: u16 = 0xCEF3;

const ENTRY_CAME: u8 = 0x08;
const ENTRIES: usize = 32;
const ENTRY_LEN: usize = 16;
const DEFAULT_QUEUE: u16 = 0x0822;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(WINDOW, WINDOW + 15, "NVME_COMPLETION"),
    Register::range(INDEX, WINDOW_ON, "NVME_COMPLETION_WINDOW"),
    Register::range(QUEUE, QUEUE + 1, "NVME_COMPLETION_QUEUE"),
    Register::one(EVENTS, "NVME_EVENTS"),
];

#[derive(Debug)]
pub(super) struct Nvme {
    entries: [u8; ENTRIES * ENTRY_LEN],
    events: u8,
}

impl Nvme {
    pub(super) fn new() -> Self {
        Self { entries: [0; ENTRIES * ENTRY_LEN], events: 0 }
    }

    pub(super) fn entry_came(&self) -> bool {
        self.events & ENTRY_CAME != 0
    }

    pub(super) fn read(&self, addr: u16, stored: u8, memory: &XdataMemory) -> u8 {
        let page = memory.main();
        match addr {
            EVENTS => self.events,
            WINDOW..=0xB80F if page[usize::from(WINDOW_ON)] & 0x01 != 0 => {
                let index = usize::from(page[usize::from(INDEX)]) % ENTRIES;
                self.entries[index * ENTRY_LEN + usize::from(addr - WINDOW)]
            }
            _ => stored,
        }
    }

    /// `true` where the write did something.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> bool {
        let before = self.events;
        if addr == EVENTS {
            self.events &= !value;
        }
        before != self.events
    }

    /// Bytes of the queue.
    pub(super) const QUEUE_LEN: usize = ENTRIES * ENTRY_LEN;

    /// Where the queue stands in the PCIe side's view.
    pub(super) fn base(memory: &XdataMemory) -> u64 {
        let at = usize::from(QUEUE);
        let page = memory.main();
        let stored = u16::from_be_bytes([page[at], page[at + 1]]);
        u64::from(if stored == 0 { DEFAULT_QUEUE } else { stored }) << 12
    }

    /// A write from the PCIe side. What is in the queue is kept; the command ID's low byte of the entry whose last
    /// bytes came, where one did.
    pub(super) fn pcie_write(&mut self, addr: u64, data: &[u8], memory: &XdataMemory) -> Option<u8> {
        let base = Self::base(memory);
        let mut came = None;
        for (index, byte) in data.iter().enumerate() {
            let offset = (addr + index as u64).checked_sub(base).and_then(|offset| usize::try_from(offset).ok());
            if let Some(cell) = offset.and_then(|offset| self.entries.get_mut(offset)) {
                *cell = *byte;
                came = offset.filter(|offset| offset % ENTRY_LEN == ENTRY_LEN - 1).or(came);
            }
        }
        let last = came?;
        self.events |= ENTRY_CAME;
        Some(self.entries[last - 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_told_when_its_last_bytes_come_and_seen_through_the_window() {
        let mut memory = XdataMemory::new();
        let mut nvme = Nvme::new();
        let mut entry = [0; 16];
        entry[12..15].copy_from_slice(&[0x0A, 0x03, 1]);
        assert_eq!(nvme.pcie_write(0x0082_2000 + 32, &entry[..12], &memory), None);
        assert!(!nvme.entry_came());
        assert_eq!(nvme.pcie_write(0x0082_2000 + 44, &entry[12..], &memory), Some(0x0A));
        assert!(nvme.entry_came());
        memory.main_mut()[usize::from(INDEX)..][..2].copy_from_slice(&[2, 1]);
        assert_eq!([12, 13, 14].map(|at| nvme.read(WINDOW + at, 0, &memory)), [0x0A, 0x03, 1]);
        assert!(nvme.write(EVENTS, ENTRY_CAME) && !nvme.entry_came());
    }

    #[test]
    fn the_queue_is_where_the_firmware_put_it() {
        let mut memory = XdataMemory::new();
        memory.main_mut()[usize::from(QUEUE)..][..2].copy_from_slice(&[0x08, 0x28]);
        let mut nvme = Nvme::new();
        assert_eq!(nvme.pcie_write(0x0082_2000, &[0; 16], &memory), None);
        assert_eq!(nvme.pcie_write(0x0082_8000, &[0; 16], &memory), Some(0));
        assert_eq!(nvme.pcie_write(u64::MAX - 3, &[0; 4], &memory), None);
    }
}
