//! The work that the model has done, and the clock cycles that it takes on silicon.

use std::ops::{Add, Sub};

/// Clock cycles of each opcode, measured on the ASM3242; the ASM2142 takes the same. None are published for the
/// ASM2464PD. Source: cyrozap's 8051-timing-db (CC0). It lacks A5, which no compiler emits, and RETI. RETI's 4 cycles
/// are those of the STC-Y5, whose other cycles are the same except for MOVX.
#[rustfmt::skip]
static CYCLES: [u8; 256] = [
    1, 3, 4, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 00
    5, 4, 4, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 10
    5, 3, 4, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 20
    5, 4, 4, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 30
    3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 40
    3, 4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 50
    4, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 60
    4, 4, 2, 5, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, // 70
    3, 3, 2, 4, 6, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // 80
    3, 4, 3, 5, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // 90
    2, 3, 2, 1, 2, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, // A0
    2, 4, 3, 1, 4, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4, // B0
    3, 3, 3, 1, 1, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, // C0
    2, 4, 3, 1, 3, 5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, // D0
    4, 3, 5, 5, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // E0
    4, 4, 5, 5, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, // F0
];

/// The CPU's clock in MHz. Source: open firmware's README, which says "about".
pub const CLOCK_MHZ: u32 = 114;

/// Clock cycles of an instruction.
#[inline(always)]
pub fn cycles(opcode: u8) -> u64 {
    u64::from(CYCLES[usize::from(opcode)])
}

/// A chip's work since power-on, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Executed instructions, without those of an idle firmware's main loop.
    pub instructions: u64,
    /// Clock cycles of those instructions.
    pub cycles: u64,
    /// Requests to devices behind the bridge whose completion the firmware waited for.
    pub round_trips: u64,
    /// Bytes that the SRAM's DMA moved.
    pub dma_bytes: u64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            round_trips: self.round_trips + other.round_trips,
            dma_bytes: self.dma_bytes + other.dma_bytes,
        }
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            cycles: self.cycles.saturating_sub(earlier.cycles),
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            dma_bytes: self.dma_bytes.saturating_sub(earlier.dma_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_those_that_were_measured() {
        // MOVX A,@DPTR; INC DPTR; MUL AB; DIV AB; LCALL; SJMP; CJNE A,#; DJNZ R0; MOVC; JB; ADD A,R7; RETI.
        let opcodes = [0xE0, 0xA3, 0xA4, 0x84, 0x12, 0x80, 0xB4, 0xD8, 0x93, 0x20, 0x2F, 0x32];
        assert_eq!(opcodes.map(cycles), [4, 1, 2, 6, 4, 3, 4, 4, 5, 5, 1, 4]);
    }
}
