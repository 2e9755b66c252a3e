//! The mass storage engine: parses CBWs, and sends the status of every command: a CSW, or a UAS information unit (IU).

use std::collections::VecDeque;

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0x9000.0: 1 UAS, 0 Bulk-Only; the firmware sets it with SET_INTERFACE. Source: b0:0xA679, 0xB5AF.
pub(super) const MODE: u16 = 0x9000;
/// 0x901A+n: bytes of slot n's status. Source: c:0x02E1; Bulk-Only's CSW, n = 0: c:0x4968.
const LENGTHS: u16 = 0x901A;
/// 0x905A: bytes of a status without a slot; 0x905B:0x905C: its tag. Source: c:0x02C4.
const LOOSE_LENGTH: u16 = 0x905A;
const LOOSE_TAG: u16 = 0x905B;
/// 0x9096-0x909D, write 1 clears: bit n of byte k, the status of slot 8k + n was sent. 0x909E.0: the status without a
/// slot. Source: c:0x0E99, 0x0EFB.
pub(super) const SENT: u16 = 0x9096;
/// 0x90A0 = 1 is written together with 0x90E3 = 1. Source: b0:0xA6C4.
const RESTART: u16 = 0x90A0;
/// 0x90A1+n, write 1: sends slot n's status, from 0xD800. Source: c:0x02E9, 0x3221 (n = 0: the CSW).
const SENDS: u16 = 0x90A1;
/// 0x90E1, write 1: sends the status without a slot. Source: c:0x02D4.
const SEND_LOOSE: u16 = 0x90E1;
/// 0x90E2, write 1 clears: .0 a CBW arrived, or over UAS an IU without a slot. Source: c:0x1016-0x104B.
pub(super) const CBW_CAME: u16 = 0x90E2;
/// 0x90E3: .0 start over; .1 take the next CBW, or IU without a slot. Source: b0:0xA6BB, c:0x52AE, 0x0F14.
const CONTROL: u16 = 0x90E3;
/// 0x9118, read-only: bit k, byte k of 0x9096-0x909D is not 0. Source: c:0x0E99.
const SENT_BYTES: u16 = 0x9118;
/// 0x9119:0x911A: length of the received packet, big-endian; its bytes from 0x911B on. Source: c:0x51EF.
const CAME_LENGTH: u16 = 0x9119;
const CAME: u16 = 0x911B;
/// 0xD800: the status block.
const STATUS: usize = 0xD800;
/// Bytes of a received packet that are kept: up to 0x9139, a CBW and one more.
const CAME_LEN: usize = 32;
/// Slot number that stands for the status without a slot (0x909E.0 and 0x90E1).
const LOOSE: usize = 64;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(MODE, "USB_MODE"),
    Register::range(LENGTHS, LENGTHS + 31, "STATUS_LENGTHS"),
    Register::one(LOOSE_LENGTH, "LOOSE_STATUS_LENGTH"),
    Register::range(LOOSE_TAG, LOOSE_TAG + 1, "LOOSE_STATUS_TAG"),
    Register::range(SENT, SENT + 8, "STATUS_SENT"),
    Register::one(RESTART, "MSC_RESTART"),
    Register::range(SENDS, SENDS + 31, "STATUS_SEND"),
    Register::one(SEND_LOOSE, "LOOSE_STATUS_SEND"),
    Register::one(CBW_CAME, "CBW_CAME"),
    Register::one(CONTROL, "MSC_CONTROL"),
    Register::one(SENT_BYTES, "STATUS_SENT_BYTES"),
    Register::range(CAME_LENGTH, CAME + CAME_LEN as u16 - 1, "CBW"),
];

/// Effect of a write to the engine on the other blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEffect {
    None,
    /// Only the engine's own state changed.
    Changed,
    /// All slots have to be forgotten.
    StartOver,
}

#[derive(Debug)]
struct WaitingStatus {
    /// The slot; `None` if the firmware gets no event when the status was sent.
    slot: Option<usize>,
    tag: u16,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Msc {
    is_uas: bool,
    cbw_wanted: bool,
    came: u8,
    sent: [u8; 9],
    waiting: VecDeque<WaitingStatus>,
}

impl Msc {
    pub(super) fn is_uas(&self) -> bool {
        self.is_uas
    }

    pub(super) fn has_sent(&self) -> bool {
        self.sent.iter().any(|byte| *byte != 0)
    }

    pub(super) fn came(&self) -> u8 {
        self.came
    }

    pub(super) fn wants_cbw(&self) -> bool {
        self.cbw_wanted
    }

    /// Takes a CBW, or an IU without a slot.
    pub(super) fn take(&mut self, packet: &[u8], memory: &mut XdataMemory) {
        let page = memory.main_mut();
        let at = usize::from(CAME_LENGTH);
        page[at..at + 2].copy_from_slice(&(packet.len() as u16).to_be_bytes());
        let kept = packet.len().min(CAME_LEN);
        let at = usize::from(CAME);
        page[at..at + kept].copy_from_slice(&packet[..kept]);
        self.cbw_wanted = false;
        self.came |= 0x01;
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        match addr {
            SENT..=0x909E => self.sent[usize::from(addr - SENT)],
            SENDS..=0x90C0 | SEND_LOOSE => 0,
            CBW_CAME => self.came,
            SENT_BYTES => {
                let bits = self.sent[..8].iter().enumerate();
                bits.fold(0, |bits, (byte, sent)| bits | u8::from(*sent != 0) << byte)
            }
            _ => stored,
        }
    }

    pub(super) fn write(
        &mut self,
        addr: u16,
        value: u8,
        tag: impl Fn(usize) -> u16,
        memory: &XdataMemory,
    ) -> WriteEffect {
        let page = memory.main();
        let did = match addr {
            MODE => {
                let before = std::mem::replace(&mut self.is_uas, value & 0x01 != 0);
                if before != self.is_uas {
                    return WriteEffect::StartOver;
                }
                false
            }
            SENT..=0x909E => {
                let byte = &mut self.sent[usize::from(addr - SENT)];
                let cleared = *byte & value;
                *byte &= !value;
                cleared != 0
            }
            SENDS..=0x90C0 if value & 0x01 != 0 => {
                let slot = usize::from(addr - SENDS);
                let len = page[usize::from(LENGTHS) + slot];
                self.send(Some(slot), tag(slot), &page[STATUS..STATUS + usize::from(len)]);
                true
            }
            SEND_LOOSE if value & 0x01 != 0 => {
                let len = usize::from(page[usize::from(LOOSE_LENGTH)]);
                let at = usize::from(LOOSE_TAG);
                let tag = u16::from_be_bytes([page[at], page[at + 1]]);
                self.send(Some(LOOSE), tag, &page[STATUS..STATUS + len]);
                true
            }
            CBW_CAME => {
                let cleared = self.came & value;
                self.came &= !value;
                cleared != 0
            }
            CONTROL => {
                if value & 0x02 != 0 {
                    self.cbw_wanted = true;
                }
                // A write of .0 does not cancel an earlier request by .1: b0:0xA73E writes 2, b0:0xA6C0 then 1.
                if value & 0x01 != 0 {
                    self.waiting.clear();
                    return WriteEffect::StartOver;
                }
                value & 0x02 != 0
            }
            _ => false,
        };
        if did { WriteEffect::Changed } else { WriteEffect::None }
    }

    /// Queues a status for the host. A slot has one status at a time: a later one replaces an earlier one.
    pub(super) fn send(&mut self, slot: Option<usize>, tag: u16, bytes: &[u8]) {
        self.waiting.retain(|status| status.slot != slot || slot.is_none() && status.tag != tag);
        if self.waiting.len() < 2 * LOOSE {
            self.waiting.push_back(WaitingStatus { slot, tag, bytes: bytes.to_vec() });
        }
    }

    /// Takes the next status for the host on its stream; `None` stands for any stream. Also returns the slot that is
    /// now free.
    pub(super) fn take_status(&mut self, stream: Option<u16>) -> Option<(Option<usize>, Vec<u8>)> {
        let wanted = |status: &WaitingStatus| stream.is_none_or(|stream| stream == status.tag);
        let at = self.waiting.iter().position(wanted)?;
        let status = self.waiting.remove(at)?;
        if let Some(slot) = status.slot {
            self.sent[slot / 8] |= 1 << (slot % 8);
        }
        Some((status.slot.filter(|slot| *slot != LOOSE), status.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csw_is_sent_once_and_raises_an_event() {
        let mut memory = XdataMemory::new();
        memory.main_mut()[0x901A] = 13;
        memory.main_mut()[0xD800..0xD804].copy_from_slice(b"USBS");
        let mut msc = Msc::default();
        assert_eq!(msc.write(SENDS, 1, |_| 0, &memory), WriteEffect::Changed);
        assert!(!msc.has_sent());
        let (slot, csw) = msc.take_status(None).unwrap();
        assert_eq!((slot, csw.len(), &csw[..4]), (Some(0), 13, &b"USBS"[..]));
        assert_eq!((msc.read(SENT, 0), msc.read(SENT_BYTES, 0)), (1, 1));
        assert_eq!(msc.take_status(None), None);
        msc.write(SENT, 1, |_| 0, &memory);
        assert!(!msc.has_sent());
    }

    #[test]
    fn a_status_goes_to_its_commands_stream() {
        let mut memory = XdataMemory::new();
        memory.main_mut()[0x901A + 9] = 16;
        memory.main_mut()[0x905A..0x905D].copy_from_slice(&[8, 0, 0x21]);
        let mut msc = Msc::default();
        msc.write(SENDS + 9, 1, |slot| slot as u16 + 0x10, &memory);
        msc.write(SEND_LOOSE, 1, |_| 0, &memory);
        assert_eq!(msc.take_status(Some(0x18)), None);
        assert_eq!(msc.take_status(Some(0x19)).map(|(slot, bytes)| (slot, bytes.len())), Some((Some(9), 16)));
        assert_eq!(msc.take_status(Some(0x21)).map(|(slot, bytes)| (slot, bytes.len())), Some((None, 8)));
        assert_eq!((msc.sent[1], msc.sent[8], msc.read(SENT_BYTES, 0)), (2, 1, 2));
    }

    #[test]
    fn however_often_a_status_is_sent_one_waits_for_each_slot() {
        let memory = XdataMemory::new();
        let mut msc = Msc::default();
        for round in 0..10_000u32 {
            msc.write(SENDS + (round % 32) as u16, 1, |_| 0, &memory);
            msc.send(None, round as u16, &[]);
        }
        assert!(msc.waiting.len() <= 2 * LOOSE);
    }
}
