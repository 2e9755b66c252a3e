//! Measurement of SRAM reads by DMA, which a GPU behind the bridge completes.

use std::time::Instant;

use super::error::BenchError;
use super::measure::{Effort, Point};
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::Outcome;
use super::tally::repeat;
use crate::bridge::{Bridge, Transport};
use crate::interrupt::Interrupt;
use crate::pcie::{NoTime, Pcie, TinyGpu, VendorTlp};

/// Measures READ(16) or the DMA that E5 commands start. `compare` says whether the SRAM begins with the pattern. The
/// time to set up the read and the GPU counts.
///
/// # Errors
/// If the wire or the GPU failed, or on Ctrl-C. A read that no device completes is an outcome.
pub(super) fn measure<T: Transport>(
    bridge: &mut Bridge<T>,
    card: TinyGpu,
    point: Point,
    pattern: &Pattern,
    compare: bool,
    effort: Effort,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, BenchError> {
    let Point { path, size, .. } = point;
    let simulated = |bridge: &mut Bridge<T>| bridge.transport_mut().simulated();
    let known = compare.then(|| &pattern.bytes()[..size.min(WINDOW_LEN)]);
    let mut found = vec![0; size];
    repeat(bridge, simulated, effort, interrupt, |bridge, tally, until| {
        while Instant::now() < until && !interrupt.is_requested() {
            let begun = Instant::now();
            let tell = |bridge: &mut Bridge<T>, entry| {
                // A card that has its address is ready.
                card.complete(&mut Pcie::new(&mut VendorTlp::new(bridge), &mut NoTime), entry)
            };
            match path {
                Path::Read16 => bridge.read_sram_by_read16(&mut found, effort.timeout, tell)?,
                _ => bridge.read_sram_by_dma(0, &mut found, effort.timeout, tell)?,
            }
            tally.count(size, begun.elapsed());
            if let Some(known) = known {
                tally.compare(Some(known), found.get(..known.len()));
            }
        }
        Ok(())
    })
}
