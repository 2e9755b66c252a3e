//! The memories that the CPU core accesses: the special function registers that it does not hold itself, XDATA as the
//! chip around it maps it, and code as the core fetches it, 64 KiB for each bank that SFR 0x96 selects.

use asm2464::firmware::{CodeAddress, Image};
use i8051::sfr::SFR_BASE;
use i8051::{CpuContext, CpuView, MemoryMapper, PortMapper, ReadOnlyMemoryMapper};

/// The CPU core's memories.
pub struct Bus<X> {
    /// Special function registers.
    pub sfrs: Sfrs,
    /// XDATA.
    pub xdata: X,
    /// Code.
    pub code: CodeSpace,
}

impl<X: MemoryMapper> CpuContext for Bus<X> {
    type Ports = Sfrs;
    type Xdata = X;
    type Code = CodeSpace;

    #[inline(always)]
    fn ports(&self) -> &Sfrs {
        &self.sfrs
    }

    #[inline(always)]
    fn xdata(&self) -> &X {
        &self.xdata
    }

    #[inline(always)]
    fn code(&self) -> &CodeSpace {
        &self.code
    }

    #[inline(always)]
    fn ports_mut(&mut self) -> &mut Sfrs {
        &mut self.sfrs
    }

    #[inline(always)]
    fn xdata_mut(&mut self) -> &mut X {
        &mut self.xdata
    }

    #[inline(always)]
    fn code_mut(&mut self) -> &mut CodeSpace {
        &mut self.code
    }
}

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

const SPACE: usize = 0x1_0000;

/// An image's body, laid out so that a fetch is one index: `bank << 16 | address`.
///
/// Both halves contain the common area, because a fetch below 0x8000 does not depend on the bank.
#[derive(Clone)]
pub struct CodeSpace {
    bytes: Box<[u8; 2 * SPACE]>,
}

impl CodeSpace {
    /// Lays out the code of an image.
    pub fn new(image: &Image) -> Self {
        Self::from_body(image.body())
    }

    /// Lays out the code of a body: common area, bank 0, bank 1. Ignores bytes past the end of bank 1.
    pub fn from_body(body: &[u8]) -> Self {
        let mut bytes = Box::new([0; 2 * SPACE]);
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = CodeAddress::fetched((index / SPACE) as u8, index as u16);
            *byte = at.and_then(|at| body.get(at.body_offset().0 as usize)).copied().unwrap_or(0);
        }
        Self { bytes }
    }

    /// Returns the byte that the CPU fetches at `addr` while SFR 0x96 holds `bank`; 0 if there is no code.
    #[inline(always)]
    pub fn byte(&self, bank: u8, addr: u16) -> u8 {
        self.bytes[usize::from(bank & 1) * SPACE + usize::from(addr)]
    }
}

impl ReadOnlyMemoryMapper for CodeSpace {
    fn len(&self) -> u32 {
        self.bytes.len() as u32
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, _cpu: &C, addr: u32) -> u8 {
        self.bytes[addr as usize & (2 * SPACE - 1)]
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{BANK_LEN, BANK1_BODY_START, Bank, BodyOffset};

    use super::*;

    #[test]
    fn every_byte_of_a_body_is_fetched_where_its_code_address_says() {
        let body: Vec<u8> = (0..BANK1_BODY_START + BANK_LEN).map(|offset| ((offset * 31) >> 4) as u8).collect();
        let code = CodeSpace::from_body(&body);
        let mut expected = [vec![0; SPACE], vec![0; SPACE]];
        for (offset, byte) in (0..).zip(body) {
            let at = BodyOffset(offset).code_address().unwrap();
            let selected: &[usize] = match at.bank() {
                Bank::Common => &[0, 1],
                Bank::Bank0 => &[0],
                Bank::Bank1 => &[1],
            };
            selected.iter().for_each(|selected| expected[*selected][usize::from(at.addr())] = byte);
        }
        for selected in [0, 1] {
            for addr in 0..=u16::MAX {
                let expected = expected[usize::from(selected)][usize::from(addr)];
                assert_eq!(code.byte(selected, addr), expected, "bank {selected} address {addr:#06x}");
            }
        }
    }
}
