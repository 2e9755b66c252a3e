//! The data buffer: 512 KiB of SRAM, which the CPU sees through a window of 4 KiB.

use asm2464::sram::SRAM_LEN;

use super::register::Register;

/// 0xF000-0xFFFF: the window. Source: E4 and E6 read it (b1:0xC98D, c:0x4013).
const WINDOW: u16 = 0xF000;
/// 0xC8D9 bits 2:0: the 4 KiB that the window shows. Source: c:0x4013-0x40B0.
pub(super) const WINDOW_PAGE: u16 = 0xC8D9;
const WINDOW_LEN: usize = 0x1000;

pub(super) const REGISTERS: &[Register] =
    &[Register::range(WINDOW, 0xFFFF, "SRAM_WINDOW"), Register::one(WINDOW_PAGE, "SRAM_WINDOW_PAGE")];

/// Copies bytes into a buffer from `at` on. Wraps at its end.
pub(super) fn load_around(buffer: &mut [u8], at: usize, data: &[u8]) {
    let (mut at, mut rest) = (at % buffer.len(), data);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(buffer.len() - at));
        buffer[at..at + piece.len()].copy_from_slice(piece);
        (at, rest) = (0, behind);
    }
}

#[derive(Debug)]
pub(super) struct Sram {
    bytes: Vec<u8>,
}

impl Sram {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; SRAM_LEN] }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Copies bytes in. Wraps at the end.
    pub(super) fn load(&mut self, at: usize, data: &[u8]) {
        load_around(&mut self.bytes, at, data);
    }

    /// Copies `len` bytes out. Wraps at the end.
    pub(super) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        let mut at = at % SRAM_LEN;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let piece = (len - bytes.len()).min(SRAM_LEN - at);
            bytes.extend_from_slice(&self.bytes[at..at + piece]);
            at = 0;
        }
        bytes
    }

    fn at(addr: u16, page: u8) -> Option<usize> {
        let offset = usize::from(addr.checked_sub(WINDOW)?);
        Some(usize::from(page & 0x07) * WINDOW_LEN + offset)
    }

    pub(super) fn read(&self, addr: u16, page: u8, stored: u8) -> u8 {
        Self::at(addr, page).map_or(stored, |at| self.bytes[at])
    }

    /// Handles a write by the CPU. Returns `true` if a byte changed.
    pub(super) fn write(&mut self, addr: u16, page: u8, value: u8) -> bool {
        let Some(at) = Self::at(addr, page) else { return false };
        let before = std::mem::replace(&mut self.bytes[at], value);
        before != value
    }
}
