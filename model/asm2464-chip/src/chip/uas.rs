//! The UAS engine: gives each command information unit (IU) a slot and keeps the slots' tags.

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xC471.0, read-only: a command waits. Source: c:0x1117.
const WAITS: u16 = 0xC471;
/// 0xC47A: the waiting command's slot, FF if none waits; any write takes it. Source: c:0x182F, 0x119B.
const NEXT: u16 = 0xC47A;
/// 0xC47B: 0 while no slot is free, else 1 (chosen). An IU that finds no free slot stays at 0x911B with 0x90E2.0 set.
/// Source: c:0x1027.
const FREE: u16 = 0xC47B;
/// 0xC4EC.0: the waiting command's tag is also another slot's. Source: c:0x18D6.
const OVERLAPPED: u16 = 0xC4EC;
/// 0xC4ED bits 5:0: a slot; 0xC4EE:0xC4EF then hold its tag, FFFF if it is free. Source: c:0x0232, 0x18DF.
const ASK: u16 = 0xC4ED;
const TAG: u16 = 0xC4EE;
/// 0xCEB0: the ID of the IU in the slot of 0xCE88; 0xCEB2:0xCEB3 its tag. Source: c:0x31FB, 0x18B9.
const UNIT_ID: u16 = 0xCEB0;
const UNIT_TAG: u16 = 0xCEB2;
/// 0xCE88: register of the I/O engine with the slot that 0xCEB0-0xCEB3 describe.
pub(super) const UNIT_SLOT: u16 = 0xCE88;
/// 0x91D0, write: .3 sends READ READY, .4 WRITE READY, at high speed. Source: c:0x5321. The tag is that of 0x900C and
/// 0x900E (chosen).
pub(super) const READY: u16 = 0x91D0;
pub(super) const READ_READY: u8 = 0x08;
pub(super) const WRITE_READY: u8 = 0x10;
/// 0xC8D4: 0x80 + slot, or A0: the slot whose status block 0xD800 shows. One block is enough here. Source: c:0x020B.
const STATUS_SLOT: u16 = 0xC8D4;

/// 0xD000 + 0x20 n: the IU in slot n. Source: table c:0x5CAD, c:0x3189.
const UNITS: usize = 0xD000;
const UNIT_LEN: usize = 0x20;
/// Offset of the CDB in a command IU.
pub(super) const CDB: usize = 0x10;
const SLOTS: usize = 32;
/// Instructions until an IU gets its slot if the host sends it while the firmware has not acknowledged an earlier
/// status (chosen: 20 us). Hosts take longer. By then the vendor's handler has left its loop over commands
/// (c:0x1117-0x1138), as in the recording (of 231204, lines 5880 and 5893).
const COMING: u64 = 1_000;
/// The tag of a free slot.
const NO_TAG: u16 = 0xFFFF;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(WAITS, "UAS_WAITS"),
    Register::range(NEXT, FREE, "UAS_NEXT"),
    Register::range(OVERLAPPED, TAG + 1, "UAS_TAGS"),
    Register::one(UNIT_ID, "UAS_UNIT_ID"),
    Register::range(UNIT_TAG, UNIT_TAG + 1, "UAS_UNIT_TAG"),
    Register::one(READY, "UAS_READY"),
    Register::one(STATUS_SLOT, "UAS_STATUS_SLOT"),
];

/// Address of a slot's IU.
pub(super) fn unit_at(slot: u8) -> usize {
    UNITS + UNIT_LEN * (usize::from(slot) % SLOTS)
}

#[derive(Debug, Default)]
pub(super) struct UasBlock {
    tags: [Option<u16>; SLOTS],
    /// Slots whose status was sent, one bit each. They stay taken until the firmware acknowledges it. Source: four
    /// commands, one at a time, took the slots 0, 1, 0, 1 (recording of 231204, lines 5818 to 6075), and the second and
    /// fourth were sent before the status before them was acknowledged (lines 5902 and 5984).
    answered: u32,
    next: Option<u8>,
    overlapped: bool,
    /// An IU on its way, with the time at which it gets its slot.
    coming: Option<(u64, Vec<u8>)>,
}

impl UasBlock {
    /// Whether a command waits for the firmware.
    pub(super) fn waits(&self) -> bool {
        self.next.is_some()
    }

    /// Takes an IU from the host. Returns `false` while another one is on its way or waits.
    pub(super) fn receive(&mut self, unit: &[u8], now: u64) -> bool {
        let has_room = !self.waits() && self.coming.is_none();
        if has_room {
            let at = if self.answered == 0 { now } else { now + COMING };
            self.coming = Some((at, unit.to_vec()));
        }
        has_room
    }

    /// Time at which the IU on its way gets its slot.
    pub(super) fn next(&self) -> Option<u64> {
        self.coming.as_ref().map(|(at, _)| *at)
    }

    /// Takes the IU that is due.
    pub(super) fn came(&mut self, now: u64) -> Option<Vec<u8>> {
        self.coming.take_if(|(at, _)| *at <= now).map(|(_, unit)| unit)
    }

    /// A slot's tag.
    pub(super) fn tag(&self, slot: usize) -> u16 {
        self.tags.get(slot).copied().flatten().unwrap_or(NO_TAG)
    }

    /// Puts an IU into the lowest free slot. Returns `false` if none is free.
    pub(super) fn take(&mut self, unit: &[u8], memory: &mut XdataMemory) -> bool {
        let Some(slot) = self.tags.iter().position(Option::is_none) else { return false };
        let at = UNITS + UNIT_LEN * slot;
        let page = memory.main_mut();
        page[at..at + UNIT_LEN].fill(0);
        let len = unit.len().min(UNIT_LEN);
        page[at..at + len].copy_from_slice(&unit[..len]);
        let tag = u16::from_be_bytes([page[at + 2], page[at + 3]]);
        self.overlapped = (0..SLOTS).any(|slot| self.answered >> slot & 1 == 0 && self.tags[slot] == Some(tag));
        self.tags[slot] = Some(tag);
        self.next = Some(slot as u8);
        true
    }

    /// Records that a slot's status was sent. Its tag may be used again.
    pub(super) fn answered(&mut self, slot: usize) {
        self.answered |= 1_u32.checked_shl(slot as u32).unwrap_or(0);
    }

    /// Frees a slot after the firmware has acknowledged that its status was sent.
    pub(super) fn free(&mut self, slot: usize) {
        if let Some(tag) = self.tags.get_mut(slot)
            && self.answered >> slot & 1 != 0
        {
            *tag = None;
            self.answered &= !(1 << slot);
        }
    }

    /// Forgets every command.
    pub(super) fn start_over(&mut self) {
        *self = Self::default();
    }

    pub(super) fn read(&self, addr: u16, stored: u8, memory: &XdataMemory) -> u8 {
        let page = memory.main();
        match addr {
            WAITS => u8::from(self.waits()),
            NEXT => self.next.unwrap_or(0xFF),
            FREE => u8::from(self.tags.contains(&None)),
            OVERLAPPED => u8::from(self.overlapped),
            TAG => (self.asked(page) >> 8) as u8,
            0xC4EF => self.asked(page) as u8,
            UNIT_ID..=0xCEB3 => page[unit_at(page[usize::from(UNIT_SLOT)]) + usize::from(addr - UNIT_ID)],
            _ => stored,
        }
    }

    fn asked(&self, page: &[u8]) -> u16 {
        self.tag(usize::from(page[usize::from(ASK)] & 0x3F))
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16) -> bool {
        addr == NEXT && self.next.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(tag: u8) -> [u8; 32] {
        let mut unit = [0; 32];
        unit[..4].copy_from_slice(&[1, 0, 0, tag]);
        unit[CDB] = 0x12;
        unit
    }

    #[test]
    fn a_unit_keeps_the_lowest_free_slot_until_its_status_is_acknowledged() {
        let mut memory = XdataMemory::new();
        let mut uas = UasBlock::default();
        for tag in 1..=32 {
            assert!(uas.take(&unit(tag), &mut memory));
            assert_eq!(uas.read(NEXT, 0, &memory), tag - 1);
            assert!(uas.write(NEXT));
            assert_eq!((uas.read(WAITS, 0, &memory), uas.read(NEXT, 0, &memory)), (0, 0xFF));
        }
        assert_eq!(uas.read(FREE, 0, &memory), 0);
        assert!(!uas.take(&unit(33), &mut memory));
        uas.answered(5);
        assert!(!uas.take(&unit(33), &mut memory), "the firmware has not acknowledged it");
        uas.free(5);
        assert!(uas.take(&unit(33), &mut memory));
        assert_eq!((uas.read(NEXT, 0, &memory), uas.tag(5)), (5, 33));
    }

    #[test]
    fn a_slot_shows_its_units_id_and_tag() {
        let mut memory = XdataMemory::new();
        let mut uas = UasBlock::default();
        uas.take(&unit(0x42), &mut memory);
        memory.main_mut()[0xCE88] = 0;
        memory.main_mut()[0xC4ED] = 0;
        let read = |addr| uas.read(addr, 0, &memory);
        assert_eq!((read(UNIT_ID), read(0xCEB2), read(0xCEB3), read(TAG), read(0xC4EF)), (1, 0, 0x42, 0, 0x42));
        assert_eq!(memory.main()[0xD010], 0x12);
    }

    #[test]
    fn a_tag_that_is_in_use_is_reported() {
        let mut memory = XdataMemory::new();
        let mut uas = UasBlock::default();
        uas.take(&unit(7), &mut memory);
        assert_eq!(uas.read(OVERLAPPED, 0, &memory), 0);
        uas.take(&unit(7), &mut memory);
        assert_eq!(uas.read(OVERLAPPED, 0, &memory), 1);
    }
}
