//! The SRAM behind its window, its DMA, which moves bulk data between the bus and the SRAM without the CPU, and the
//! allocator of the DMA's slots.
//!
//! Data to the host waits until the PCIe side writes a completion entry. Source: open firmware's README and
//! `test_sram_verify.py`. How the vendor's firmware ends a READ: c:0x2608 and c:0x3E81.

use std::collections::VecDeque;

use asm2464::sram::{SRAM_LEN, SRAM_SLOT_LEN};

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xF000-0xFFFF: the window. Source: E4 and E6 read it (b1:0xC98D, c:0x4013).
const WINDOW: u16 = 0xF000;
/// 0xC8D9 bits 2:0: the 4 KiB that the window shows. Source: c:0x4013-0x40B0.
pub(super) const WINDOW_PAGE: u16 = 0xC8D9;
const WINDOW_LEN: usize = 0x1000;

pub(super) const WINDOW_REGISTERS: &[Register] =
    &[Register::range(WINDOW, 0xFFFF, "SRAM_WINDOW"), Register::one(WINDOW_PAGE, "SRAM_WINDOW_PAGE")];

/// Copies bytes into a buffer from `at` on. Wraps at its end.
pub(super) fn load_around(buffer: &mut [u8], at: usize, data: &[u8]) {
    let (mut at, mut rest) = (at % buffer.len(), data);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(buffer.len() - at));
        buffer[at..at + piece.len()].copy_from_slice(piece);
        (at, rest) = (0, behind);
    }
}

#[derive(Debug)]
pub(super) struct Sram {
    bytes: Vec<u8>,
}

impl Sram {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; SRAM_LEN] }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Copies bytes in. Wraps at the end.
    pub(super) fn load(&mut self, at: usize, data: &[u8]) {
        load_around(&mut self.bytes, at, data);
    }

    /// Copies `len` bytes out. Wraps at the end.
    pub(super) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        let mut at = at % SRAM_LEN;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let piece = (len - bytes.len()).min(SRAM_LEN - at);
            bytes.extend_from_slice(&self.bytes[at..at + piece]);
            at = 0;
        }
        bytes
    }

    fn at(addr: u16, page: u8) -> Option<usize> {
        let offset = usize::from(addr.checked_sub(WINDOW)?);
        Some(usize::from(page & 0x07) * WINDOW_LEN + offset)
    }

    pub(super) fn read(&self, addr: u16, page: u8, stored: u8) -> u8 {
        Self::at(addr, page).map_or(stored, |at| self.bytes[at])
    }

    /// Handles a write by the CPU. Returns `true` if a byte changed.
    pub(super) fn write(&mut self, addr: u16, page: u8, value: u8) -> bool {
        let Some(at) = Self::at(addr, page) else { return false };
        let before = std::mem::replace(&mut self.bytes[at], value);
        before != value
    }
}

/// 0xC401.1, set around the start: a drain, which drops the data that the host still sends for its command. Source:
/// c:0x0152-0x0184, case 9 of Bulk-Only's thirteen; c:0x4784 ends it. The CBW's length gives the amount (chosen).
const DRAIN: u16 = 0xC401;
/// The CBW's dCBWDataTransferLength, little-endian.
const HOST_LENGTH: usize = 0x9123;
/// 0xC412: .0 direction, 1 = from the host; .1 start. Source: open firmware's F2 (03 out, 02 in); c:0x2880, 0x1B56.
const CONTROL: u16 = 0xC412;
/// 0xC413 bits 5:0: the command's queue slot. Source: c:0x2880-0x29DE.
const QUEUE_SLOT: u16 = 0xC413;
/// 0xC414: .7 and the first SRAM slot; 0xC415: the end slot. Source: open F2; c:0x28xx.
const DMA_FIRST_SLOT: u16 = 0xC414;
/// 0xC420:0xC421: the stream. 0xC422:0xC423: bytes a sector. 0xC426:0xC427: sectors. All big-endian. Source: open F2;
/// c:0x2880-0x29DE.
const STREAM: u16 = 0xC420;
const DMA_SECTOR_LENGTH: u16 = 0xC422;
const SECTORS: u16 = 0xC426;
/// 0xC429: the first SRAM slot again; written last, it starts the DMA. Source: open F2, c:0x29DE: both write it last.
const START: u16 = 0xC429;
/// 0xC42A: resets the engine. With .0 and .3 set, and 0x900B.0, the transfers from the host end; with .0 to .4, all of
/// them (chosen: fewer bits were not tried). Source: the vendor's way out of a WRITE without data (c:0x4E25, after it
/// saw 0xC450.1), and its reset of all USB state, which sets 1F (recording of 231204, lines 2627 to 2651). Open
/// firmware's pull request 75 does the former: an F2 that was armed survives a port reset otherwise.
const CONTROL_2: u16 = 0xC42A;
const CONTROL_2_OUT: u8 = 0x09;
const CONTROL_2_ALL: u8 = 0x1F;
/// 0x900B.0-.2: set and cleared around 0xC42A's bits. Source: the same.
const CONTROL_3: u16 = 0x900B;
/// 0xC42C.0, write 1 clears: a drain has ended. Raises 0xC802.2. Source: c:0x116B-0x117A, then c:0x4784 sends the
/// status; with no drain in progress it halts every endpoint.
const DRAINED: u16 = 0xC42C;
/// 0xC470 bits 5:0: queue slot of the oldest transfer from the host. Source: c:0x2A1F.
const OUT_QUEUE_SLOT: u16 = 0xC470;
/// 0xC450: 2 while a transfer from the host runs; F2 must wait for 0. Source: owners of units.
const BUSY: u16 = asm2464::sram::DMA_STATE.addr;
/// 0xC4CC-0xC4CF, read-only: sectors times bytes a sector, big-endian. Source: c:0x2C12-0x2C38, Bulk-Only READ and
/// WRITE, uses it as the command's length right after it has written the sectors.
const LENGTH: u16 = 0xC4CC;
/// 0xC508: slot; the engine sends a good status for it. Source: c:0x3E81-0x3EED.
pub(super) const SEND_GOOD: u16 = 0xC508;
/// 0xC512: the SRAM slot of the transfer in 0xC516; any write removes the event. 0xC51A: the same for 0xC51E. Source:
/// c:0x3EED, c:0x488F; Bulk-Only puts a READ's next part into the slot that it reads here (c:0x49E9, 0x4A53).
const TAKE_IN: u16 = 0xC512;
const TAKE_OUT: u16 = 0xC51A;
/// 0xC516: queue slot of the oldest finished transfer to the host, 3F for none. 0xC51E: from the host.
const DONE_IN: u16 = 0xC516;
const DONE_OUT: u16 = 0xC51E;
/// 0xC520, read-only: .0 a transfer to the host is finished, .1 one from the host. Source: c:0x3E81, c:0x1124.
const EVENTS: u16 = 0xC520;

/// 0xCE40-0xCE43: bitmap of used slots, 0xCE43 has slots 0-7. Source: c:0x129E-0x14E0; the roles are chosen.
const USED: u16 = 0xCE40;
/// 0xCE5C: bit k, slots 16k to 16k+15 are free; 0xCE5D, 0xCE5F: the same for groups of 8, 4. 0xCE60: first free slot,
/// 40 for none; 0xCE65, 0xCE66, 0xCE67: first free group of 2, 4, 8. Source: c:0x5260, 0x5373, 0x52C7 and their masks;
/// the roles are chosen (c:0x45D0-0x466A).
const FREE_16: u16 = 0xCE5C;
const FREE_1: u16 = 0xCE60;
const FREE_2: u16 = 0xCE65;
/// 0xCE95: the group of 2 at which 0xCE65 starts its search. Source: c:0x533D. 0xCE96: a slot; 0xCE97 then holds the
/// number of free slots from it on. Source: c:0x163A.
const FROM_2: u16 = 0xCE95;
const FROM: u16 = 0xCE96;
const IN_A_ROW: u16 = 0xCE97;
/// 0xCE6E: takes a slot. 0xCE6F: frees one. Source: c:0x129E-0x14E0; the client's E5 writes.
const TAKE: u16 = 0xCE6E;
const FREE: u16 = 0xCE6F;

const NO_QUEUE_SLOT: u8 = 0x3F;
/// Maximum number of transfers: one for each queue slot.
const MOST: usize = 64;
/// Instructions from the last byte to the event (chosen).
const EVENT_DELAY: u64 = 200;

pub(super) const DMA_REGISTERS: &[Register] = &[
    Register::one(DRAIN, "DMA_DRAIN"),
    Register::range(CONTROL, DMA_FIRST_SLOT + 1, "DMA_SETUP"),
    Register::range(STREAM, STREAM + 1, "DMA_STREAM"),
    Register::range(DMA_SECTOR_LENGTH, DMA_SECTOR_LENGTH + 1, "DMA_SECTOR_LENGTH"),
    Register::range(SECTORS, SECTORS + 1, "DMA_SECTORS"),
    Register::one(START, "DMA_START"),
    Register::one(CONTROL_2, "DMA_CONTROL_2"),
    Register::one(CONTROL_3, "DMA_CONTROL_3").plain(),
    Register::one(OUT_QUEUE_SLOT, "DMA_OUT_QUEUE_SLOT"),
    Register::one(DRAINED, "DMA_DRAINED"),
    Register::one(BUSY, "DMA_BUSY"),
    Register::range(LENGTH, LENGTH + 3, "DMA_LENGTH"),
    Register::one(SEND_GOOD, "DMA_SEND_GOOD"),
    Register::one(TAKE_IN, "DMA_TAKE_IN"),
    Register::one(DONE_IN, "DMA_DONE_IN"),
    Register::one(TAKE_OUT, "DMA_TAKE_OUT"),
    Register::one(DONE_OUT, "DMA_DONE_OUT"),
    Register::one(EVENTS, "DMA_EVENTS"),
    Register::range(USED, USED + 3, "SRAM_SLOTS_USED"),
    Register::range(FREE_16, FREE_16 + 3, "SRAM_FREE_MAPS"),
    Register::one(FREE_1, "SRAM_FREE_1"),
    Register::range(FREE_2, FREE_2 + 2, "SRAM_FREE_GROUPS"),
    Register::range(FROM_2, IN_A_ROW, "SRAM_FREE_FROM"),
    Register::range(TAKE, FREE, "SRAM_SLOT_TAKE_FREE"),
];

#[derive(Debug, Clone, Copy)]
pub(super) struct DmaTransfer {
    queue_slot: u8,
    sram_slot: u8,
    stream: u16,
    at: usize,
    left: usize,
    /// For data to the host: the completion entry has arrived.
    is_released: bool,
    is_drain: bool,
}

impl DmaTransfer {
    /// Builds the transfer of one part of a READ or WRITE, at its SRAM slot.
    pub(super) fn part(queue_slot: u8, sram_slot: u8, stream: u16, len: usize) -> Self {
        let at = usize::from(sram_slot) * SRAM_SLOT_LEN;
        Self { queue_slot, sram_slot, stream, at, left: len, is_released: false, is_drain: false }
    }

    fn done(&self) -> Done {
        Done { queue_slot: self.queue_slot, sram_slot: self.sram_slot }
    }
}

/// The slots of a finished transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Done {
    queue_slot: u8,
    sram_slot: u8,
}

/// An event for the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    /// A transfer to the host has finished.
    In(Done),
    /// A transfer from the host has finished.
    Out(Done),
    Drained,
}

#[derive(Debug, Default)]
pub(super) struct Dma {
    from_host: Vec<DmaTransfer>,
    to_host: Vec<DmaTransfer>,
    /// Pending events, each with its time.
    due: VecDeque<(u64, Notice)>,
    done_in: VecDeque<Done>,
    done_out: VecDeque<Done>,
    drained: bool,
    used: u32,
    /// Bytes moved.
    moved: u64,
}

impl Dma {
    pub(super) fn has_event(&self) -> bool {
        self.drained || !self.done_in.is_empty() || !self.done_out.is_empty()
    }

    /// Forgets every transfer and event.
    pub(super) fn start_over(&mut self) {
        *self = Self { used: self.used, moved: self.moved, ..Self::default() };
    }

    /// Bytes moved so far.
    pub(super) const fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether all slots of a group of `len` slots are free. `len` is less than 32.
    fn is_free(&self, len: u32, group: u32) -> bool {
        (self.used >> (group * len)) & ((1 << len) - 1) == 0
    }

    fn first_free(&self, len: u32) -> Option<u8> {
        (0..32 / len).find(|group| self.is_free(len, *group)).map(|group| group as u8)
    }

    /// Bitmap of free groups of `len` slots: bit k is group k.
    fn free_groups(&self, len: u32) -> u8 {
        (0..32 / len).fold(0, |map, group| map | u8::from(self.is_free(len, group)) << group)
    }

    pub(super) fn read(&self, addr: u16, stored: u8, memory: &XdataMemory) -> u8 {
        match addr {
            LENGTH..=0xC4CF => {
                let word = |at: u16| u32::from(memory.word(at));
                (word(SECTORS) * word(DMA_SECTOR_LENGTH)).to_be_bytes()[usize::from(addr - LENGTH)]
            }
            DRAINED => u8::from(self.drained),
            BUSY => u8::from(!self.from_host.is_empty()) << 1,
            OUT_QUEUE_SLOT => self.from_host.first().map_or(stored, |transfer| transfer.queue_slot),
            EVENTS => u8::from(!self.done_in.is_empty()) | u8::from(!self.done_out.is_empty()) << 1,
            DONE_IN => self.done_in.front().map_or(NO_QUEUE_SLOT, |done| done.queue_slot),
            DONE_OUT => self.done_out.front().map_or(NO_QUEUE_SLOT, |done| done.queue_slot),
            TAKE_IN => self.done_in.front().map_or(stored, |done| done.sram_slot),
            TAKE_OUT => self.done_out.front().map_or(stored, |done| done.sram_slot),
            USED..=0xCE43 => self.used.to_be_bytes()[usize::from(addr - USED)],
            FREE_16 => self.free_groups(16),
            0xCE5D => self.free_groups(8),
            0xCE5F => self.free_groups(4),
            FREE_1 => self.first_free(1).unwrap_or(0x40),
            FREE_2 => {
                let from = u32::from(memory.main()[usize::from(FROM_2)]);
                (from..16).find(|group| self.is_free(2, *group)).map_or(0x3F, |group| group as u8)
            }
            IN_A_ROW => {
                let from = u32::from(memory.main()[usize::from(FROM)]).min(32);
                (from..32).take_while(|slot| self.is_free(1, *slot)).count() as u8
            }
            0xCE66 => self.first_free(4).unwrap_or(0x1F),
            0xCE67 => self.first_free(8).unwrap_or(0x0F),
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, memory: &XdataMemory, now: u64) -> bool {
        let used = self.used;
        match addr {
            START if memory.main()[usize::from(CONTROL)] & 0x02 != 0 => {
                self.start(value, memory, now);
                return true;
            }
            CONTROL_2 => {
                let is_out =
                    value & CONTROL_2_OUT == CONTROL_2_OUT && memory.main()[usize::from(CONTROL_3)] & 0x01 != 0;
                let is_all = value & CONTROL_2_ALL == CONTROL_2_ALL;
                return self.end(is_out, is_all);
            }
            DRAINED => {
                let was = self.drained;
                self.drained &= value & 0x01 == 0;
                return was != self.drained;
            }
            TAKE_IN => return self.done_in.pop_front().is_some(),
            TAKE_OUT => return self.done_out.pop_front().is_some(),
            USED..=0xCE43 => {
                let mut bytes = self.used.to_be_bytes();
                bytes[usize::from(addr - USED)] = value;
                self.used = u32::from_be_bytes(bytes);
            }
            TAKE => self.used |= 1u32.checked_shl(u32::from(value)).unwrap_or(0),
            FREE => self.used &= !1u32.checked_shl(u32::from(value)).unwrap_or(0),
            _ => {}
        }
        used != self.used
    }

    fn start(&mut self, sram_slot: u8, memory: &XdataMemory, now: u64) {
        let page = memory.main();
        let byte = |at: u16| page[usize::from(at)];
        let word = |at: u16| usize::from(memory.word(at));
        // The runtime supplies 0x0200. Without it the length is 512 all the same (chosen).
        let sector = if word(DMA_SECTOR_LENGTH) == 0 { 512 } else { word(DMA_SECTOR_LENGTH) };
        let is_drain = byte(DRAIN) & 0x02 != 0;
        let host_length = u32::from_le_bytes([0, 1, 2, 3].map(|offset| page[HOST_LENGTH + offset]));
        let transfer = DmaTransfer {
            queue_slot: byte(QUEUE_SLOT) & 0x3F,
            sram_slot: sram_slot & 0x1F,
            stream: word(STREAM) as u16,
            at: usize::from(byte(DMA_FIRST_SLOT) & 0x3F) * SRAM_SLOT_LEN,
            left: if is_drain { host_length as usize } else { word(SECTORS) * sector },
            is_released: false,
            is_drain,
        };
        let to_host = byte(CONTROL) & 0x01 == 0;
        // A transfer from the host that still waits comes first, and takes the data: arming again while 0xC450 is 2
        // loses the first sectors. Source: owners of units.
        if to_host {
            self.to_host.retain(|other| other.queue_slot != transfer.queue_slot || other.stream != transfer.stream);
        }
        if transfer.left > 0 {
            self.begin(!to_host, transfer);
        } else if is_drain {
            self.later(now, Notice::Drained);
        }
    }

    /// Ends the transfers in progress without an event for the firmware, and drops the events that it has not taken
    /// (chosen). Returns `true` if there were any of either.
    fn end(&mut self, from_host: bool, to_host: bool) -> bool {
        let due = self.due.len();
        self.due.retain(|(_, event)| match event {
            Notice::In(_) => !to_host,
            Notice::Out(_) => !from_host,
            Notice::Drained => true,
        });
        let mut was_any = self.due.len() != due;
        let lists =
            [(&mut self.from_host, &mut self.done_out, from_host), (&mut self.to_host, &mut self.done_in, to_host)];
        for (transfers, done, ends) in lists {
            if ends {
                was_any |= !transfers.is_empty() || !done.is_empty();
                transfers.clear();
                done.clear();
            }
        }
        was_any
    }

    /// Starts a transfer behind those in progress.
    pub(super) fn begin(&mut self, is_from_host: bool, transfer: DmaTransfer) {
        let list = if is_from_host { &mut self.from_host } else { &mut self.to_host };
        if list.len() == MOST {
            list.remove(0);
        }
        list.push(transfer);
    }

    /// The first SRAM slot that is free.
    pub(super) fn first_free_slot(&self) -> Option<u8> {
        self.first_free(1)
    }

    /// Whether a transfer from the host takes a packet on this stream; `None` stands for any stream.
    pub(super) fn wants_out(&self, stream: Option<u16>) -> bool {
        self.from_host.iter().any(|transfer| stream.is_none_or(|stream| stream == transfer.stream))
    }

    /// Takes a packet from the host. Drops bytes past the transfer's end.
    pub(super) fn out_came(&mut self, stream: Option<u16>, packet: &[u8], sram: &mut Sram, now: u64) {
        let wanted = |transfer: &DmaTransfer| stream.is_none_or(|stream| stream == transfer.stream);
        let Some(index) = self.from_host.iter().position(wanted) else { return };
        let transfer = &mut self.from_host[index];
        let len = packet.len().min(transfer.left);
        self.moved += len as u64;
        if !transfer.is_drain {
            sram.load(transfer.at, &packet[..len]);
        }
        transfer.at += len;
        transfer.left -= len;
        if transfer.left == 0 {
            let ended = self.from_host.remove(index);
            self.later(now, if ended.is_drain { Notice::Drained } else { Notice::Out(ended.done()) });
        }
    }

    /// Releases the transfer to the host of this SRAM slot: its completion entry has arrived.
    pub(super) fn release(&mut self, sram_slot: u8) {
        let wanted = |transfer: &&mut DmaTransfer| transfer.sram_slot == sram_slot & 0x1F && !transfer.is_released;
        if let Some(transfer) = self.to_host.iter_mut().find(wanted) {
            transfer.is_released = true;
        }
    }

    /// Takes the next packet to the host on this stream; `None` stands for any stream.
    pub(super) fn take_in(&mut self, stream: Option<u16>, most: usize, sram: &Sram, now: u64) -> Option<Vec<u8>> {
        let wanted =
            |transfer: &DmaTransfer| transfer.is_released && stream.is_none_or(|stream| stream == transfer.stream);
        let index = self.to_host.iter().position(wanted)?;
        let transfer = &mut self.to_host[index];
        let len = transfer.left.min(most);
        self.moved += len as u64;
        let packet = sram.copy(transfer.at, len);
        transfer.at += len;
        transfer.left -= len;
        if transfer.left == 0 {
            let ended = self.to_host.remove(index);
            self.later(now, Notice::In(ended.done()));
        }
        Some(packet)
    }

    fn later(&mut self, now: u64, event: Notice) {
        if self.due.len() < MOST {
            self.due.push_back((now + EVENT_DELAY, event));
        }
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.due.front().map(|(at, _)| *at)
    }

    pub(super) fn advance(&mut self, now: u64) {
        while self.next().is_some_and(|at| at <= now)
            && let Some((_, event)) = self.due.pop_front()
        {
            match event {
                Notice::In(done) if self.done_in.len() < MOST => self.done_in.push_back(done),
                Notice::Out(done) if self.done_out.len() < MOST => self.done_out.push_back(done),
                Notice::In(_) | Notice::Out(_) => {}
                Notice::Drained => self.drained = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(memory: &mut XdataMemory, control: u8, sectors: u16, stream: u16) {
        let page = memory.main_mut();
        page[usize::from(CONTROL)..][..4].copy_from_slice(&[control, 3, 0x81, 2]);
        page[usize::from(STREAM)..][..4].copy_from_slice(&[(stream >> 8) as u8, stream as u8, 2, 0]);
        page[usize::from(SECTORS)..][..2].copy_from_slice(&sectors.to_be_bytes());
    }

    #[test]
    fn data_from_the_host_lands_in_its_slot_and_raises_an_event() {
        let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
        setup(&mut memory, 0x03, 2, 9);
        assert!(dma.write(START, 1, &memory, 0));
        assert!(!dma.wants_out(Some(8)) && dma.wants_out(Some(9)));
        assert_eq!(dma.read(BUSY, 0, &memory), 2);
        dma.out_came(Some(9), &[7; 600], &mut sram, 10);
        dma.out_came(Some(9), &[8; 600], &mut sram, 20);
        assert_eq!((sram.bytes()[0x4000], sram.bytes()[0x4000 + 1023], sram.bytes()[0x4000 + 1024]), (7, 8, 0));
        dma.advance(20 + EVENT_DELAY - 1);
        assert!(!dma.has_event());
        dma.advance(20 + EVENT_DELAY);
        assert_eq!((dma.read(EVENTS, 0, &memory), dma.read(DONE_OUT, 0, &memory)), (2, 3));
        assert!(dma.write(TAKE_OUT, 0xFF, &memory, 0) && !dma.has_event());
        assert_eq!(dma.read(DONE_OUT, 0, &memory), NO_QUEUE_SLOT);
    }

    #[test]
    fn data_to_the_host_waits_for_its_completion_entry() {
        let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
        sram.load(0x4000, &[5; 1536]);
        setup(&mut memory, 0x02, 3, 4);
        dma.write(START, 1, &memory, 0);
        assert_eq!(dma.take_in(Some(4), 1024, &sram, 0), None);
        dma.release(2);
        assert_eq!(dma.take_in(Some(4), 1024, &sram, 0), None, "another slot's");
        dma.release(1);
        let lens = [(); 3].map(|()| dma.take_in(Some(4), 1024, &sram, 0).map(|packet| packet.len()));
        assert_eq!(lens, [Some(1024), Some(512), None]);
        dma.advance(EVENT_DELAY);
        assert_eq!((dma.read(EVENTS, 0, &memory), dma.read(DONE_IN, 0, &memory)), (1, 3));
    }

    #[test]
    fn a_reset_of_the_engine_drops_the_events_that_nobody_has_taken() {
        for is_to_host in [false, true] {
            for is_due in [false, true] {
                let (memory, sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
                dma.begin(!is_to_host, DmaTransfer::part(3, 1, 4, 512));
                if is_to_host {
                    dma.release(1);
                    dma.take_in(Some(4), 1024, &sram, 0).unwrap();
                } else {
                    dma.out_came(Some(4), &[7; 512], &mut Sram::new(), 0);
                }
                if !is_due {
                    dma.advance(EVENT_DELAY);
                }
                assert_eq!(dma.has_event(), !is_due);
                assert!(dma.end(true, true), "it says that something has changed");
                dma.advance(EVENT_DELAY);
                assert!(!dma.has_event() && !dma.end(true, true), "{is_to_host} {is_due}");
                assert_eq!(dma.read(EVENTS, 0, &memory), 0);
            }
        }
    }

    #[test]
    fn a_drain_drops_what_the_host_still_sends() {
        let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
        setup(&mut memory, 0x03, 0, 0);
        memory.main_mut()[usize::from(DRAIN)] = 0x02;
        memory.main_mut()[HOST_LENGTH + 1] = 0x02;
        dma.write(START, 1, &memory, 0);
        dma.out_came(None, &[9; 512], &mut sram, 0);
        dma.advance(EVENT_DELAY);
        assert_eq!((dma.read(DRAINED, 1, &memory), dma.has_event()), (1, true));
        assert!(sram.bytes().iter().all(|byte| *byte == 0));
        assert!(dma.write(DRAINED, 1, &memory, 0) && !dma.has_event());
    }

    #[test]
    fn the_allocator_finds_free_slots_and_groups() {
        let (memory, mut dma) = (XdataMemory::new(), Dma::default());
        dma.write(TAKE, 0, &memory, 0);
        dma.write(TAKE, 5, &memory, 0);
        let free = |dma: &Dma| [FREE_1, FREE_2, 0xCE66, 0xCE67, FREE_16].map(|addr| dma.read(addr, 0, &memory));
        assert_eq!(dma.read(0xCE43, 0, &memory), 0x21);
        assert_eq!(free(&dma), [1, 1, 2, 1, 2]);
        dma.write(FREE, 0, &memory, 0);
        assert_eq!(free(&dma), [0, 0, 0, 1, 2]);
        for byte in 0..4 {
            dma.write(USED + byte, 0xFF, &memory, 0);
        }
        assert_eq!(free(&dma), [0x40, 0x3F, 0x1F, 0x0F, 0]);
        dma.write(TAKE, 0xFF, &memory, 0);
    }

    #[test]
    fn however_many_are_started_few_are_kept() {
        let (mut memory, mut dma) = (XdataMemory::new(), Dma::default());
        for round in 0..10_000u16 {
            setup(&mut memory, 0x02 | (round & 1) as u8, 0xFFFF, round);
            dma.write(START, 0, &memory, 0);
        }
        assert!(dma.from_host.len() <= MOST && dma.to_host.len() <= MOST);
    }
}
