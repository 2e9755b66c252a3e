//! Power and USB link: the speed, bus events, leaving the bus, resets.

use super::map::Register;
use super::reset;
use super::usb::Speed;

/// 0x9100 bits 1:0, read-only: 0 full, 1 high, 2 super speed. Source: c:0x328A.
const SPEED: u16 = 0x9100;
/// 0x9101, read-only: .0 0x91D1, .1 0x9091, .2 0x9093, .3 0x9301.7:6 or 0x9302.7, .4 0x9300 or 0x9302.5:0, .5
/// 0x9096-0x909E, .6 0x90E2; each bit is set while its register is not 0. Source: c:0x0E82-0x10DA; open firmware.
pub(super) const USB_EVENTS: u16 = 0x9101;
/// 0x92C2.6 and 0x91C0.1: while both are set, the unit is off the bus. 47 and 12 at power-on. Source: the vendor's main
/// loop brings the link up while it finds both set (c:0x3023-0x303C, b0:0xCA0D), and 231204 then cleared the first and
/// kept the second (recording, lines 2117, 2364); open firmware clears the first, too. E8 in mode 0x51 sets both
/// (b0:0xD916 on).
const POWER: u16 = 0x92C2;
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
/// acknowledges 0C, C0 and BF, writes 33, 3F and 40 here (b0:0xB1DF-0xB205), and its handlers test the rest. 3F, FF and
/// FF at power-on at SuperSpeed, by dumps of units whose firmware never writes them; 00, 00 and FF at USB 2 (chosen:
/// open firmware writes only the first there, and handles resets).
const EVENT_MASKS: u16 = 0x9303;
/// 0x92FB: one bit of the link's state. 01 in dumps of units at SuperSpeed at rest, with both firmwares. The vendor's
/// hot reset (b0:0xC674) reads it only while 0x91C0.1 is clear.
const LINK_STATE: u16 = 0x92FB;
/// 0x92F7 bits 7:4, read-only: the state of the SuperSpeed link, numbered as USB 3's port link states are (xHCI 5.4.8).
/// Source: c:0x2080 and c:0x2090 test for 10 and 11, the compliance and loopback modes, and nothing else. In the
/// recording of 231204: 4, disabled, at power-on; 7 and 5, polling and looking for a partner, once the firmware has
/// connected the unit (lines 2370 to 2721); 0, U0, after the link came up (from line 2833 on); 8, recovery, and 6,
/// inactive, when the rig's link failed (lines 7068 and 8964). What the low bits count is not known (chosen: 0).
const LTSSM: u16 = 0x92F7;
/// 0x92F8: once the link is up, what it has negotiated: .5 Gen 2, .4 two lanes, as 240417 classifies links (b0:0xCED1).
/// The model's link has one lane, so .4 clears. Source: recording of 231204, 34 before the link is up (line 2120) and
/// 24 after (line 2985 on). The firmware takes another branch while .4 is clear (b0:0xBB6B, 0xB664 of 231204).
const TRAINING_STATE: u16 = 0x92F8;
/// 0xC6B3: .5 or .4 end the start-up's wait. Source: c:0x4FDB. Silicon sets .4 alone: 15 (recording).
const START_UP: u16 = 0xC6B3;
/// 0xCC30.0: lets the link train at SuperSpeed. Set at power-on. Source: open firmware clears it when it falls back to
/// USB 2 (ed4e39b, c:0x1F03), the vendor's start-up sets it (b0:0xBCEB). A reset by 0xCC31 keeps it, and so the unit
/// stays at 480 Mbit/s (a guess, from an owner's unit; 0xCC30 is otherwise unknown).
const SUPER_SPEED: u16 = 0xCC30;
const MAY_TRAIN: u8 = 0x01;
/// 0xCC31.0: resets the chip. Source: c:0x458A, b0:0xE556: followed by `SJMP $`.
const RESET: u16 = 0xCC31;
/// 0xE712.1:0: the wait at b0:0x9C7D ends when both are set.
const PHY_READY: u16 = 0xE712;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(SPEED, "USB_SPEED"),
    Register::one(USB_EVENTS, "USB_EVENTS"),
    Register::one(CONTROL, "USB_CONTROL"),
    Register::one(POWER, "USB_POWER"),
    Register::one(LINK_EVENTS, "LINK_EVENTS"),
    Register::range(EVENTS_0, EVENTS_0 + 2, "BUS_EVENTS"),
    Register::range(EVENT_MASKS, EVENT_MASKS + 2, "BUS_EVENT_MASKS"),
    Register::one(LTSSM, "LINK_TRAINING_STATE"),
    Register::one(TRAINING_STATE, "LINK_TRAINING"),
    Register::one(LINK_STATE, "LINK_STATE"),
    Register::one(START_UP, "START_UP"),
    Register::one(SUPER_SPEED, "SUPER_SPEED"),
    Register::one(RESET, "CHIP_RESET"),
    Register::one(PHY_READY, "PHY_READY"),
];

/// A bus event: an event register and a bit.
#[derive(Debug, Clone, Copy)]
struct LinkEvent(u16, u8);

const fn power_on_masks(speed: Speed) -> [u8; 3] {
    match speed {
        Speed::Super => [0x3F, 0xFF, 0xFF],
        Speed::High => [0, 0, 0xFF],
    }
}

const POWER_OFF: u8 = 0x40;
const CONTROL_OFF: u8 = 0x02;
/// Instructions from the moment the firmware connects the unit until the link's first event (chosen): 200 ms. In the
/// recording it took the rig 190 accesses (lines 2364 to 2555).
const TRAINING: u64 = 10_000_000;
/// Instructions from one group of these events to the next (chosen): 100 ms. It took the rig 100 to 200 accesses.
const STEP: u64 = 5_000_000;
/// Events that a SuperSpeed link raises when it comes up, in order. Source: recording of 231204, lines 2559, 2669 with
/// 2675, and 2852. 0x9301.7 comes before the first SETUP with 240417, too. The rig's link raised 0x9301.6 twice.
const LINK_UP: [&[LinkEvent]; 3] =
    [&[LinkEvent(0x9301, 0x40)], &[LinkEvent(0x9300, 0x0A), LinkEvent(0x9302, 0x40)], &[LinkEvent(0x9301, 0x80)]];

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
    /// What was last written to 0x92C2 and 0x91C0.
    power: u8,
    control: u8,
    /// Time of the next step of [`LINK_UP`]; `None` unless the firmware has connected the unit and the link is not up.
    comes_up_at: Option<u64>,
    /// Number of steps of [`LINK_UP`] that are done.
    steps: usize,
    /// The link's events come from outside, through [`LinkBlock::raise_from_outside`].
    is_driven: bool,
    /// What 0x92F8 shows once the link is up, if that comes from outside, too.
    negotiated: Option<u8>,
    /// What was last written to 0xCC30.
    super_speed: u8,
    is_reset: bool,
}

impl LinkBlock {
    pub(super) fn new(speed: Speed) -> Self {
        let mut link = Self {
            power: reset::value(POWER),
            control: reset::value(CONTROL),
            super_speed: reset::value(SUPER_SPEED),
            speed,
            masks: power_on_masks(speed),
            ..Self::default()
        };
        if speed != Speed::Super {
            link.raise(USB2_FALLBACK);
        }
        link
    }

    /// Resets the block with the chip. 0xCC30 stays, and the speed and the origin of the events: both are outside the
    /// chip.
    pub(super) fn reset(&mut self) {
        let Self { is_driven, super_speed, .. } = *self;
        *self = Self { is_driven, super_speed, ..Self::new(self.speed) };
    }

    /// Whether the link may train at SuperSpeed.
    pub(super) fn may_train(&self) -> bool {
        self.super_speed & MAY_TRAIN != 0
    }

    pub(super) fn speed(&self) -> Speed {
        self.speed
    }

    /// Whether the firmware has taken the unit off the bus.
    pub(super) fn is_off_bus(&self) -> bool {
        self.power & POWER_OFF != 0 && self.control & CONTROL_OFF != 0
    }

    /// Time at which the link comes up by itself.
    pub(super) fn next(&self) -> Option<u64> {
        if self.is_driven { None } else { self.comes_up_at }
    }

    /// Raises events of 0x9300 to 0x9302 or 0x91D1 that a recording shows, or sets what 0x92F8 shows once the link is
    /// up. From the first call on the link does not come up by itself; `bits` may be 0.
    pub(super) fn raise_from_outside(&mut self, register: u16, bits: u8) {
        self.is_driven = true;
        match register {
            LINK_EVENTS | EVENTS_0..=0x9302 => self.raise(LinkEvent(register, bits)),
            TRAINING_STATE => self.negotiated = Some(bits),
            _ => {}
        }
        let is_step = |step: &[LinkEvent]| step.iter().any(|event| event.0 == register && event.1 & bits != 0);
        // The first and the last step are bits of one register, and one call may raise both.
        if let Some(step) = LINK_UP.iter().rposition(|step| is_step(step)) {
            self.steps = self.steps.max(step + 1);
        }
        if self.steps == LINK_UP.len() {
            self.comes_up_at = None;
        }
    }

    /// Lets the link come up if it is due.
    pub(super) fn advance(&mut self, now: u64) {
        if self.next().is_some_and(|at| at <= now) {
            self.step();
            self.comes_up_at = if self.steps < LINK_UP.len() { Some(now + STEP) } else { None };
        }
    }

    /// Lets the link come up at once instead of later, because the host already uses it.
    pub(super) fn come_up(&mut self) {
        if self.next().is_some() {
            while self.steps < LINK_UP.len() {
                self.step();
            }
            self.comes_up_at = None;
        }
    }

    fn step(&mut self) {
        LINK_UP[self.steps].iter().for_each(|event| self.raise(*event));
        self.steps += 1;
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

    /// The SuperSpeed link's state.
    fn training_state(&self) -> u8 {
        const U0: u8 = 0;
        const U3: u8 = 3;
        const DISABLED: u8 = 4;
        const POLLING: u8 = 7;
        match self.comes_up_at {
            _ if self.is_off_bus() || self.speed != Speed::Super => DISABLED,
            // The link trains until its last step, the port reset.
            Some(_) => POLLING,
            None if self.is_suspended => U3,
            None => U0,
        }
    }

    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        match addr {
            SPEED => (stored & !0x03) | self.speed.code(),
            LINK_EVENTS => self.link_events,
            EVENTS_0..=0x9302 => self.events[usize::from(addr - EVENTS_0)],
            EVENT_MASKS..=0x9305 => self.masks[usize::from(addr - EVENT_MASKS)],
            LTSSM => self.training_state() << 4,
            TRAINING_STATE if self.steps > 0 => self.negotiated.unwrap_or(stored & !0x10),
            LINK_STATE => 0x01,
            START_UP => stored | 0x10,
            PHY_READY => stored | 0x03,
            SUPER_SPEED => self.super_speed,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, now: u64) -> bool {
        let before = (self.link_events, self.events, self.masks, self.is_off_bus(), self.is_reset);
        match addr {
            LINK_EVENTS => self.link_events &= !value,
            EVENTS_0..=0x9302 => self.events[usize::from(addr - EVENTS_0)] &= !value,
            EVENT_MASKS..=0x9305 => self.masks[usize::from(addr - EVENT_MASKS)] = value,
            CONTROL | POWER => {
                let was_off_bus = self.is_off_bus();
                if addr == CONTROL {
                    self.control = value;
                } else {
                    self.power = value;
                }
                if !was_off_bus && self.is_off_bus() {
                    self.steps = 0;
                }
                self.comes_up_at = match (was_off_bus, self.is_off_bus()) {
                    (true, false) if self.speed == Speed::Super => Some(now + TRAINING),
                    (_, true) => None,
                    (false, false) | (true, false) => self.comes_up_at,
                };
            }
            SUPER_SPEED => self.super_speed = value,
            RESET => self.is_reset |= value & 0x01 != 0,
            _ => {}
        }
        before != (self.link_events, self.events, self.masks, self.is_off_bus(), self.is_reset)
    }
}
