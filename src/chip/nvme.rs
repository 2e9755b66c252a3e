//! The bridge's side of NVMe: memory for the queues of one drive, which the PCIe side reads and writes; windows on it for
//! the CPU; doorbells; and the engine that writes PRP lists.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xA000-0xAFFF: the I/O submission queue. 0xB000-0xB1FF: the admin submission queue. 0xB800-0xBBFF: the I/O completion
/// queue. 0xBC00-0xBC7F: the admin completion queue. Each has a second half for a second drive. Source: c:0x3A10-0x3A3D
/// fills exactly these with zeros before a drive starts.
const IO_SUBMISSION: u16 = 0xA000;
const ADMIN_SUBMISSION: u16 = 0xB000;
const IO_COMPLETION: u16 = 0xB800;
const ADMIN_COMPLETION: u16 = 0xBC00;
/// 0xC8D5: an entry of the I/O completion queue. 0xC8D6.0 shows it at 0xB800; .3 shows the admin completion queue there.
/// Source: c:0x2608; c:0x3AEF-0x3B29.
const COMPLETION_INDEX: u16 = 0xC8D5;
const COMPLETION_WINDOW: u16 = 0xC8D6;
/// 0xC8D7: an entry of the I/O submission queue, with .7 of the admin submission queue. 0xC8D8.0 shows it at 0xA000-0xA03F.
/// Source: c:0x2402-0x2414, 0x25FD; c:0x3BD7-0x3C36.
const SUBMISSION_INDEX: u16 = 0xC8D7;
const SUBMISSION_WINDOW: u16 = 0xC8D8;
/// 0xB264:0xB265, 0xB266:0xB267: the admin queues' PCIe addresses / 0x1000, submission first. 0xB26C:0xB26D,
/// 0xB26E:0xB26F: the I/O queues'. Source: b0:0xD127-0xD145 writes 0800, 0808, 0820, 0828, and the same addresses go into
/// ASQ, ACQ (b0:0xABA5, 0xABBE) and Create I/O queue (c:0x2463, 0x24AB). Open firmware leaves the last alone and has its
/// queue at 0x00822000, which is taken for the default.
const ADMIN_SUBMISSION_BASE: u16 = 0xB264;
const ADMIN_COMPLETION_BASE: u16 = 0xB266;
const IO_SUBMISSION_BASE: u16 = 0xB26C;
const IO_COMPLETION_BASE: u16 = 0xB26E;
const DEFAULT_IO_COMPLETION: u16 = 0x0822;
/// 0xB275:0xB276: a page of the SRAM, in units of 4 KiB; then 0xB278-0xB27B is where a PRP list stands that begins with
/// it. Source: c:0x1E5E-0x1E84. The firmware writes no list anywhere: that the chip makes one up follows.
const LIST_PAGE: u16 = 0xB275;
const LIST_ADDRESS: u16 = 0xB278;
/// 0xCEF3.3: an entry of the I/O completion queue came. 0xCEF2.7: one of the admin completion queue. Write 1 clears.
/// Source: c:0x4821, 0x3EDE, 0x10E7; c:0x10FE, 0x49C1.
const ADMIN_EVENTS: u16 = 0xCEF2;
const EVENTS: u16 = 0xCEF3;
/// 0xC8B2:0xC8B3: an address; 0xC8B4:0xC8B5: bytes - 1; 0xC8B6 = 84: fill; 0xC8B7: with what; 0xC8B8.0 starts, and reads
/// 0 when done. 0xC8D8.1 (of 0xA000-0xB1FF) and 0xC8D6.1 (of 0xB800-0xBC7F) choose a second bank, of which nothing is
/// known. Source: c:0x4A57 and its callers. What else it moves, b1:0xCF98 alone asks for, and it does not here.
const MOVER: u16 = 0xC8B2;
const MOVER_LENGTH: u16 = 0xC8B4;
const MOVER_MODE: u16 = 0xC8B6;
const MOVER_VALUE: u16 = 0xC8B7;
const MOVER_START: u16 = 0xC8B8;
const FILL: u8 = 0x84;
const SECOND_BANK: u8 = 0x02;

const ENTRY_CAME: u8 = 0x08;
const ADMIN_ENTRY_CAME: u8 = 0x80;
const COMMAND_LEN: u16 = 64;
const ENTRY_LEN: u16 = 16;
/// Where PRP lists stand in the PCIe side's view (chosen: the firmware takes what 0xB278 says).
const LISTS: u64 = 0x00A0_0000;
/// PCIe address of the SRAM. Source: tinygrad's hardware probing.
pub(super) const SRAM: u64 = 0x0020_0000;
/// Where a drive's registers stand. Source: b0:0xE762 adds offsets to it, and b0:0x9A46 on puts the BAR there; no register
/// tells the doorbells' address, so the engine must have it built in.
const DRIVE: u64 = 0x00D0_0000;
const DOORBELLS: u64 = DRIVE + 0x1000;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(IO_SUBMISSION, IO_SUBMISSION + COMMAND_LEN - 1, "NVME_COMMAND"),
    Register::range(IO_COMPLETION, ADMIN_COMPLETION + 0x7F, "NVME_COMPLETION"),
    Register::range(COMPLETION_INDEX, SUBMISSION_WINDOW, "NVME_WINDOWS"),
    Register::range(ADMIN_SUBMISSION_BASE, ADMIN_COMPLETION_BASE + 1, "NVME_ADMIN_QUEUES"),
    Register::range(IO_SUBMISSION_BASE, IO_COMPLETION_BASE + 1, "NVME_IO_QUEUES"),
    Register::range(LIST_PAGE, LIST_PAGE + 1, "NVME_LIST_PAGE"),
    Register::range(LIST_ADDRESS, LIST_ADDRESS + 3, "NVME_LIST_ADDRESS"),
    Register::range(ADMIN_EVENTS, EVENTS, "NVME_EVENTS"),
    Register::range(MOVER, MOVER_START, "MOVER"),
];

/// What a write from the PCIe side brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// An I/O completion entry; the low byte of its command ID.
    Entry(u8),
    /// Anything else.
    Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Nvme {
    events: u8,
    admin_events: u8,
}

impl Nvme {
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
            _ => shown(addr, page).map_or(stored, |at| page[usize::from(at)]),
        }
    }

    /// `true` where the write did something. `before` is what memory held there.
    pub(super) fn write(&mut self, addr: u16, value: u8, before: u8, memory: &mut XdataMemory) -> bool {
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
            MOVER_START if value & 0x01 != 0 => fill(memory),
            _ => {
                if let Some(at) = shown(addr, memory.main()).filter(|at| *at != addr) {
                    let page = memory.main_mut();
                    page[usize::from(addr)] = before;
                    page[usize::from(at)] = value;
                }
            }
        }
        false
    }

    /// A write from the PCIe side; `None` where the queues have no place for all of it.
    pub(super) fn pcie_write(&mut self, addr: u64, data: &[u8], memory: &mut XdataMemory) -> Option<Came> {
        let (at, is_io) = place(addr, data.len(), memory.main())?;
        memory.main_mut()[at..at + data.len()].copy_from_slice(data);
        // Where the last entry ends whose last byte came.
        let ends = (at + data.len()) / usize::from(ENTRY_LEN) * usize::from(ENTRY_LEN);
        if at < usize::from(IO_COMPLETION) || ends <= at {
            return Some(Came::Bytes);
        }
        if is_io {
            self.events |= ENTRY_CAME;
            return Some(Came::Entry(memory.main()[ends - 4]));
        }
        self.admin_events |= ADMIN_ENTRY_CAME;
        Some(Came::Bytes)
    }

    /// A read from the PCIe side, of the queues or of a PRP list; `false` where not all of it has a place.
    pub(super) fn pcie_read(addr: u64, into: &mut [u8], memory: &XdataMemory) -> bool {
        let page = memory.main();
        if let Some((at, _)) = place(addr, into.len(), page) {
            into.copy_from_slice(&page[at..at + into.len()]);
            return true;
        }
        let pages = (super::SRAM_LEN >> 12) as u64;
        let listed = LISTS..LISTS + 8 * pages;
        let is_list = addr % 8 == 0
            && into.len() % 8 == 0
            && listed.contains(&addr)
            && (listed.end - addr) as usize >= into.len();
        if is_list {
            for (index, entry) in into.chunks_exact_mut(8).enumerate() {
                let number = (addr - LISTS) / 8 + index as u64;
                entry.copy_from_slice(&(SRAM + (number << 12)).to_le_bytes());
            }
        }
        is_list
    }

    /// Puts a command into an entry of the I/O submission queue.
    pub(super) fn put_command(entry: u8, command: &[u8; COMMAND_LEN as usize], memory: &mut XdataMemory) {
        let at = usize::from(IO_SUBMISSION + COMMAND_LEN * u16::from(entry & 0x3F));
        memory.main_mut()[at..at + command.len()].copy_from_slice(command);
    }

    /// The doorbell that a value of 0xB254 rings; `None` for others, and for those of a second drive. Source: b0:0xE617,
    /// 0xE62F, 0xE647, 0xE65F: 01 submission and 11 completion of the admin queue, 03 and 13 of the I/O queue; each + 1 for a second drive.
    /// The stride is the least (chosen: firmware keeps CAP.DSTRD and never uses it).
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

/// PRP 1 and PRP 2 of data of this length from an SRAM slot on, as c:0x1D43 makes them.
pub(super) fn data_pointer(sram_slot: u8, len: u32) -> (u64, u64) {
    let page = 4 * u64::from(sram_slot);
    let first = SRAM + (page << 12);
    let second = match len {
        0..=0x1000 => 0,
        0x1001..=0x2000 => first + 0x1000,
        _ => LISTS + 8 * (page + 1),
    };
    (first, second)
}

/// What stands at an address of a window.
fn shown(addr: u16, page: &[u8]) -> Option<u16> {
    let byte = |at: u16| page[usize::from(at)];
    match addr {
        IO_SUBMISSION..=0xA03F if byte(SUBMISSION_WINDOW) & 0x01 != 0 => {
            let index = u16::from(byte(SUBMISSION_INDEX));
            let queue = match index & 0x80 {
                0 => IO_SUBMISSION + COMMAND_LEN * (index & 0x3F),
                _ => ADMIN_SUBMISSION + COMMAND_LEN * (index & 0x07),
            };
            Some(queue + (addr - IO_SUBMISSION))
        }
        IO_COMPLETION..=0xB87F if byte(COMPLETION_WINDOW) & 0x08 != 0 => {
            Some(ADMIN_COMPLETION + (addr - IO_COMPLETION))
        }
        IO_COMPLETION..=0xB80F if byte(COMPLETION_WINDOW) & 0x01 != 0 => {
            let index = u16::from(byte(COMPLETION_INDEX)) & 0x3F;
            Some(IO_COMPLETION + ENTRY_LEN * index + (addr - IO_COMPLETION))
        }
        _ => None,
    }
}

fn fill(memory: &mut XdataMemory) {
    let page = memory.main_mut();
    let at = word(page, MOVER);
    let bank = match at {
        0xA000..=0xB1FF => SUBMISSION_WINDOW,
        0xB800..=0xBC7F => COMPLETION_WINDOW,
        _ => return,
    };
    if page[usize::from(MOVER_MODE)] != FILL || page[usize::from(bank)] & SECOND_BANK != 0 {
        return;
    }
    let last = at.saturating_add(word(page, MOVER_LENGTH));
    let end = if bank == SUBMISSION_WINDOW { 0xB1FF } else { 0xBC7F };
    let value = page[usize::from(MOVER_VALUE)];
    page[usize::from(at)..=usize::from(last.min(end))].fill(value);
}

/// Where the queues have an address of the PCIe side's view, and whether it is the I/O completion queue.
fn place(addr: u64, len: usize, page: &[u8]) -> Option<(usize, bool)> {
    const QUEUES: [(u16, u16, usize); 4] = [
        (ADMIN_SUBMISSION_BASE, ADMIN_SUBMISSION, 0x200),
        (ADMIN_COMPLETION_BASE, ADMIN_COMPLETION, 0x80),
        (IO_SUBMISSION_BASE, IO_SUBMISSION, 0x1000),
        (IO_COMPLETION_BASE, IO_COMPLETION, 0x400),
    ];
    QUEUES.iter().find_map(|(base, at, queue_len)| {
        let is_io_completion = *base == IO_COMPLETION_BASE;
        let base = match word(page, *base) {
            0 if is_io_completion => DEFAULT_IO_COMPLETION,
            0 => return None,
            base => base,
        };
        let offset = usize::try_from(addr.checked_sub(u64::from(base) << 12)?).ok()?;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= *queue_len);
        (is_inside && len > 0).then(|| (usize::from(*at) + offset, is_io_completion))
    })
}

fn word(page: &[u8], at: u16) -> u16 {
    u16::from_be_bytes([page[usize::from(at)], page[usize::from(at) + 1]])
}
