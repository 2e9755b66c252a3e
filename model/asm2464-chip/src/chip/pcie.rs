//! The PCIe side: the link (the device's power, its training, whether it is up), and the TLP engine, which sends one
//! request at a time to the devices behind the bridge.
//!
//! The registers of the TLP engine that hosts use, too, are those of `asm2464::tlp::engine`. 0xB213, 0xB216: length and
//! other fields of the header's first dwords, no effect here. 0xB22C, 0xB22D: 0 in a completion for the requester itself.
//! Source: b0:0x9A53, 0xAE25; b0:0xAE57-0xAE66, 0x9A60.

use asm2464::tlp::TlpKind;
use asm2464::tlp::engine::{
    ADDRESS, ADDRESS_HIGH, BYTE_ENABLES, COMPLETED, COMPLETION, DATA, FIRE, FORMAT, NO_COMPLETION, SEND, SENT, STATUS,
};
use serde::Deserialize;

use super::fabric::{ConfigAddress, TlpCompletion, TlpRequest};
use super::map::Register;
use super::nvme::Nvme;
use crate::mcu::XdataMemory;

/// 0xB450: the LTSSM's state. Source: open firmware, whose register map has 00 and 01 as Detect, 10 and more as
/// Polling, 4C as Configuration; owners of units, for 78, the link is up.
const LTSSM: u16 = asm2464::tlp::LTSSM.addr;
/// 0xC656.5: the device's 3.3 V. Until the firmware first sets it, the device has power as well (chosen: firmware that
/// never touches the register has devices behind it, too), unless the fabric starts off. Source: F3 of open firmware;
/// c:0x5290, b0:0xE5CB; E8 with mode 0x51.
pub(super) const POWER: u16 = 0xC656;
pub(super) const POWERED: u8 = 0x20;
/// 0xC659.0: turns the lanes on. Source: open firmware. Without it the LTSSM stays in Configuration (its pull request
/// 81, found by leaving out one write after the other on silicon). The vendor's sets it after 0xE764 (b0:0xCC90).
const LANES: u16 = 0xC659;
const LANES_ON: u8 = 0x01;
/// 0xE764.3: trains the link. Source: open firmware writes 1C to start and 00 to stop; the vendor's sets it first
/// (b0:0xE7E0), and clears it when it gives up (b0:0xCE0C). By pull request 81, 1C tries again until a device answers,
/// and the vendor's 19 tries once; here both try again.
const TRAINING: u16 = 0xE764;
const TRAINS: u8 = 0x08;
/// 0xE762.4: a device answers. Source: unless it is set, the vendor's gives up 1 ms after it has begun to train
/// (b0:0xCDF2); runs on silicon end with 0xE764 = 19, so it does not give up there (pull request 81).
const ANSWERS: u16 = 0xE762;
const ANSWERED: u8 = 0x10;
/// 0xE765.1: the link is up. Source: open firmware prints it as "UP"; b0:0xE2BC.
const THERE: u16 = 0xE765;
const IS_THERE: u8 = 0x02;

pub(super) const LINK_REGISTERS: &[Register] = &[
    Register::one(LTSSM, "PCIE_LINK_STATE"),
    Register::one(POWER, "PCIE_POWER").plain_to_reads(),
    Register::one(LANES, "PCIE_LANES").plain_to_reads(),
    Register::one(ANSWERS, "PCIE_ANSWERS"),
    Register::one(TRAINING, "PCIE_TRAINING").plain_to_reads(),
    Register::one(THERE, "PCIE_THERE"),
];

const DETECT: u8 = 0x01;
const CONFIGURATION: u8 = 0x4C;
/// Instructions from the device's power to its first answer: 50 ms. Source: 20 to 50 ms, by pull request 81.
const SETTLING: u64 = 2_500_000;

/// What the link does if its lanes (0xC659.0) were on before its training began (0xE764.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyLanes {
    /// It trains. Source: open firmware up to July 2026, including c5e2090, has this order, and owners used it.
    #[default]
    Train,
    /// It stays in Configuration, until the firmware stops the training and begins again. Source: a comment in open
    /// firmware since pull request 81. Unproven: the pull request itself only mentions lanes turned on too late.
    Stick,
}

/// State of the link's training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Training {
    /// As after a reset of the chip: on silicon 0xE764 is 14 then.
    Off,
    On {
        /// The lanes were on before.
        early: bool,
    },
}

#[derive(Debug)]
pub(super) struct PcieLink {
    pub(super) early_lanes: EarlyLanes,
    is_powered: bool,
    /// Time at which the device begins to answer; `None` if it already does, or has no power.
    settles_at: Option<u64>,
    has_lanes: bool,
    training: Training,
}

impl PcieLink {
    pub(super) fn new(early_lanes: EarlyLanes) -> Self {
        Self { early_lanes, is_powered: false, settles_at: None, has_lanes: false, training: Training::Off }
    }

    /// Whether the link has trained, if a device is there.
    pub(super) fn is_trained(&self) -> bool {
        self.state() == asm2464::tlp::LINK_UP
    }

    /// State of the LTSSM, if a device is there.
    fn state(&self) -> u8 {
        match self.training {
            Training::Off => 0,
            Training::On { .. } if self.settles_at.is_some() => DETECT,
            Training::On { early } if !self.has_lanes || early && self.early_lanes == EarlyLanes::Stick => {
                CONFIGURATION
            }
            Training::On { .. } => asm2464::tlp::LINK_UP,
        }
    }

    /// Time at which the device begins to answer.
    pub(super) fn next(&self) -> Option<u64> {
        self.settles_at
    }

    pub(super) fn advance(&mut self, now: u64) {
        self.settles_at.take_if(|at| *at <= now);
    }

    /// Reads a register. `is_there`: a device is behind the bridge.
    pub(super) fn read(&self, addr: u16, stored: u8, is_there: bool) -> u8 {
        let when = |is_so: bool, bit: u8| if is_there && is_so { stored | bit } else { stored };
        match addr {
            LTSSM if is_there => self.state(),
            LTSSM => 0,
            ANSWERS => when(self.training != Training::Off && self.settles_at.is_none(), ANSWERED),
            THERE => when(self.is_trained(), IS_THERE),
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, now: u64) -> bool {
        let before = (self.settles_at, self.state());
        match addr {
            POWER => {
                let was_powered = std::mem::replace(&mut self.is_powered, value & POWERED != 0);
                self.settles_at = match (was_powered, self.is_powered) {
                    (false, true) => Some(now + SETTLING),
                    (true, true) => self.settles_at,
                    (_, false) => None,
                };
            }
            LANES => self.has_lanes = value & LANES_ON != 0,
            TRAINING => {
                self.training = match self.training {
                    _ if value & TRAINS == 0 => Training::Off,
                    Training::Off => Training::On { early: self.has_lanes },
                    on => on,
                };
            }
            _ => {}
        }
        before != (self.settles_at, self.state())
    }
}

/// 0xB250:0xB251: a doorbell's value. Source: b0:0x99A8; b0:0xC45F-0xC471, 0xE617-0xE676.
const DOORBELL: u16 = 0xB250;
/// 0xB284.0: the completion carries data. Source: b0:0xAE6E-0xAE7D expects it set for reads and clear for writes.
const HAS_DATA: u16 = 0xB284;
/// Byte count of every completion except a memory read's (PCIe base specification, section 2.2.9).
const BYTE_COUNT: u8 = 4;

pub(super) const TLP_REGISTERS: &[Register] = &[
    Register::range(FORMAT, BYTE_ENABLES, "TLP_HEADER").plain(),
    Register::range(ADDRESS, ADDRESS + 3, "TLP_ADDRESS").plain(),
    Register::range(ADDRESS_HIGH, ADDRESS_HIGH + 3, "TLP_ADDRESS_HIGH").plain(),
    Register::range(DATA, DATA + 3, "TLP_DATA").plain(),
    Register::range(COMPLETION, COMPLETION + 3, "TLP_COMPLETION").plain(),
    Register::range(DOORBELL, DOORBELL + 1, "NVME_DOORBELL"),
    Register::one(FIRE, "TLP_FIRE"),
    Register::one(HAS_DATA, "TLP_HAS_DATA").plain(),
    Register::one(STATUS, "TLP_STATUS"),
];

#[derive(Debug, Default)]
pub(super) struct TlpBlock {
    status: u8,
}

impl TlpBlock {
    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        if addr == STATUS { self.status } else { stored }
    }

    /// Handles a write by the CPU. Returns `true` if it did something. `carry` carries out a request.
    pub(super) fn write(
        &mut self,
        addr: u16,
        value: u8,
        memory: &mut XdataMemory,
        carry: impl FnOnce(TlpRequest) -> Option<TlpCompletion>,
    ) -> bool {
        match addr {
            STATUS => {
                let cleared = self.status & value;
                self.status &= !value;
                cleared != 0
            }
            FIRE if value == SEND => {
                self.send(memory, carry);
                true
            }
            FIRE => {
                self.status |= SENT;
                if let Some(doorbell) = Nvme::doorbell(value) {
                    let at = usize::from(DOORBELL);
                    let rung = u32::from(u16::from_be_bytes([memory.main()[at], memory.main()[at + 1]]));
                    carry(TlpRequest::MemoryWrite(doorbell, rung, 0x0F));
                }
                true
            }
            _ => false,
        }
    }

    fn send(&mut self, memory: &mut XdataMemory, carry: impl FnOnce(TlpRequest) -> Option<TlpCompletion>) {
        let page = memory.main();
        let dword = |at: u16| {
            let at = usize::from(at);
            u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
        };
        let low = dword(ADDRESS);
        let enables = page[usize::from(BYTE_ENABLES)] & 0x0F;
        let value = dword(DATA);
        let format = page[usize::from(FORMAT)];
        let high = if format & TlpKind::FOUR_DWORDS == 0 { 0 } else { dword(ADDRESS_HIGH) };
        let address = u64::from(high) << 32 | u64::from(low & !3);
        let request = match TlpKind::of_header(format) {
            Some(TlpKind::ConfigRead0 | TlpKind::ConfigRead1) => TlpRequest::ConfigRead(ConfigAddress::of_request(low)),
            Some(TlpKind::ConfigWrite0 | TlpKind::ConfigWrite1) => {
                TlpRequest::ConfigWrite(ConfigAddress::of_request(low), value, enables)
            }
            Some(TlpKind::MemoryRead) => TlpRequest::MemoryRead(address),
            Some(TlpKind::MemoryWrite) => TlpRequest::MemoryWrite(address, value, enables),
            // A message, or a type that no device answers: sent, and never completed.
            None => {
                self.status |= SENT | NO_COMPLETION;
                return;
            }
        };
        self.status |= SENT;
        let Some(completion) = carry(request) else { return };
        let page = memory.main_mut();
        let (status, data) = match completion {
            TlpCompletion::Data(value) => (0, Some(value)),
            TlpCompletion::Done => (0, None),
            TlpCompletion::UnsupportedRequest => (1, None),
            TlpCompletion::Retry => (2, None),
            TlpCompletion::Never => {
                self.status |= NO_COMPLETION;
                return;
            }
        };
        let is_read = matches!(request, TlpRequest::ConfigRead(_) | TlpRequest::MemoryRead(_));
        if is_read {
            let at = usize::from(DATA);
            page[at..at + 4].copy_from_slice(&data.unwrap_or(u32::MAX).to_be_bytes());
        }
        let at = usize::from(COMPLETION);
        let count = if matches!(request, TlpRequest::MemoryRead(_)) { byte_count(enables) } else { BYTE_COUNT };
        page[at..at + 4].copy_from_slice(&[status << 5, count, 0, 0]);
        page[usize::from(HAS_DATA)] = u8::from(data.is_some());
        self.status |= COMPLETED;
    }
}

/// Byte count in the completion of a read of one dword: from the first enabled byte to the last, or 1 if none is
/// enabled. Source: PCIe base specification, table 2-38; the runtime expects it.
fn byte_count(enables: u8) -> u8 {
    match enables {
        0 => 1,
        _ => (u8::BITS - enables.leading_zeros() - enables.trailing_zeros()) as u8,
    }
}

#[cfg(test)]
mod tests {
    use asm2464::Bdf;

    use super::*;
    use crate::chip::fabric::{Fabric, MemoryFunction};

    fn link(early_lanes: EarlyLanes, writes: &[(u16, u8)]) -> PcieLink {
        let mut link = PcieLink::new(early_lanes);
        for (addr, value) in writes {
            link.write(*addr, *value, 0);
        }
        link
    }

    fn state(link: &PcieLink) -> u8 {
        link.read(LTSSM, 0, true)
    }

    #[test]
    fn a_link_without_lanes_stays_in_configuration_until_they_are_on() {
        let mut link = link(EarlyLanes::Train, &[(TRAINING, 0x1C)]);
        assert_eq!((state(&link), link.is_trained()), (CONFIGURATION, false));
        assert!(link.write(LANES, LANES_ON, 0));
        assert_eq!((state(&link), link.is_trained()), (0x78, true));
        assert_eq!([THERE, ANSWERS].map(|addr| link.read(addr, 0, true)), [IS_THERE, ANSWERED]);
        assert_eq!([LTSSM, THERE, ANSWERS].map(|addr| link.read(addr, 0, false)), [0; 3], "nothing is behind it");
    }

    #[test]
    fn early_lanes_prevent_the_training_only_on_a_board_that_sticks() {
        for (early, found) in [(EarlyLanes::Train, 0x78), (EarlyLanes::Stick, CONFIGURATION)] {
            let mut link = link(early, &[(LANES, LANES_ON), (TRAINING, 0x1C)]);
            assert_eq!(state(&link), found);
            for (addr, value) in [(TRAINING, 0), (LANES, 0), (TRAINING, 0x1C), (LANES, LANES_ON)] {
                link.write(addr, value, 0);
            }
            assert_eq!(state(&link), 0x78, "the other order");
        }
    }

    #[test]
    fn a_device_answers_some_time_after_it_has_got_its_power() {
        let mut link = link(EarlyLanes::Train, &[(POWER, POWERED), (LANES, LANES_ON), (TRAINING, 0x1C)]);
        assert_eq!((state(&link), link.read(ANSWERS, 0, true)), (DETECT, 0));
        link.advance(SETTLING - 1);
        assert_eq!((state(&link), link.next()), (DETECT, Some(SETTLING)));
        link.write(POWER, POWERED, SETTLING - 1);
        link.advance(SETTLING);
        assert_eq!((state(&link), link.next()), (0x78, None), "it had its power already");
    }

    #[test]
    fn the_end_of_the_training_takes_the_link_down() {
        let mut link = link(EarlyLanes::Train, &[(LANES, LANES_ON), (TRAINING, 0x19)]);
        assert!(link.is_trained());
        link.write(TRAINING, 0x10, 0);
        assert_eq!((state(&link), link.is_trained()), (0, false));
        let switched_off = self::link(EarlyLanes::Train, &[(TRAINING, 0), (LANES, 0), (POWER, 0)]);
        assert_eq!((state(&switched_off), switched_off.is_trained()), (0, false), "by a build that waits for F3");
        let untouched = PcieLink::new(EarlyLanes::Train);
        assert_eq!((state(&untouched), untouched.is_trained()), (0, false), "by a build that never trains it");
    }

    fn request(
        tlp: &mut TlpBlock,
        fabric: &mut Fabric,
        memory: &mut XdataMemory,
        format: u8,
        addr: u32,
        value: u32,
    ) -> u8 {
        tlp.write(STATUS, 0x07, memory, |_| None);
        let page = memory.main_mut();
        page[usize::from(FORMAT)] = format;
        page[usize::from(BYTE_ENABLES)] = 0x0F;
        page[usize::from(ADDRESS)..][..4].copy_from_slice(&addr.to_be_bytes());
        page[usize::from(DATA)..][..4].copy_from_slice(&value.to_be_bytes());
        tlp.write(FIRE, SEND, memory, |request| fabric.request(request));
        tlp.read(STATUS, 0)
    }

    #[test]
    fn the_completion_of_a_memory_read_counts_the_requested_bytes() {
        let counts = [0b1111, 0b0001, 0b0100, 0b0110, 0b1100, 0b1001, 0b1000, 0b0000].map(byte_count);
        assert_eq!(counts, [4, 1, 1, 2, 2, 4, 1, 1]);
    }

    #[test]
    fn each_kind_of_request_ends_as_the_runtime_expects() {
        let (mut tlp, mut fabric, mut memory) = (TlpBlock::default(), Fabric::default(), XdataMemory::new());
        let place = Bdf::new(1, 0, 0);
        fabric.attach(place, MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x100));
        let completion = |memory: &XdataMemory| {
            let page = memory.main();
            (page[0xB22A] >> 5, page[0xB22B], page[0xB284], page[0xB223])
        };
        let (tlp, fabric, memory) = (&mut tlp, &mut fabric, &mut memory);
        assert_eq!(request(tlp, fabric, memory, 0x05, 1 << 24, 0), SENT | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 1, 0x02), "its vendor ID");
        assert_eq!(request(tlp, fabric, memory, 0x05, 2 << 24, 0), SENT | COMPLETED);
        assert_eq!(completion(memory), (1, 4, 0, 0xFF), "unsupported request");
        assert_eq!(request(tlp, fabric, memory, 0x45, 1 << 24 | 0x10, 0x1000), SENT | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 0, 0), "a write has no data");
        assert_eq!(request(tlp, fabric, memory, 0x60, 0x1004, 0xAB), SENT, "posted");
        assert_eq!(request(tlp, fabric, memory, 0x20, 0x1004, 0), SENT | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 1, 0xAB));
        assert_eq!(request(tlp, fabric, memory, 0x34, 0, 0), SENT | NO_COMPLETION, "a message");
    }
}
