//! Code as the CPU fetches it: 64 KiB for each bank that SFR 0x96 selects.

use asm2464::firmware::{CodeAddress, Image};
use i8051::{CpuView, ReadOnlyMemoryMapper};

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
