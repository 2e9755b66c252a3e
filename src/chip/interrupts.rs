//! Interrupt sources. INT0 is a level: while a source is on, the CPU enters 0x0003 as soon as it may.

use super::map::Register;

/// 0xC802, read-only: .0 the USB controller (0x9101 is not 0), .2 a UAS command or a DMA event. INT0 while not 0.
/// Source: c:0x0E78, c:0x110D; open firmware's INT0.
pub(super) const SOURCES: u16 = 0xC802;
/// 0xC806, read-only: .5 the NVMe completion queue, INT0; .0 and .4 INT1. Source: c:0x10E0 (.5), c:0x4486 (.0, .4).
/// .0 and .4 are never on here: what raises them is not known.
pub(super) const MORE_SOURCES: u16 = 0xC806;

pub(super) const REGISTERS: &[Register] =
    &[Register::one(SOURCES, "INT_SOURCES"), Register::one(MORE_SOURCES, "INT_SOURCES_2")];

/// What the interrupt block sees of the other blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) usb: bool,
    pub(super) command_or_dma: bool,
    pub(super) completion: bool,
}

impl Lines {
    pub(super) fn read(self, addr: u16) -> u8 {
        match addr {
            SOURCES => u8::from(self.usb) | u8::from(self.command_or_dma) << 2,
            _ => u8::from(self.completion) << 5,
        }
    }

    #[inline(always)]
    pub(super) fn int0(self) -> bool {
        self.usb || self.command_or_dma || self.completion
    }
}
