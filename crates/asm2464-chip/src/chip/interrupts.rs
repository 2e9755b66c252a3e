//! Interrupt sources. INT0 is level-triggered: while a source is on, the CPU enters 0x0003 as soon as interrupts are
//! enabled. INT1, which serves the timers of the USB-C side, is level-triggered, too.

use super::register::Register;

/// 0xC800: enables bits of 0xC802. Source: the vendor's start-up sets .2 and .0 (c:0x4C15, c:0x541D). Open firmware
/// sets only .0 and never takes the DMA's events, which would interrupt it forever. 00 at power-on (recording of
/// 231204, line 690). Here .2 also enables 0xC806.5 (chosen: open firmware never takes that event either).
pub(super) const ENABLES: u16 = 0xC800;
/// 0xC802, read-only: .0 the USB controller (0x9101 is not 0), .2 a UAS command or a DMA event. INT0 is active while a
/// bit that 0xC800 enables is set. Source: c:0x0E78, c:0x110D; open firmware's INT0.
pub(super) const SOURCES: u16 = 0xC802;
/// 0xC806, read-only: .5 the NVMe completion queue, INT0; .0 an expired timer, INT1. Source: c:0x10E0 (.5), c:0x4486
/// (.0); 01 in the recording of 231204 at INT1, with CC91 = 02 (line 2101). .4 is INT1 too, and never set here: its
/// source is not known.
pub(super) const MORE_SOURCES: u16 = 0xC806;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(ENABLES, "INT_ENABLES"),
    Register::one(SOURCES, "INT_SOURCES"),
    Register::one(MORE_SOURCES, "INT_SOURCES_2"),
];

const USB: u8 = 0x01;
const COMMAND_OR_DMA: u8 = 0x04;

/// Inputs of the interrupt block from the other blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct InterruptLines {
    pub(super) enables: u8,
    pub(super) usb: bool,
    pub(super) command_or_dma: bool,
    pub(super) completion: bool,
    pub(super) timer: bool,
}

impl InterruptLines {
    #[inline(always)]
    fn sources(self) -> u8 {
        (if self.usb { USB } else { 0 }) | (if self.command_or_dma { COMMAND_OR_DMA } else { 0 })
    }

    pub(super) fn read(self, addr: u16) -> u8 {
        match addr {
            ENABLES => self.enables,
            SOURCES => self.sources(),
            _ => u8::from(self.completion) << 5 | u8::from(self.timer),
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> bool {
        addr == ENABLES && std::mem::replace(&mut self.enables, value) != value
    }

    #[inline(always)]
    pub(super) fn int0(self) -> bool {
        self.sources() & self.enables != 0 || (self.completion && self.enables & COMMAND_OR_DMA != 0)
    }

    /// No enable bit for INT1 is known in this block.
    #[inline(always)]
    pub(super) fn int1(self) -> bool {
        self.timer
    }
}
