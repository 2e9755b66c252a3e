//! The NVMe queues for I/O: 32 commands that the firmware writes and the PCIe side reads, and 32 completion entries that the
//! PCIe side writes and the CPU reads through a window.
//!
//! No NVMe device is modelled. Doorbells go nowhere.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xB800-0xB80F: the entry of index 0xC8D5 while 0xC8D6.0 is set. Source: c:0x2608.
const WINDOW: u16 = 0xB800;
/// 0xA000-0xA7FF: the submission queue, 64 bytes a command; PCIe 0x00820000. Source: c:0x1BF6, 0x021A:0x021B; the PRPs
/// of queued reads, executed.
const COMMANDS: u16 = 0xA000;
const COMMANDS_ADDRESS: u64 = 0x0082_0000;
const COMMANDS_LEN: usize = 0x800;
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
/// Instructions from the firmware's last write to the submission queue until a device that polls it acts on it (chosen):
/// the DMA of a READ starts some hundred instructions after its command has been written.
const SEEN_AFTER: u64 = 1_000;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(WINDOW, WINDOW + 15, "NVME_COMPLETION"),
    Register::range(COMMANDS, COMMANDS + (COMMANDS_LEN as u16 - 1), "NVME_COMMANDS"),
    Register::range(INDEX, WINDOW_ON, "NVME_COMPLETION_WINDOW"),
    Register::range(QUEUE, QUEUE + 1, "NVME_COMPLETION_QUEUE"),
    Register::one(EVENTS, "NVME_EVENTS"),
];

#[derive(Debug)]
pub(super) struct Nvme {
    entries: [u8; ENTRIES * ENTRY_LEN],
    /// What the registers hold that the PCIe side sees.
    commands: [u8; COMMANDS_LEN],
    queue: [u8; 2],
    events: u8,
    /// When a device that polls the submission queue acts on what stands there.
    seen_at: Option<u64>,
}

impl Nvme {
    pub(super) fn new() -> Self {
        Self { entries: [0; ENTRIES * ENTRY_LEN], commands: [0; COMMANDS_LEN], queue: [0; 2], events: 0, seen_at: None }
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
        match addr {
            EVENTS => self.events &= !value,
            QUEUE..=0xB26F => self.queue[usize::from(addr - QUEUE)] = value,
            COMMANDS..=0xA7FF => self.commands[usize::from(addr - COMMANDS)] = value,
            _ => {}
        }
        before != self.events
    }

    /// Whether an address belongs to the submission queue.
    pub(super) const fn is_command(addr: u16) -> bool {
        addr >= COMMANDS && addr < COMMANDS + COMMANDS_LEN as u16
    }

    /// A device that polls the submission queue will act on what stands there.
    pub(super) const fn will_be_seen(&mut self, now: u64) {
        self.seen_at = Some(now + SEEN_AFTER);
    }

    /// When that is.
    pub(super) const fn seen_at(&self) -> Option<u64> {
        self.seen_at
    }

    /// Whether that moment has come. It comes once.
    pub(super) fn is_seen(&mut self, now: u64) -> bool {
        self.seen_at.take_if(|at| *at <= now).is_some()
    }

    /// A read of the submission queue from the PCIe side; `false` where not all of it is there.
    pub(super) fn pcie_read(&self, addr: u64, data: &mut [u8]) -> bool {
        let at = addr.checked_sub(COMMANDS_ADDRESS).and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| self.commands.get(at..at.checked_add(data.len())?));
        if let Some(found) = found {
            data.copy_from_slice(found);
        }
        found.is_some()
    }

    /// Bytes of the completion queue.
    pub(super) const QUEUE_LEN: usize = ENTRIES * ENTRY_LEN;

    /// Where the completion queue stands in the PCIe side's view.
    pub(super) fn base(&self) -> u64 {
        let stored = u16::from_be_bytes(self.queue);
        u64::from(if stored == 0 { DEFAULT_QUEUE } else { stored }) << 12
    }

    /// A write from the PCIe side. What is in the queue is kept; the command ID's low byte of the entry whose last
    /// bytes came, where one did.
    pub(super) fn pcie_write(&mut self, addr: u64, data: &[u8]) -> Option<u8> {
        let base = self.base();
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
        assert_eq!(nvme.pcie_write(0x0082_2000 + 32, &entry[..12]), None);
        assert!(!nvme.entry_came());
        assert_eq!(nvme.pcie_write(0x0082_2000 + 44, &entry[12..]), Some(0x0A));
        assert!(nvme.entry_came());
        memory.main_mut()[usize::from(INDEX)..][..2].copy_from_slice(&[2, 1]);
        assert_eq!([12, 13, 14].map(|at| nvme.read(WINDOW + at, 0, &memory)), [0x0A, 0x03, 1]);
        assert!(nvme.write(EVENTS, ENTRY_CAME) && !nvme.entry_came());
    }

    #[test]
    fn the_queue_is_where_the_firmware_put_it() {
        let mut nvme = Nvme::new();
        assert!(!nvme.write(QUEUE, 0x08) && !nvme.write(QUEUE + 1, 0x28));
        assert_eq!(nvme.pcie_write(0x0082_2000, &[0; 16]), None);
        assert_eq!(nvme.pcie_write(0x0082_8000, &[0; 16]), Some(0));
        assert_eq!(nvme.pcie_write(u64::MAX - 3, &[0; 4]), None);
    }

    #[test]
    fn a_device_reads_the_commands_and_acts_once_on_what_was_written_last() {
        let mut nvme = Nvme::new();
        for (addr, value) in (0xA040..).zip([2, 0, 3, 1]) {
            assert!(Nvme::is_command(addr) && !nvme.write(addr, value));
        }
        let mut command = [0; 4];
        assert!(nvme.pcie_read(0x0082_0040, &mut command));
        assert_eq!(command, [2, 0, 3, 1]);
        assert!(nvme.pcie_read(0x0082_07FC, &mut command));
        for addr in [0x0082_07FD, 0x0081_FFFF, 0x0082_8000, u64::MAX] {
            assert!(!nvme.pcie_read(addr, &mut command), "{addr:#x}");
        }
        nvme.will_be_seen(5);
        nvme.will_be_seen(10);
        assert!(!nvme.is_seen(9 + SEEN_AFTER) && nvme.is_seen(10 + SEEN_AFTER) && !nvme.is_seen(u64::MAX));
    }
}
