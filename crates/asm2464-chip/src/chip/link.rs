//! Power and link: the speed, bus events, leaving the bus, resets.

use super::map::Register;
use super::usb::Speed;

/// 0x9100 bits 1:0, read-only: 0 full, 1 high, 2 super speed. Source: c:0x328A.
const SPEED: u16 = 0x9100;
/// 0x9101, read-only: .0 0x91D1, .1 0x9091, .2 0x9093, .3 0x9301.7:6 or 0x9302.7, .4 0x9300 or 0x9302.5:0, .5
/// 0x9096-0x909E, .6 0x90E2; each bit is set while its register is not 0. Source: c:0x0E82-0x10DA; open firmware.
pub(super) const USB_EVENTS: u16 = 0x9101;
/// 0x91C0.1: off the bus. Source: E8 in mode 0x51 sets it (b0:0xD916 on); b0:0xC671 and c:0x3031 test it.
const CONTROL: u16 = 0x91C0;
/// 0x91D1, write 1 clears: .0 hot reset (b0:0xC66A resets all USB state), .1 suspended (b0:0xE94D), .2 resumed
/// (b0:0xE925). Source: c:0x0F79-0x0FB3; open firmware prints them as "RST". The assignment is chosen by what the
/// vendor's handlers do. .3 (b0:0x9C2B) is never set here.
const LINK_EVENTS: u16 = 0x91D1;
/// 0x9300, 0x9301, 0x9302, write 1 clears: 0x9301.7 reset (b0:0xE969), 0x9302.2 suspended (b0:0xE952), 0x9302.5 resumed
/// (b0:0xE92C), all of USB 2 (chosen, by the handlers). 0x9300.2 is "USB2 fallback" to open firmware and a failed try
/// to train to the vendor's (b0:0xDF15). Source: c:0x0F36-0x10DD.
const EVENTS_0: u16 = 0x9300;
/// 0x9303-0x9305: a set bit keeps the same bit of 0x9300-0x9302 out of 0x9101. Source: the vendor's start-up
/// acknowledges 0C, C0 and BF, writes 33, 3F and 40 here (b0:0xB1DF-0xB205), and its handlers test the rest. 00, 00 and
/// FF at power-on (chosen): open firmware writes only the first, and never acknowledges an event of 0x9302.
const EVENT_MASKS: u16 = 0x9303;
/// 0x92FB: the link's state, one bit of it. Always 02 (chosen): with 02 or 80 the vendor's hot reset (b0:0xC674) resets
/// all USB state and stays on the bus; with 01, 08, 20 or 40 it leaves the bus by 0x91C0.1; with none it waits forever.
const LINK_STATE: u16 = 0x92FB;
/// 0xB450: the PCIe link's state; 78 is up. Source: open firmware; owners of units.
const PCIE_STATE: u16 = 0xB450;
/// 0xC6B3: .5 or .4 end the start-up's wait. Source: c:0x4FDB.
const START_UP: u16 = 0xC6B3;
/// 0xCC31.0: resets the chip. Source: c:0x458A, b0:0xE556: followed by `SJMP $`.
const RESET: u16 = 0xCC31;
/// 0xE712.1:0: the wait at b0:0x9C7D ends with both.
const PHY_READY: u16 = 0xE712;
/// 0xE765.1: a PCIe device is there. Source: open firmware prints it as "UP".
const PCIE_THERE: u16 = 0xE765;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(SPEED, "USB_SPEED"),
    Register::one(USB_EVENTS, "USB_EVENTS"),
    Register::one(CONTROL, "USB_CONTROL"),
    Register::one(LINK_EVENTS, "LINK_EVENTS"),
    Register::range(EVENTS_0, EVENTS_0 + 2, "BUS_EVENTS"),
    Register::range(EVENT_MASKS, EVENT_MASKS + 2, "BUS_EVENT_MASKS"),
    Register::one(LINK_STATE, "LINK_STATE"),
    Register::one(PCIE_STATE, "PCIE_LINK_STATE"),
    Register::one(START_UP, "START_UP"),
    Register::one(RESET, "CHIP_RESET"),
    Register::one(PHY_READY, "PHY_READY"),
    Register::one(PCIE_THERE, "PCIE_THERE"),
];

/// A bus event: an event register and a bit.
#[derive(Debug, Clone, Copy)]
struct LinkEvent(u16, u8);

const HOT_RESET: LinkEvent = LinkEvent(LINK_EVENTS, 0x01);
const SUSPEND: LinkEvent = LinkEvent(LINK_EVENTS, 0x02);
const RESUME: LinkEvent = LinkEvent(LINK_EVENTS, 0x04);
/// SuperSpeed did not train: set at power-on at USB 2 (chosen). Open firmware needs it to know its speed; the vendor's
/// start-up clears it unread (b0:0xB1DF) and reads 0x9100.
const USB2_FALLBACK: LinkEvent = LinkEvent(EVENTS_0, 0x04);
const USB2_RESET: LinkEvent = LinkEvent(0x9301, 0x80);
const USB2_SUSPEND: LinkEvent = LinkEvent(0x9302, 0x04);
const USB2_RESUME: LinkEvent = LinkEvent(0x9302, 0x20);

#[derive(Debug, Default)]
pub(super) struct LinkBlock {
    speed: Speed,
    link_events: u8,
    events: [u8; 3],
    masks: [u8; 3],
    is_suspended: bool,
    is_off_bus: bool,
    is_reset: bool,
}

impl LinkBlock {
    pub(super) fn new(speed: Speed) -> Self {
        let mut link = Self { speed, masks: [0, 0, 0xFF], ..Self::default() };
        if speed != Speed::Super {
            link.raise(USB2_FALLBACK);
        }
        link
    }

    pub(super) fn speed(&self) -> Speed {
        self.speed
    }

    /// Whether the firmware has taken the unit off the bus.
    pub(super) fn is_off_bus(&self) -> bool {
        self.is_off_bus
    }

    /// Whether the firmware has reset the chip.
    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Whether the host has suspended the link: U3 at SuperSpeed. Nothing moves on a suspended link.
    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Resets the port, which comes up at `speed`.
    pub(super) fn reset_port(&mut self, speed: Speed) {
        self.speed = speed;
        self.is_suspended = false;
        self.raise(if speed == Speed::Super { HOT_RESET } else { USB2_RESET });
    }

    /// Suspends the link. Returns `false` if it is already suspended.
    pub(super) fn suspend(&mut self) -> bool {
        if std::mem::replace(&mut self.is_suspended, true) {
            return false;
        }
        self.raise(if self.speed == Speed::Super { SUSPEND } else { USB2_SUSPEND });
        true
    }

    /// Resumes the link. Returns `false` if it isn't suspended.
    pub(super) fn resume(&mut self) -> bool {
        if !std::mem::take(&mut self.is_suspended) {
            return false;
        }
        self.raise(if self.speed == Speed::Super { RESUME } else { USB2_RESUME });
        true
    }

    /// Raises an event.
    fn raise(&mut self, LinkEvent(register, bit): LinkEvent) {
        match register {
            LINK_EVENTS => self.link_events |= bit,
            _ => self.events[usize::from(register - EVENTS_0)] |= bit,
        }
    }

    /// This block's bits of 0x9101: .0, .3, .4.
    pub(super) fn summary(&self) -> u8 {
        let [first, second, third] = std::array::from_fn(|at| self.events[at] & !self.masks[at]);
        let link = u8::from(self.link_events != 0);
        let power = u8::from(second & 0xC0 != 0 || third & 0x80 != 0) << 3;
        let bus = u8::from(first != 0 || third & 0x3F != 0) << 4;
        link | power | bus
    }

    pub(super) fn read(&self, addr: u16, stored: u8, pcie_is_there: bool) -> u8 {
        match addr {
            SPEED => (stored & !0x03) | self.speed.code(),
            LINK_EVENTS => self.link_events,
            EVENTS_0..=0x9302 => self.events[usize::from(addr - EVENTS_0)],
            EVENT_MASKS..=0x9305 => self.masks[usize::from(addr - EVENT_MASKS)],
            LINK_STATE => 0x02,
            PCIE_STATE if pcie_is_there => 0x78,
            PCIE_STATE => 0,
            START_UP => stored | 0x30,
            PHY_READY => stored | 0x03,
            PCIE_THERE if pcie_is_there => stored | 0x02,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> bool {
        let before = (self.link_events, self.events, self.masks, self.is_off_bus, self.is_reset);
        match addr {
            LINK_EVENTS => self.link_events &= !value,
            EVENTS_0..=0x9302 => self.events[usize::from(addr - EVENTS_0)] &= !value,
            EVENT_MASKS..=0x9305 => self.masks[usize::from(addr - EVENT_MASKS)] = value,
            CONTROL => self.is_off_bus = value & 0x02 != 0,
            RESET => self.is_reset |= value & 0x01 != 0,
            _ => {}
        }
        before != (self.link_events, self.events, self.masks, self.is_off_bus, self.is_reset)
    }
}
