//! The bridge's side of NVMe: memory for the queues of one drive, which the PCIe side reads and writes; the CPU's
//! windows to it; doorbells; and the engine that generates PRP lists.

use asm2464::sram::{COMPLETIONS_PAGE, FENCE_ADDRESS, OPEN_COMPLETIONS_PAGE, SRAM_ADDRESS, SRAM_LEN};

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xA000-0xAFFF: the I/O submission queue. 0xB000-0xB1FF: the admin submission queue. 0xB800-0xBBFF: the I/O
/// completion queue. 0xBC00-0xBC7F: the admin completion queue. Each has a second half for a second drive. Source:
/// c:0x3A10-0x3A3D fills exactly these with zeros before a drive starts.
const IO_SUBMISSION: u16 = 0xA000;
const ADMIN_SUBMISSION: u16 = 0xB000;
const IO_COMPLETION: u16 = 0xB800;
const ADMIN_COMPLETION: u16 = 0xBC00;
/// 0xC8D5: index of an I/O completion queue entry. 0xC8D6.0 shows it at 0xB800; .3 shows the admin completion queue
/// there. Source: c:0x2608; c:0x3AEF-0x3B29.
const COMPLETION_INDEX: u16 = 0xC8D5;
const COMPLETION_WINDOW: u16 = 0xC8D6;
/// 0xC8D7: index of an I/O submission queue entry, or with .7 of the admin submission queue. 0xC8D8.0 shows it at
/// 0xA000-0xA03F. Source: c:0x2402-0x2414, 0x25FD; c:0x3BD7-0x3C36.
const SUBMISSION_INDEX: u16 = 0xC8D7;
const SUBMISSION_WINDOW: u16 = 0xC8D8;
/// 0xB264:0xB265, 0xB266:0xB267: the admin queues' PCIe addresses / 0x1000, submission first. 0xB26C:0xB26D,
/// 0xB26E:0xB26F: the I/O queues'. Source: b0:0xD127-0xD145 writes 0800, 0808, 0820, 0828, and the same addresses go
/// into ASQ, ACQ (b0:0xABA5, 0xABBE) and Create I/O queue (c:0x2463, 0x24AB). Open firmware does not write the last two
/// and has its queues at 0x00820000 and 0x00822000, which are used as the defaults. Source of the first: tinygrad's
/// newer client, whose GPU writes a fence there.
const ADMIN_SUBMISSION_BASE: u16 = 0xB264;
const ADMIN_COMPLETION_BASE: u16 = 0xB266;
const IO_SUBMISSION_BASE: u16 = 0xB26C;
const IO_COMPLETION_BASE: u16 = COMPLETIONS_PAGE.addr;
const OPEN_COMMANDS_PAGE: u16 = (FENCE_ADDRESS >> 12) as u16;
/// 0xB275:0xB276: a page of the SRAM, in units of 4 KiB. 0xB278-0xB27B is then the address of the PRP list that begins
/// with that page. Source: c:0x1E5E-0x1E84. The firmware writes no list anywhere, so the chip must generate it.
const LIST_PAGE: u16 = 0xB275;
const LIST_ADDRESS: u16 = 0xB278;
/// 0xCEF3.3: an entry of the I/O completion queue arrived. 0xCEF2.7: one of the admin completion queue. Write 1 clears.
/// Source: c:0x4821, 0x3EDE, 0x10E7; c:0x10FE, 0x49C1.
const ADMIN_EVENTS: u16 = 0xCEF2;
const EVENTS: u16 = 0xCEF3;
/// 0xC8B2:0xC8B3: an address; 0xC8B4:0xC8B5: bytes - 1; 0xC8B6: .7 and .2 set, .1 and .0 clear: fill; 0xC8B7: the value;
/// 0xC8B8.0 starts, and reads 0 when done. The routine that fills keeps 0xC8B6.4, which is set at power-on (recording of
/// 231204, lines 1198 to 1213: the fill is 94). 0xC8D8.1 (of 0xA000-0xB1FF) and 0xC8D6.1 (of 0xB800-0xBC7F) select a second bank, whose purpose
/// is not known. Source: c:0x4A57 and its callers. Only b1:0xCF98 uses other modes; they do nothing here.
const MOVER: u16 = 0xC8B2;
const MOVER_LENGTH: u16 = 0xC8B4;
const MOVER_MODE: u16 = 0xC8B6;
const MOVER_VALUE: u16 = 0xC8B7;
const MOVER_START: u16 = 0xC8B8;
const FILL: u8 = 0x84;
const FILL_MASK: u8 = 0x87;
const SECOND_BANK: u8 = 0x02;

const ENTRY_CAME: u8 = 0x08;
const ADMIN_ENTRY_CAME: u8 = 0x80;
const COMMAND_LEN: usize = 64;
const ENTRY_LEN: usize = 16;
/// Instructions from the firmware's last write to the submission queue until a polling device acts on it (chosen). The
/// DMA of a READ starts some hundred instructions after its command has been written.
const SEEN_AFTER: u64 = 1_000;
/// Address of the PRP lists as the PCIe side sees them (chosen: the firmware uses the value of 0xB278).
const LISTS: u64 = 0x00A0_0000;
/// Address of a drive's registers. Source: b0:0xE762 adds offsets to it, and the code from b0:0x9A46 on puts the BAR
/// there. No register holds the doorbells' address, so the engine must have it built in.
const DRIVE: u64 = 0x00D0_0000;
const DOORBELLS: u64 = DRIVE + 0x1000;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(IO_SUBMISSION, ADMIN_SUBMISSION + 0x1FF, "NVME_COMMANDS"),
    Register::range(IO_COMPLETION, ADMIN_COMPLETION + 0x7F, "NVME_COMPLETION"),
    Register::range(COMPLETION_INDEX, SUBMISSION_WINDOW, "NVME_WINDOWS"),
    Register::range(ADMIN_SUBMISSION_BASE, ADMIN_COMPLETION_BASE + 1, "NVME_ADMIN_QUEUES"),
    Register::range(IO_SUBMISSION_BASE, IO_COMPLETION_BASE + 1, "NVME_IO_QUEUES"),
    Register::range(LIST_PAGE, LIST_PAGE + 1, "NVME_LIST_PAGE"),
    Register::range(LIST_ADDRESS, LIST_ADDRESS + 3, "NVME_LIST_ADDRESS"),
    Register::range(ADMIN_EVENTS, EVENTS, "NVME_EVENTS"),
    Register::range(MOVER, MOVER_START, "MOVER"),
];

/// Content of a write from the PCIe side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// An I/O completion entry; holds the low byte of its command ID.
    Entry(u8),
    /// Anything else.
    Bytes,
}

/// The queues' memory: address and length of each.
const QUEUES: [(u16, usize); 4] =
    [(IO_SUBMISSION, 0x1000), (ADMIN_SUBMISSION, 0x200), (IO_COMPLETION, 0x400), (ADMIN_COMPLETION, 0x80)];
/// The registers with a queue's PCIe address, in the same order.
const BASES: [u16; 4] = [IO_SUBMISSION_BASE, ADMIN_SUBMISSION_BASE, IO_COMPLETION_BASE, ADMIN_COMPLETION_BASE];
/// Bytes from the start of the first queue to the end of the last: 0xA000 to 0xBC7F.
const MEMORY_LEN: usize = 0x1C80;

#[derive(Debug)]
pub(super) struct Nvme {
    memory: Box<[u8; MEMORY_LEN]>,
    /// [`BASES`], as written.
    bases: [u16; 4],
    events: u8,
    admin_events: u8,
    /// Time at which a polling device acts on the submission queue.
    seen_at: Option<u64>,
}

impl Nvme {
    pub(super) fn new() -> Self {
        Self { memory: Box::new([0; MEMORY_LEN]), bases: [0; 4], events: 0, admin_events: 0, seen_at: None }
    }

    pub(super) fn entry_came(&self) -> bool {
        self.events & ENTRY_CAME != 0 || self.admin_events & ADMIN_ENTRY_CAME != 0
    }

    pub(super) fn read(&self, addr: u16, stored: u8, memory: &XdataMemory) -> u8 {
        let page = memory.main();
        match addr {
            EVENTS => self.events,
            ADMIN_EVENTS => self.admin_events,
            MOVER_START => stored & !0x01,
            LIST_ADDRESS..=0xB27B => {
                let list = LISTS + 8 * u64::from(word(page, LIST_PAGE));
                (list as u32).to_be_bytes()[usize::from(addr - LIST_ADDRESS)]
            }
            _ => shown(addr, page).map_or(stored, |at| self.memory[at]),
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, memory: &XdataMemory) -> bool {
        let page = memory.main();
        match addr {
            EVENTS => {
                let cleared = self.events & value;
                self.events &= !value;
                return cleared != 0;
            }
            ADMIN_EVENTS => {
                let cleared = self.admin_events & value;
                self.admin_events &= !value;
                return cleared != 0;
            }
            MOVER_START if value & 0x01 != 0 => self.fill(page),
            _ => {
                if let Some(queue) = BASES.iter().position(|base| addr & !1 == *base) {
                    self.bases[queue] = word(page, BASES[queue]);
                } else if let Some(at) = shown(addr, page) {
                    self.memory[at] = value;
                }
            }
        }
        false
    }

    fn fill(&mut self, page: &[u8]) {
        let first = word(page, MOVER);
        let Some((at, len)) = QUEUES.iter().find(|(at, len)| usize::from(first.wrapping_sub(*at)) < *len) else {
            return;
        };
        let bank = if *at < IO_COMPLETION { SUBMISSION_WINDOW } else { COMPLETION_WINDOW };
        if page[usize::from(MOVER_MODE)] & FILL_MASK != FILL || page[usize::from(bank)] & SECOND_BANK != 0 {
            return;
        }
        let start = usize::from(first - IO_SUBMISSION);
        let end = usize::from(*at - IO_SUBMISSION) + len;
        let count = usize::from(word(page, MOVER_LENGTH)) + 1;
        self.memory[start..end.min(start + count)].fill(page[usize::from(MOVER_VALUE)]);
    }

    /// Whether an address belongs to the I/O submission queue.
    pub(super) const fn is_command(addr: u16) -> bool {
        addr >= IO_SUBMISSION && addr < ADMIN_SUBMISSION
    }

    /// Schedules the moment at which a polling device acts on the submission queue.
    pub(super) const fn will_be_seen(&mut self, now: u64) {
        self.seen_at = Some(now + SEEN_AFTER);
    }

    /// The time of that moment, while it is scheduled.
    pub(super) const fn seen_at(&self) -> Option<u64> {
        self.seen_at
    }

    /// Whether that moment has come. Returns `true` only once.
    pub(super) fn is_seen(&mut self, now: u64) -> bool {
        self.seen_at.take_if(|at| *at <= now).is_some()
    }

    /// Finds the queue that contains an address of the PCIe side, and the offset in the queues' memory.
    fn place(&self, addr: u64, len: usize) -> Option<(u16, usize)> {
        for (index, (at, queue_len)) in QUEUES.into_iter().enumerate() {
            let base = match (self.bases[index], BASES[index]) {
                (0, IO_COMPLETION_BASE) => OPEN_COMPLETIONS_PAGE,
                (0, IO_SUBMISSION_BASE) => OPEN_COMMANDS_PAGE,
                (0, _) => continue,
                (base, _) => base,
            };
            let Some(offset) = addr.checked_sub(u64::from(base) << 12) else { continue };
            if len > 0 && offset.saturating_add(len as u64) <= queue_len as u64 {
                return Some((at, usize::from(at - IO_SUBMISSION) + offset as usize));
            }
        }
        None
    }

    /// Writes from the PCIe side; `None` if the range is not completely inside the queues.
    pub(super) fn pcie_write(&mut self, addr: u64, data: &[u8]) -> Option<Came> {
        let (queue, at) = self.place(addr, data.len())?;
        let end = at + data.len();
        self.memory[at..end].copy_from_slice(data);
        // End of the last entry whose last byte has arrived.
        let entry_ends = end / ENTRY_LEN * ENTRY_LEN;
        match queue {
            IO_COMPLETION if entry_ends > at => {
                self.events |= ENTRY_CAME;
                return Some(Came::Entry(self.memory[entry_ends - 4]));
            }
            ADMIN_COMPLETION if entry_ends > at => self.admin_events |= ADMIN_ENTRY_CAME,
            _ => {}
        }
        Some(Came::Bytes)
    }

    /// Reads a queue or a PRP list from the PCIe side. Returns `false` if some of the range does not exist.
    pub(super) fn pcie_read(&self, addr: u64, data: &mut [u8]) -> bool {
        if let Some((_, at)) = self.place(addr, data.len()) {
            data.copy_from_slice(&self.memory[at..at + data.len()]);
            return true;
        }
        let listed = LISTS..LISTS + 8 * (SRAM_LEN as u64 >> 12);
        let is_list = addr.is_multiple_of(8)
            && data.len().is_multiple_of(8)
            && listed.contains(&addr)
            && (listed.end - addr) as usize >= data.len();
        if is_list {
            for (index, entry) in data.chunks_exact_mut(8).enumerate() {
                let number = (addr - LISTS) / 8 + index as u64;
                entry.copy_from_slice(&(SRAM_ADDRESS + (number << 12)).to_le_bytes());
            }
        }
        is_list
    }

    /// Puts a command into an entry of the I/O submission queue.
    pub(super) fn put_command(&mut self, entry: u8, command: &[u8; COMMAND_LEN]) {
        let at = COMMAND_LEN * usize::from(entry & 0x3F);
        self.memory[at..at + COMMAND_LEN].copy_from_slice(command);
    }

    /// The doorbell that a value of 0xB254 rings; `None` for other values, and for those of a second drive. Source:
    /// b0:0xE617, 0xE62F, 0xE647, 0xE65F: 01 submission and 11 completion of the admin queue, 03 and 13 of the I/O
    /// queue; each one more for a second drive. The stride is the minimum (chosen: firmware stores CAP.DSTRD and never
    /// uses it).
    pub(super) fn doorbell(fire: u8) -> Option<u64> {
        match fire {
            0x01 => Some(DOORBELLS),
            0x11 => Some(DOORBELLS + 4),
            0x03 => Some(DOORBELLS + 8),
            0x13 => Some(DOORBELLS + 12),
            _ => None,
        }
    }
}

/// Builds PRP 1 and PRP 2 for data of this length from an SRAM slot on, as c:0x1D43 does.
pub(super) fn data_pointer(sram_slot: u8, len: u32) -> (u64, u64) {
    let page = 4 * u64::from(sram_slot);
    let first = SRAM_ADDRESS + (page << 12);
    let second = match len {
        0..=0x1000 => 0,
        0x1001..=0x2000 => first + 0x1000,
        _ => LISTS + 8 * (page + 1),
    };
    (first, second)
}

/// Offset in the queues' memory that the CPU sees at an address; `None` outside the windows.
fn shown(addr: u16, page: &[u8]) -> Option<usize> {
    let byte = |at: u16| usize::from(page[usize::from(at)]);
    let (first, _) = QUEUES.iter().find(|(at, len)| usize::from(addr.wrapping_sub(*at)) < *len)?;
    let offset = usize::from(addr - *first);
    let at = |queue: u16| usize::from(queue - IO_SUBMISSION);
    Some(match *first {
        IO_SUBMISSION if offset < COMMAND_LEN && byte(SUBMISSION_WINDOW) & 0x01 != 0 => {
            let index = byte(SUBMISSION_INDEX);
            match index & 0x80 {
                0 => at(IO_SUBMISSION) + COMMAND_LEN * (index & 0x3F) + offset,
                _ => at(ADMIN_SUBMISSION) + COMMAND_LEN * (index & 0x07) + offset,
            }
        }
        IO_COMPLETION if offset < 0x80 && byte(COMPLETION_WINDOW) & 0x08 != 0 => at(ADMIN_COMPLETION) + offset,
        IO_COMPLETION if offset < ENTRY_LEN && byte(COMPLETION_WINDOW) & 0x01 != 0 => {
            at(IO_COMPLETION) + ENTRY_LEN * (byte(COMPLETION_INDEX) & 0x3F) + offset
        }
        queue => at(queue) + offset,
    })
}

fn word(page: &[u8], at: u16) -> u16 {
    u16::from_be_bytes([page[usize::from(at)], page[usize::from(at) + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(memory: &mut XdataMemory, values: &[(u16, u8)]) {
        for (at, value) in values {
            memory.main_mut()[usize::from(*at)] = *value;
        }
    }

    #[test]
    fn an_entry_raises_its_event_with_its_last_bytes_and_is_seen_through_the_window() {
        let mut memory = XdataMemory::new();
        let mut nvme = Nvme::new();
        let mut entry = [0; 16];
        entry[12..15].copy_from_slice(&[0x0A, 0x03, 1]);
        assert_eq!(nvme.pcie_write(0x0082_2000 + 32, &entry[..12]), Some(Came::Bytes));
        assert!(!nvme.entry_came());
        assert_eq!(nvme.pcie_write(0x0082_2000 + 44, &entry[12..]), Some(Came::Entry(0x0A)));
        assert!(nvme.entry_came());
        set(&mut memory, &[(COMPLETION_INDEX, 2), (COMPLETION_WINDOW, 1)]);
        assert_eq!([12, 13, 14].map(|at| nvme.read(IO_COMPLETION + at, 0, &memory)), [0x0A, 0x03, 1]);
        assert!(nvme.write(EVENTS, ENTRY_CAME, &memory) && !nvme.entry_came());
    }

    /// Builds queues at the addresses that 240417 uses.
    fn with_queues(memory: &mut XdataMemory) -> Nvme {
        let mut nvme = Nvme::new();
        for (at, value) in [(0xB264, 0x08), (0xB265, 0x00), (0xB266, 0x08), (0xB267, 0x08)].into_iter().chain([
            (0xB26C, 0x08),
            (0xB26D, 0x20),
            (0xB26E, 0x08),
            (0xB26F, 0x28),
        ]) {
            set(memory, &[(at, value)]);
            assert!(!nvme.write(at, value, memory));
        }
        nvme
    }

    #[test]
    fn a_queue_is_where_the_firmware_put_it() {
        let mut memory = XdataMemory::new();
        let mut nvme = with_queues(&mut memory);
        assert_eq!(nvme.pcie_write(0x0082_2000, &[0; 16]), None);
        assert_eq!(nvme.pcie_write(0x0082_8000, &[0; 16]), Some(Came::Entry(0)));
        assert_eq!(nvme.pcie_write(0x0082_83F1, &[0; 16]), None, "it ends");
        assert_eq!(nvme.pcie_write(u64::MAX - 3, &[0; 4]), None);
        assert_eq!(nvme.pcie_write(0x0080_8010, &[7; 16]), Some(Came::Bytes));
        assert_eq!((nvme.read(ADMIN_EVENTS, 0, &memory), nvme.read(0xBC10, 0, &memory)), (ADMIN_ENTRY_CAME, 7));
        set(&mut memory, &[(COMPLETION_WINDOW, 0x08)]);
        assert_eq!(nvme.read(IO_COMPLETION + 0x1F, 0, &memory), 7);
    }

    #[test]
    fn a_command_is_written_through_the_window_and_read_by_the_drive() {
        let mut memory = XdataMemory::new();
        let mut nvme = with_queues(&mut memory);
        for (index, at) in [(0x03, 0x0082_00C0), (0x82, 0x0080_0080)] {
            set(&mut memory, &[(SUBMISSION_INDEX, index), (SUBMISSION_WINDOW, 1)]);
            nvme.write(IO_SUBMISSION + 5, index, &memory);
            let mut command = [0; 64];
            assert!(nvme.pcie_read(at, &mut command));
            assert_eq!((command[5], nvme.read(IO_SUBMISSION + 5, 0, &memory)), (index, index));
        }
        set(&mut memory, &[(SUBMISSION_WINDOW, 0)]);
        assert_eq!((nvme.read(0xA0C5, 0, &memory), nvme.read(0xB085, 0, &memory)), (0x03, 0x82));
        nvme.put_command(4, &[9; 64]);
        assert_eq!(nvme.read(0xA13F, 0, &memory), 9);
    }

    #[test]
    fn the_mover_fills_a_queue_and_nothing_behind_it() {
        let mut memory = XdataMemory::new();
        let mut nvme = with_queues(&mut memory);
        nvme.pcie_write(0x0082_8000, &[1; 0x400]);
        nvme.pcie_write(0x0080_8000, &[1; 0x80]);
        set(&mut memory, &[(MOVER, 0xB8), (MOVER + 1, 0x10), (MOVER_LENGTH, 0xFF), (MOVER_LENGTH + 1, 0xFF)]);
        // As silicon's recording has it.
        set(&mut memory, &[(MOVER_MODE, 0x94), (COMPLETION_WINDOW, SECOND_BANK)]);
        nvme.write(MOVER_START, 1, &memory);
        assert_eq!(nvme.read(0xB810, 0, &memory), 1, "the second bank is another memory");
        set(&mut memory, &[(COMPLETION_WINDOW, 0)]);
        nvme.write(MOVER_START, 1, &memory);
        assert_eq!([0xB80F, 0xB810, 0xBBFF, 0xBC00].map(|at| nvme.read(at, 0, &memory)), [1, 0, 0, 1]);
        assert_eq!(nvme.read(MOVER_START, 1, &memory), 0);
    }

    #[test]
    fn a_prp_list_names_the_pages_of_the_sram_from_the_requested_one() {
        let mut memory = XdataMemory::new();
        let nvme = with_queues(&mut memory);
        set(&mut memory, &[(LIST_PAGE + 1, 5)]);
        let address =
            (LIST_ADDRESS..LIST_ADDRESS + 4).fold(0, |at, byte| at << 8 | u64::from(nvme.read(byte, 0, &memory)));
        assert_eq!(data_pointer(1, 0x4000), (0x0020_4000, address));
        assert_eq!((data_pointer(1, 0x1000).1, data_pointer(1, 0x2000).1), (0, 0x0020_5000));
        let mut list = [0; 16];
        assert!(nvme.pcie_read(address, &mut list));
        assert_eq!(list, [0, 0x50, 0x20, 0, 0, 0, 0, 0, 0, 0x60, 0x20, 0, 0, 0, 0, 0]);
        assert!(!nvme.pcie_read(LISTS + 8 * 127, &mut list) && !nvme.pcie_read(LISTS + 4, &mut list));
        assert!(!nvme.pcie_read(u64::MAX, &mut list));
    }

    #[test]
    fn a_polling_device_acts_once_after_the_last_write() {
        let mut nvme = Nvme::new();
        assert!(Nvme::is_command(0xA040) && !Nvme::is_command(0xB000));
        nvme.will_be_seen(5);
        nvme.will_be_seen(10);
        assert!(!nvme.is_seen(9 + SEEN_AFTER) && nvme.is_seen(10 + SEEN_AFTER) && !nvme.is_seen(u64::MAX));
    }
}
