//! What a chip in software has done.

use std::ops::{Add, Sub};

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
