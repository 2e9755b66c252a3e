//! Watching the chip: its registers, its wire, its serial port.

use asm2464::scsi::XdataAddress;

use super::usb::UsbEvent;
use crate::mcu::AccessKind;

/// Observes the chip. Without a watch the chip spends no time on these calls. To see each instruction, use
/// [`crate::mcu::Observer`].
pub trait Watch: Send {
    /// The CPU read or wrote a register. `pc` is the instruction's address, with the code bank in bit 16.
    fn register(&mut self, kind: AccessKind, at: XdataAddress, value: u8, pc: u32) {
        let _ = (kind, at, value, pc);
    }

    /// Something crossed the wire at a simulated time, in instructions.
    fn usb(&mut self, now: u64, event: UsbEvent<'_>) {
        let _ = (now, event);
    }

    /// The firmware sent a byte on its serial port.
    fn uart(&mut self, byte: u8) {
        let _ = byte;
    }
}
