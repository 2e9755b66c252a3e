//! The SRAM DMA: moves bulk data between the bus and the SRAM without the CPU. And the allocator of its slots.
//!
//! Data to the host waits until a completion entry is written from the PCIe side. Source: open firmware's README and
//! `test_sram_verify.py`; how the vendor ends a READ is read out of c:0x2608 and c:0x3E81.

use std::collections::VecDeque;

use super::map::Register;
use super::sram::Sram;
use crate::mcu::XdataMemory;

/// 0xC412: .0 direction, 1 = from the host; .1 start. Source: open F2 (03 out, 02 in); c:0x2880, 0x1B56.
const CONTROL: u16 = 0xC412;
/// 0xC413 bits 5:0: the command's queue slot. Source: c:0x2880-0x29DE.
const QUEUE_SLOT: u16 = 0xC413;
/// 0xC414: .7 and the first SRAM slot; 0xC415: the end slot. Source: open F2; c:0x28xx.
const FIRST_SLOT: u16 = 0xC414;
/// 0xC420:0xC421: the stream. 0xC422:0xC423: bytes a sector. 0xC426:0xC427: sectors. All big-endian. Source: open F2;
/// c:0x2880-0x29DE.
const STREAM: u16 = 0xC420;
const SECTOR_LEN: u16 = 0xC422;
const SECTORS: u16 = 0xC426;
/// 0xC429: the first SRAM slot again; written last, it starts the DMA. Source: open F2, c:0x29DE: both write it last.
const START: u16 = 0xC429;
/// 0xC42A: written around transfers; no effect here. Source: c:0x3133; open F2.
const CONTROL_2: u16 = 0xC42A;
/// 0xC42C.0, write 1 clears: the data stage of a command has ended. Source: c:0x116B-0x117A, then c:0x4784 sends the
/// status, or, with no data stage under way, halts every endpoint. Never on here.
const STAGE_ENDED: u16 = 0xC42C;
/// 0xC450: 2 while a transfer from the host runs. Source: owners of units; F2 must wait for 0.
const BUSY: u16 = 0xC450;
/// 0xC4CC-0xC4CF, read-only: sectors times bytes a sector, big-endian. Source: c:0x2C12-0x2C38, Bulk-Only READ and
/// WRITE, takes it for the command's length right after it has written the sectors.
const LENGTH: u16 = 0xC4CC;
/// 0xC508: slot; the engine sends a good status for it. Source: c:0x3E81-0x3EED.
pub(super) const SEND_GOOD: u16 = 0xC508;
/// 0xC512: any write takes the event that 0xC516 shows; 0xC51A the one that 0xC51E shows. Source: c:0x3EED, c:0x488F.
const TAKE_IN: u16 = 0xC512;
const TAKE_OUT: u16 = 0xC51A;
/// 0xC516: queue slot of the oldest finished transfer to the host, 3F for none. 0xC51E: from the host.
const DONE_IN: u16 = 0xC516;
const DONE_OUT: u16 = 0xC51E;
/// 0xC520, read-only: .0 a transfer to the host is finished, .1 one from the host. Source: c:0x3E81, c:0x1124.
const EVENTS: u16 = 0xC520;

/// 0xCE40-0xCE43: bitmap of used slots, 0xCE43 has slots 0-7. Source: c:0x129E-0x14E0; the roles are chosen.
const USED: u16 = 0xCE40;
/// 0xCE5C: bit k, slots 16k to 16k+15 are free. 0xCE60: first free slot, 40 for none; 0xCE65, 0xCE66, 0xCE67: first
/// free group of 2, 4, 8. Source: c:0x45D0-0x466A; the roles are chosen.
const FREE_16: u16 = 0xCE5C;
const FREE_1: u16 = 0xCE60;
const FREE_2: u16 = 0xCE65;
/// 0xCE6E: takes a slot. 0xCE6F: frees one. Source: c:0x129E-0x14E0; the client's E5 writes.
const TAKE: u16 = 0xCE6E;
const FREE: u16 = 0xCE6F;

/// Bytes of a slot. Slot n stands at PCIe 0x00200000 + n * 0x4000. Source: PRPs of queued reads, executed.
const SLOT_LEN: usize = 0x4000;
const NO_QUEUE_SLOT: u8 = 0x3F;
/// Transfers kept at once: one a queue slot.
const MOST: usize = 64;
/// Instructions from the last byte to the event (chosen).
const EVENT_DELAY: u64 = 200;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(CONTROL, FIRST_SLOT + 1, "DMA_SETUP"),
    Register::range(STREAM, STREAM + 1, "DMA_STREAM"),
    Register::range(SECTOR_LEN, SECTOR_LEN + 1, "DMA_SECTOR_LENGTH"),
    Register::range(SECTORS, SECTORS + 1, "DMA_SECTORS"),
    Register::one(START, "DMA_START"),
    Register::one(CONTROL_2, "DMA_CONTROL_2"),
    Register::one(STAGE_ENDED, "DMA_STAGE_ENDED"),
    Register::one(BUSY, "DMA_BUSY"),
    Register::range(LENGTH, LENGTH + 3, "DMA_LENGTH"),
    Register::one(SEND_GOOD, "DMA_SEND_GOOD"),
    Register::one(TAKE_IN, "DMA_TAKE_IN"),
    Register::one(DONE_IN, "DMA_DONE_IN"),
    Register::one(TAKE_OUT, "DMA_TAKE_OUT"),
    Register::one(DONE_OUT, "DMA_DONE_OUT"),
    Register::one(EVENTS, "DMA_EVENTS"),
    Register::range(USED, USED + 3, "SRAM_SLOTS_USED"),
    Register::one(FREE_16, "SRAM_FREE_16"),
    Register::one(FREE_1, "SRAM_FREE_1"),
    Register::range(FREE_2, FREE_2 + 2, "SRAM_FREE_GROUPS"),
    Register::range(TAKE, FREE, "SRAM_SLOT_TAKE_FREE"),
];

#[derive(Debug, Clone, Copy)]
struct Transfer {
    queue_slot: u8,
    sram_slot: u8,
    stream: u16,
    at: usize,
    left: usize,
    /// To the host: a completion entry has come.
    is_released: bool,
}

#[derive(Debug, Default)]
pub(super) struct Dma {
    from_host: Vec<Transfer>,
    to_host: Vec<Transfer>,
    /// Events to come: when, whether to the host, queue slot.
    due: VecDeque<(u64, bool, u8)>,
    done_in: VecDeque<u8>,
    done_out: VecDeque<u8>,
    used: u32,
}

impl Dma {
    pub(super) fn has_event(&self) -> bool {
        !self.done_in.is_empty() || !self.done_out.is_empty()
    }

    /// Forgets every transfer and event.
    pub(super) fn start_over(&mut self) {
        *self = Self { used: self.used, ..Self::default() };
    }

    fn first_free(&self, group: u32) -> Option<u8> {
        let mask = if group == 32 { u32::MAX } else { (1 << group) - 1 };
        (0..32 / group).find(|index| (self.used >> (index * group)) & mask == 0).map(|index| index as u8)
    }

    pub(super) fn read(&self, addr: u16, stored: u8, memory: &XdataMemory) -> u8 {
        match addr {
            LENGTH..=0xC4CF => {
                let word = |at: u16| u32::from(word(memory, at));
                (word(SECTORS) * word(SECTOR_LEN)).to_be_bytes()[usize::from(addr - LENGTH)]
            }
            STAGE_ENDED => stored & !0x01,
            BUSY => u8::from(!self.from_host.is_empty()) << 1,
            EVENTS => u8::from(!self.done_in.is_empty()) | u8::from(!self.done_out.is_empty()) << 1,
            DONE_IN => self.done_in.front().copied().unwrap_or(NO_QUEUE_SLOT),
            DONE_OUT => self.done_out.front().copied().unwrap_or(NO_QUEUE_SLOT),
            USED..=0xCE43 => self.used.to_be_bytes()[usize::from(addr - USED)],
            FREE_16 => u8::from(self.used & 0xFFFF == 0) | u8::from(self.used >> 16 == 0) << 1,
            FREE_1 => self.first_free(1).unwrap_or(0x40),
            FREE_2 => self.first_free(2).unwrap_or(0x3F),
            0xCE66 => self.first_free(4).unwrap_or(0x1F),
            0xCE67 => self.first_free(8).unwrap_or(0x0F),
            _ => stored,
        }
    }

    /// `true` where the write did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, memory: &XdataMemory) -> bool {
        let used = self.used;
        match addr {
            START if memory.main()[usize::from(CONTROL)] & 0x02 != 0 => {
                self.start(value, memory);
                return true;
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

    fn start(&mut self, sram_slot: u8, memory: &XdataMemory) {
        let page = memory.main();
        let byte = |at: u16| page[usize::from(at)];
        let word = |at: u16| usize::from(word(memory, at));
        // The runtime supplies 0x0200; without it, 512 all the same (chosen).
        let sector = if word(SECTOR_LEN) == 0 { 512 } else { word(SECTOR_LEN) };
        let transfer = Transfer {
            queue_slot: byte(QUEUE_SLOT) & 0x3F,
            sram_slot: sram_slot & 0x1F,
            stream: word(STREAM) as u16,
            at: usize::from(byte(FIRST_SLOT) & 0x3F) * SLOT_LEN,
            left: word(SECTORS) * sector,
            is_released: false,
        };
        let list = if byte(CONTROL) & 0x01 != 0 { &mut self.from_host } else { &mut self.to_host };
        list.retain(|other| other.queue_slot != transfer.queue_slot || other.stream != transfer.stream);
        if list.len() == MOST {
            list.remove(0);
        }
        if transfer.left > 0 {
            list.push(transfer);
        }
    }

    /// The transfer from the host that takes a packet on this stream; on any for `None`.
    pub(super) fn wants_out(&self, stream: Option<u16>) -> bool {
        self.from_host.iter().any(|transfer| stream.is_none_or(|stream| stream == transfer.stream))
    }

    /// A packet from the host. What is longer than the transfer is lost.
    pub(super) fn out_came(&mut self, stream: Option<u16>, packet: &[u8], sram: &mut Sram, now: u64) {
        let wanted = |transfer: &Transfer| stream.is_none_or(|stream| stream == transfer.stream);
        let Some(index) = self.from_host.iter().position(wanted) else { return };
        let transfer = &mut self.from_host[index];
        let len = packet.len().min(transfer.left);
        sram.load(transfer.at, &packet[..len]);
        transfer.at += len;
        transfer.left -= len;
        if transfer.left == 0 {
            let queue_slot = self.from_host.remove(index).queue_slot;
            self.later(now, false, queue_slot);
        }
    }

    /// A completion entry has come: the transfer to the host of this SRAM slot may go.
    pub(super) fn release(&mut self, sram_slot: u8) {
        let wanted = |transfer: &&mut Transfer| transfer.sram_slot == sram_slot & 0x1F && !transfer.is_released;
        if let Some(transfer) = self.to_host.iter_mut().find(wanted) {
            transfer.is_released = true;
        }
    }

    /// The next packet to the host on this stream; on any for `None`.
    pub(super) fn take_in(&mut self, stream: Option<u16>, most: usize, sram: &Sram, now: u64) -> Option<Vec<u8>> {
        let wanted =
            |transfer: &Transfer| transfer.is_released && stream.is_none_or(|stream| stream == transfer.stream);
        let index = self.to_host.iter().position(wanted)?;
        let transfer = &mut self.to_host[index];
        let len = transfer.left.min(most);
        let all = sram.bytes();
        let packet = (0..len).map(|offset| all[(transfer.at + offset) % all.len()]).collect();
        transfer.at += len;
        transfer.left -= len;
        if transfer.left == 0 {
            let queue_slot = self.to_host.remove(index).queue_slot;
            self.later(now, true, queue_slot);
        }
        Some(packet)
    }

    fn later(&mut self, now: u64, is_in: bool, queue_slot: u8) {
        if self.due.len() < MOST {
            self.due.push_back((now + EVENT_DELAY, is_in, queue_slot));
        }
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.due.front().map(|(at, ..)| *at)
    }

    pub(super) fn advance(&mut self, now: u64) {
        while let Some((_, is_in, queue_slot)) = self.due.pop_front_if(|(at, ..)| *at <= now) {
            let done = if is_in { &mut self.done_in } else { &mut self.done_out };
            if done.len() < MOST {
                done.push_back(queue_slot);
            }
        }
    }
}

fn word(memory: &XdataMemory, at: u16) -> u16 {
    let page = memory.main();
    u16::from_be_bytes([page[usize::from(at)], page[usize::from(at) + 1]])
}
