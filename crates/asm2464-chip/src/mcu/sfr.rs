//! The special function registers that the CPU core does not hold itself.

use i8051::sfr::SFR_BASE;
use i8051::{CpuView, PortMapper};

/// Selects the code bank at 0x8000 with bit 0. Source: the bank-switch stubs at 0x0300 and 0x0311 of image 240417.
pub const SFR_CODE_BANK: u8 = 0x96;
/// Selects the XDATA page that MOVX reaches: 0 the main one, 1 the other. Source: the far-pointer routines at 0x0AC1
/// (read) and 0x0ADC (write) of image 240417, which write the pointer type minus 1 here around one MOVX.
pub const SFR_XDATA_PAGE: u8 = 0x93;

/// The 128 special function registers, which hold what was written. At reset all are 0, except the ports, which are
/// 0xFF.
#[derive(Clone, PartialEq, Eq)]
pub struct Sfrs {
    bytes: [u8; 128],
}

impl Default for Sfrs {
    fn default() -> Self {
        let mut sfrs = Self { bytes: [0; 128] };
        for port in [0x80, 0x90, 0xA0, 0xB0] {
            sfrs.set(port, 0xFF);
        }
        sfrs
    }
}

impl Sfrs {
    /// Reads a register.
    #[inline(always)]
    pub fn get(&self, at: u8) -> u8 {
        self.bytes[usize::from(at.wrapping_sub(SFR_BASE) & 0x7F)]
    }

    /// Writes a register.
    #[inline(always)]
    pub fn set(&mut self, at: u8, value: u8) {
        self.bytes[usize::from(at.wrapping_sub(SFR_BASE) & 0x7F)] = value;
    }
}

impl PortMapper for Sfrs {
    type WriteValue = (u8, u8);

    #[inline(always)]
    fn interest<C: CpuView>(&self, _cpu: &C, _addr: u8) -> bool {
        true
    }

    #[inline(always)]
    fn pc_extension<C: CpuView>(&self, _cpu: &C) -> u16 {
        u16::from(self.get(SFR_CODE_BANK) & 1)
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, _cpu: &C, addr: u8) -> u8 {
        self.get(addr)
    }

    /// Reads a port's latch, which is what was written, because nothing drives the pins. The CPU core also uses P2's
    /// latch as the high byte of `MOVX @Ri`, and panics without this method.
    #[inline(always)]
    fn read_latch<C: CpuView>(&self, _cpu: &C, addr: u8) -> u8 {
        self.get(addr)
    }

    #[inline(always)]
    fn prepare_write<C: CpuView>(&self, _cpu: &C, addr: u8, value: u8) -> (u8, u8) {
        (addr, value)
    }

    #[inline(always)]
    fn write(&mut self, (addr, value): (u8, u8)) {
        self.set(addr, value);
    }
}
