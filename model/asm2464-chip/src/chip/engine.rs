//! The I/O engine: splits a READ or WRITE into parts. For each part it builds the NVMe command, or starts the DMA
//! between the bus and the SRAM, or does both. The firmware decides which, and when.

use asm2464::sram::SRAM_SLOT_LEN;

use super::map::Register;
use super::nvme::{self, Nvme};
use super::sram::{Dma, DmaTransfer};
use super::uas::{self, UasBlock};
use crate::mcu::XdataMemory;

/// 0xCE00: .0 starts the DMA of a part, .1 builds its NVMe command; reads 0 when done. Source: 3 for a READ, and for a
/// WRITE over Bulk-Only (c:0x34EF, 0x2F6E, 0x4ED2); over UAS a WRITE gets 1 (c:0x2E04, 0x2EE1), and 2 when its data has
/// arrived (c:0x4B73).
const START: u16 = 0xCE00;
/// 0xCE01 bits 5:0: index of the I/O submission queue entry. Source: c:0x34CB, 0x2F6A, 0x4B6F; the doorbell gets the
/// next.
const ENTRY: u16 = 0xCE01;
/// 0xCE36: the SRAM slot of a transfer's first part. 0xCE3A: bits 4:0 the slot of this part, 7:5 the number of times
/// that the transfer has wrapped round the 32 slots. The difference of the two is the part's position in the transfer.
/// Choosing a command by 0xCE88 puts the first free slot into both. Source: Bulk-Only begins at slot 0 (c:0x34B2),
/// counts slots (c:0x34D5-0x34EE), and adds 20 when they wrap (c:0x4EC9, 0x4EEF); over UAS, the first is 0x0474
/// (c:0x2EA5) or the value of 0xCE3A (c:0x2DD3, 0x4B48-0x4B63).
const IO_FIRST_SLOT: u16 = 0xCE36;
const SLOT: u16 = 0xCE3A;
/// 0xCE44 bits 3:0: a block is 512 bytes << this; 7:4: a part is 4 KiB << this. Source: c:0x36D5-0x36F6 writes LBADS -
/// 9 and the drive's MDTS, at most 4.
const SIZES: u16 = 0xCE44;
/// 0xCE51: number of SRAM slots that the chosen command's data takes. 0xCE55: number of its parts. Source: c:0x11AA,
/// 0x11BA, 0x3477.
const SLOTS: u16 = 0xCE51;
const PARTS: u16 = 0xCE55;
/// 0xCE6C.7: the chosen command needs only one SRAM slot, and one is free. Source: c:0x1883, 0x2DC9 then take 0xCE3A's.
const FITS: u16 = 0xCE6C;
/// 0xCE70: the namespace. 0xCE75-0xCE79: its number of blocks, big-endian. Source: c:0x36FF-0x371D copies them from
/// Identify.
const NAMESPACE: u16 = 0xCE70;
const BLOCKS: u16 = 0xCE75;
/// 0xCE86.4: software has to handle the chosen command. Source: c:0x345D. It is set for blocks that do not exist,
/// because the firmware tells the engine how many there are; and for a length other than the CBW's, because the short
/// path checks none of the thirteen cases (c:0x3464-0x3561).
const REFUSED: u16 = 0xCE86;
/// 0xCE88: a command slot (Bulk-Only 0); 0xCE89 then describes its command: .0 ready, .1 neither READ nor WRITE, .2 a
/// WRITE. The last two follow from the CDB's first byte: 28, 2A, 88, 8A (chosen). Source: c:0x3445, 0x1835; c:0x3507.
/// Over UAS no code reads 0xCE86 (c:0x1883-0x1896), so a command that it would refuse sets .1 (chosen).
const COMMAND: u16 = uas::UNIT_SLOT;
const STATE: u16 = 0xCE89;
/// 0xCE8A: .2 is on for the parts that a command begins with over Bulk-Only, and off for later ones; no effect here.
/// Source: c:0x34C0, 0x4EB3.
const FIRST_PARTS: u16 = 0xCE8A;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(START, ENTRY, "IO_START"),
    Register::one(IO_FIRST_SLOT, "IO_FIRST_SLOT"),
    Register::one(SLOT, "IO_SLOT"),
    Register::range(SIZES, SIZES + 1, "IO_SIZES"),
    Register::one(SLOTS, "IO_SLOTS"),
    Register::one(PARTS, "IO_PARTS"),
    Register::one(FITS, "IO_FITS"),
    Register::one(NAMESPACE, "IO_NAMESPACE"),
    Register::range(BLOCKS, BLOCKS + 4, "IO_BLOCKS"),
    Register::one(REFUSED, "IO_REFUSED"),
    Register::range(COMMAND, STATE, "IO_COMMAND"),
    Register::one(FIRST_PARTS, "IO_FIRST_PARTS"),
];

const START_DMA: u8 = 0x01;
const BUILD_COMMAND: u8 = 0x02;
const PAGE_LEN: u32 = 4096;
/// The CBW: its data length, and the CDB's first byte.
const CBW_LENGTH: usize = 0x9123;
const CBW_FLAGS: usize = 0x9127;
const CBW_CDB: usize = 0x912A;

/// A READ or WRITE.
#[derive(Debug, Clone, Copy)]
struct Io {
    is_write: bool,
    first: u64,
    blocks: u32,
}

/// The chosen command.
struct ChosenCommand<'a> {
    page: &'a [u8],
    is_uas: bool,
}

impl ChosenCommand<'_> {
    fn byte(&self, at: u16) -> u8 {
        self.page[usize::from(at)]
    }

    fn io(&self) -> Option<Io> {
        let at = if self.is_uas { uas::unit_at(self.byte(COMMAND)) + uas::CDB } else { CBW_CDB };
        let number = |from: usize, len: usize| {
            self.page[at + from..at + from + len].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let is_write = matches!(self.page[at], 0x2A | 0x8A);
        let (first, blocks) = match self.page[at] {
            0x28 | 0x2A => (number(2, 4), number(7, 2)),
            0x88 | 0x8A => (number(2, 8), number(10, 4)),
            _ => return None,
        };
        Some(Io { is_write, first, blocks: blocks as u32 })
    }

    fn block_len(&self) -> u32 {
        512 << (self.byte(SIZES) & 0x0F)
    }

    /// Number of blocks in a part.
    fn part_blocks(&self) -> u32 {
        ((PAGE_LEN << (self.byte(SIZES) >> 4)) / self.block_len()).max(1)
    }

    fn slot_blocks(&self) -> u32 {
        (SRAM_SLOT_LEN as u32 / self.block_len()).max(1)
    }

    /// Whether the firmware has to handle the command: there is a drive, and the engine can't carry out the command.
    fn is_refused(&self, io: Io) -> bool {
        let capacity = (BLOCKS..BLOCKS + 5).fold(0, |blocks, at| blocks << 8 | u64::from(self.byte(at)));
        let exists = io.first.checked_add(u64::from(io.blocks)).is_some_and(|end| end <= capacity);
        let at = CBW_LENGTH;
        let wanted = u32::from_le_bytes([self.page[at], self.page[at + 1], self.page[at + 2], self.page[at + 3]]);
        let fits_cbw = io.blocks.checked_mul(self.block_len()) == Some(wanted)
            && (self.page[CBW_FLAGS] & 0x80 == 0) == io.is_write;
        self.byte(NAMESPACE) != 0 && (io.blocks == 0 || !exists || !(self.is_uas || fits_cbw))
    }

    fn state(&self) -> u8 {
        let io = self.io();
        let is_plain = io.is_some_and(|io| !(self.is_uas && self.is_refused(io)));
        0x01 | u8::from(!is_plain) << 1 | u8::from(io.is_some_and(|io| io.is_write)) << 2
    }
}

fn saturated(count: u32) -> u8 {
    count.min(0xFF) as u8
}

pub(super) fn read(addr: u16, stored: u8, memory: &XdataMemory, is_uas: bool, dma: &Dma) -> u8 {
    let chosen = ChosenCommand { page: memory.main(), is_uas };
    let slots = || chosen.io().map_or(0, |io| io.blocks.div_ceil(chosen.slot_blocks()));
    match addr {
        START => 0,
        SLOTS => saturated(slots()),
        PARTS => saturated(chosen.io().map_or(0, |io| io.blocks.div_ceil(chosen.part_blocks()))),
        FITS => (stored & 0x7F) | u8::from(slots() == 1 && dma.first_free_slot().is_some()) << 7,
        REFUSED => u8::from(chosen.io().is_some_and(|io| chosen.is_refused(io))) << 4,
        // 0 until a command was chosen. Source: 129 reads by idle firmware in two recordings.
        STATE if stored == 0 => 0,
        STATE => chosen.state(),
        _ => stored,
    }
}

/// Handles a write by the CPU. Returns `true` if it did something.
pub(super) fn write(
    addr: u16,
    value: u8,
    memory: &mut XdataMemory,
    is_uas: bool,
    uas: &UasBlock,
    dma: &mut Dma,
    nvme: &mut Nvme,
) -> bool {
    match addr {
        COMMAND => {
            let page = memory.main_mut();
            let slot = dma.first_free_slot().unwrap_or(0);
            page[usize::from(IO_FIRST_SLOT)] = slot;
            page[usize::from(SLOT)] = slot;
            page[usize::from(STATE)] = 1;
            false
        }
        START => start(value, &ChosenCommand { page: memory.main(), is_uas }, uas, dma, nvme).is_some(),
        _ => false,
    }
}

/// Starts the requested steps of one part; `None` if there is no such part.
fn start(value: u8, chosen: &ChosenCommand<'_>, uas: &UasBlock, dma: &mut Dma, nvme: &mut Nvme) -> Option<()> {
    let io = chosen.io()?;
    let slots = chosen.byte(SLOT).wrapping_sub(chosen.byte(IO_FIRST_SLOT));
    let before = u32::from(slots) * chosen.slot_blocks();
    let blocks = io.blocks.checked_sub(before).filter(|blocks| *blocks != 0)?.min(chosen.part_blocks());
    let queue_slot = chosen.byte(COMMAND) & 0x3F;
    let sram_slot = chosen.byte(SLOT) & 0x1F;
    let len = blocks.checked_mul(chosen.block_len())?;
    if value & START_DMA != 0 {
        let stream = if chosen.is_uas { uas.tag(usize::from(queue_slot)) } else { 0 };
        dma.begin(io.is_write, DmaTransfer::part(queue_slot, sram_slot, stream, len as usize));
    }
    if value & BUILD_COMMAND != 0 {
        let mut command = [0; 64];
        command[0] = if io.is_write { 0x01 } else { 0x02 };
        command[2..4].copy_from_slice(&[sram_slot, queue_slot]);
        command[4] = chosen.byte(NAMESPACE);
        let (prp1, prp2) = nvme::data_pointer(sram_slot, len);
        command[24..32].copy_from_slice(&prp1.to_le_bytes());
        command[32..40].copy_from_slice(&prp2.to_le_bytes());
        command[40..48].copy_from_slice(&(io.first.wrapping_add(u64::from(before))).to_le_bytes());
        command[48..50].copy_from_slice(&(blocks as u16).wrapping_sub(1).to_le_bytes());
        let entry = chosen.byte(ENTRY);
        nvme.put_command(entry, &command);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command in slot 2 over UAS, with a drive of 0x1000 blocks and parts of 64 KiB.
    fn chosen(cdb: &[u8]) -> (XdataMemory, Dma) {
        let (mut memory, mut dma) = (XdataMemory::new(), Dma::default());
        let page = memory.main_mut();
        let at = uas::unit_at(2) + uas::CDB;
        page[at..at + cdb.len()].copy_from_slice(cdb);
        page[usize::from(SIZES)] = 0x40;
        page[usize::from(NAMESPACE)] = 1;
        page[usize::from(BLOCKS)..][..5].copy_from_slice(&[0, 0, 0, 0x10, 0]);
        dma.write(0xCE6E, 0, &memory, 0);
        memory.main_mut()[usize::from(COMMAND)] = 2;
        write(COMMAND, 2, &mut memory, true, &UasBlock::default(), &mut dma, &mut Nvme::new());
        (memory, dma)
    }

    fn status_of(memory: &XdataMemory, dma: &Dma) -> [u8; 4] {
        [SLOTS, PARTS, FITS, STATE].map(|addr| read(addr, u8::from(addr == STATE), memory, true, dma))
    }

    #[test]
    fn a_command_is_described_by_its_slots_and_parts() {
        let (memory, dma) = chosen(&[0x28, 0, 0, 0, 0, 8, 0, 0, 32, 0]);
        assert_eq!(status_of(&memory, &dma), [1, 1, 0x80, 0x01]);
        assert_eq!(
            (memory.main()[usize::from(IO_FIRST_SLOT)], memory.main()[usize::from(SLOT)]),
            (1, 1),
            "slot 0 is taken"
        );
        let (memory, dma) = chosen(&[0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(status_of(&memory, &dma), [9, 3, 0, 0x05]);
        let (memory, dma) = chosen(&[0x12, 0, 0, 0, 36, 0]);
        assert_eq!(status_of(&memory, &dma), [0, 0, 0, 0x03]);
    }

    #[test]
    fn blocks_that_do_not_exist_are_for_software() {
        for (cdb, refused) in [
            ([0x28, 0, 0, 0, 0x0F, 0xFF, 0, 0, 1, 0], false),
            ([0x28, 0, 0, 0, 0x0F, 0xFF, 0, 0, 2, 0], true),
            ([0x2A, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], true),
            ([0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0], true),
        ] {
            let (memory, dma) = chosen(&cdb);
            assert_eq!(read(REFUSED, 0, &memory, true, &dma) != 0, refused, "{cdb:02X?}");
            assert_eq!(read(STATE, 1, &memory, true, &dma) & 0x02 != 0, refused, "{cdb:02X?}");
        }
    }

    #[test]
    fn over_bulk_only_the_cbw_must_agree_with_the_cdb() {
        let mut memory = XdataMemory::new();
        let page = memory.main_mut();
        page[CBW_CDB..CBW_CDB + 10].copy_from_slice(&[0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        page[usize::from(NAMESPACE)] = 1;
        page[usize::from(BLOCKS) + 4] = 9;
        for (len, flags, refused) in [(1024_u32, 0x80, 0), (512, 0x80, 0x10), (1024, 0, 0x10)] {
            memory.main_mut()[CBW_LENGTH..CBW_LENGTH + 4].copy_from_slice(&len.to_le_bytes());
            memory.main_mut()[CBW_FLAGS] = flags;
            assert_eq!(read(REFUSED, 0, &memory, false, &Dma::default()), refused, "{len} {flags:#x}");
        }
    }

    #[test]
    fn the_distance_of_a_parts_slot_from_the_first_gives_its_position() {
        let (mut memory, mut dma) = chosen(&[0x28, 0, 0, 0, 0, 8, 0, 1, 0x01, 0]);
        let mut nvme = Nvme::new();
        for (slot, value, is_there) in [(0x05, 3, true), (0x29, 2, false)] {
            memory.main_mut()[usize::from(SLOT)] = slot;
            memory.main_mut()[usize::from(ENTRY)] = slot & 0x1F;
            assert_eq!(write(START, value, &mut memory, true, &UasBlock::default(), &mut dma, &mut nvme), is_there);
        }
        let command = |entry: u16| -> Vec<u8> {
            let at = 0xA000 + 64 * entry;
            (at..at + 64).map(|addr| nvme.read(addr, 0, &memory)).collect()
        };
        let first = command(5);
        assert_eq!(first[..5], [0x02, 0, 0x05, 0x02, 0x01]);
        assert_eq!(
            (first[26], &first[40..50]),
            (0x21, &[0x88, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0][..]),
            "128 blocks from 8 + 128 on"
        );
        let second = command(9);
        assert!(second.iter().all(|byte| *byte == 0), "there is no such part");
    }
}
