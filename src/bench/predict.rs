//! Predictions for silicon, from the clock cycles that a row took on the chip model.

use asm2464_chip::chip::{Simulated, Work};
use derive_more::Display;
use serde::{Deserialize, Serialize};

/// Time from a request on PCIe to its completion, which the firmware waits for, in microseconds. The only fitted
/// constant: it explains the difference between the cycles of the open firmware's stream of reads and its 1.8 MB/s (its
/// README).
pub const ROUND_TRIP_US: f64 = 1.02;
/// Maximum throughput of a link at 10 Gbit/s in MB/s: 128b/132b, and headers of 20 to 24 bytes for 1,024.
const WIRE_MB_PER_S: f64 = 1_180.0;

/// Predicted costs of a command on silicon.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The CPU's clock in MHz.
    pub clock_mhz: u32,
    /// Instructions that the firmware executes for it.
    pub instructions: f64,
    /// Clock cycles of these instructions.
    pub cycles: f64,
    /// CPU time in microseconds.
    pub cpu_us: f64,
    /// Time that the CPU waits for PCIe, in microseconds.
    pub pcie_us: f64,
    /// Time of the data on a link at 10 Gbit/s, in microseconds. The CPU works meanwhile.
    pub wire_us: f64,
    /// Bytes that the DMA moves. Its speed is unknown; it is assumed to keep up.
    pub dma_bytes: f64,
    /// Throughput with many commands in flight, in MB/s. An upper bound if the DMA moves data.
    pub mb_per_s: f64,
}

/// The limiting factor of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum Limit {
    /// The CPU.
    #[display("CPU")]
    Cpu,
    /// Round trips on PCIe.
    #[display("PCIe")]
    Pcie,
    /// The link.
    #[display("wire")]
    Wire,
}

impl Prediction {
    /// Predicts from `commands` commands with `bytes` bytes in total, which took this work.
    pub(super) fn of(work: Work, clock_mhz: u32, bytes: u64, commands: u64) -> Option<Self> {
        let each = |count: u64| count as f64 / commands as f64;
        let (cpu_us, pcie_us) = (each(work.cycles) / f64::from(clock_mhz), each(work.round_trips) * ROUND_TRIP_US);
        let wire_us = each(bytes) / WIRE_MB_PER_S;
        (commands > 0 && work.cycles > 0).then(|| Self {
            clock_mhz,
            instructions: each(work.instructions),
            cycles: each(work.cycles),
            cpu_us,
            pcie_us,
            wire_us,
            dma_bytes: each(work.dma_bytes),
            mb_per_s: each(bytes) / (cpu_us + pcie_us).max(wire_us),
        })
    }

    /// What the command waits for most.
    pub fn limit(&self) -> Limit {
        if self.wire_us > self.cpu_us + self.pcie_us {
            Limit::Wire
        } else if self.pcie_us > self.cpu_us {
            Limit::Pcie
        } else {
            Limit::Cpu
        }
    }
}

/// The work of a row's repetitions, added up as they end.
#[derive(Debug, Default)]
pub(super) struct Meter {
    work: Work,
    clock_mhz: u32,
}

impl Meter {
    /// Adds a repetition from the chip's work at its beginning and at its end. If the unit has restarted meanwhile,
    /// counts from the restart.
    pub(super) fn add(&mut self, began: Option<Simulated>, ended: Option<Simulated>) {
        if let (Some(began), Some(ended)) = (began, ended) {
            let before = if began.work.cycles > ended.work.cycles { Work::default() } else { began.work };
            (self.work, self.clock_mhz) = (self.work + (ended.work - before), ended.clock_mhz);
        }
    }

    /// The prediction, if the unit is a model.
    pub(super) fn prediction(&self, bytes: u64, commands: u64) -> Option<Prediction> {
        (self.clock_mhz > 0).then(|| Prediction::of(self.work, self.clock_mhz, bytes, commands))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_takes_its_cycles_its_round_trips_and_no_less_than_the_wire() {
        let work = Work { instructions: 500, cycles: 1_140, round_trips: 5, dma_bytes: 0 };
        let prediction = Prediction::of(work, 114, 1_000, 10).unwrap();
        assert!((prediction.cpu_us - 1.0).abs() < 1e-9, "{prediction:?}");
        assert!((prediction.pcie_us - 0.51).abs() < 1e-9, "{prediction:?}");
        assert!((prediction.mb_per_s - 100.0 / 1.51).abs() < 1e-9, "{prediction:?}");
        assert_eq!(prediction.limit(), Limit::Cpu);
        let long = Prediction::of(work, 114, 100_000_000, 10).unwrap();
        assert_eq!((long.limit(), long.mb_per_s.round()), (Limit::Wire, WIRE_MB_PER_S));
        assert_eq!(Prediction::of(work, 114, 0, 0), None);
    }

    #[test]
    fn repetitions_add_up_and_a_restart_counts_from_zero() {
        let at = |cycles| Some(Simulated { work: Work { cycles, ..Work::default() }, clock_mhz: 100 });
        let mut meter = Meter::default();
        for (began, ended) in [(100, 300), (500, 50)] {
            meter.add(at(began), at(ended));
        }
        let prediction = meter.prediction(2, 1).unwrap();
        assert!((prediction.cycles - 250.0).abs() < 1e-9);
        assert_eq!(Meter::default().prediction(1, 1), None);
    }
}
