//! The serial port, output only.

use super::register::Register;

/// 0xC001: a byte to send. Source: open firmware.
const DATA: u16 = 0xC001;
/// 0xC009, read-only: line status, .6 and .5 "empty" (chosen: a 16550's bits). Source: open firmware waits for .5.
const LINE_STATUS: u16 = 0xC009;
/// 0xC00E: bits 2:0 count the bytes still to be sent; always 0. Source: b0:0xE7B8 waits for 0.
const BACKLOG: u16 = 0xC00E;

const EMPTY: u8 = 0x60;
/// Maximum number of bytes kept for the caller; later ones are only counted.
const CAPACITY: usize = 0x1_0000;

pub(super) const REGISTERS: &[Register] = &[
    Register::one(DATA, "UART_DATA"),
    Register::one(LINE_STATUS, "UART_LINE_STATUS"),
    Register::one(BACKLOG, "UART_BACKLOG"),
];

#[derive(Debug, Default)]
pub(super) struct Uart {
    sent: Vec<u8>,
    lost: u64,
}

impl Uart {
    pub(super) fn read(addr: u16, stored: u8) -> u8 {
        match addr {
            LINE_STATUS => EMPTY,
            BACKLOG => stored & !0x07,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns the byte that was sent.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> Option<u8> {
        if addr != DATA {
            return None;
        }
        if self.sent.len() < CAPACITY {
            self.sent.push(value);
        } else {
            self.lost += 1;
        }
        Some(value)
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let mut uart = Uart::default();
        for _ in 0..CAPACITY + 5 {
            assert_eq!(uart.write(DATA, b'x'), Some(b'x'));
        }
        assert_eq!((uart.take().len(), uart.lost()), (CAPACITY, 5));
    }
}
