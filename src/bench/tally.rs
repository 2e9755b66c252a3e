//! Counts what a row's repetitions move, and computes its figures.

use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use hdrhistogram::Histogram;

use super::error::Halt;
use super::plan::Effort;
use super::report::{Figures, Outcome, Spread};
use crate::failure::AnyFailure;

/// Counts of a row.
pub(super) struct Tally {
    bytes: u64,
    commands: u64,
    mismatches: u64,
    compared: bool,
    /// Latencies in nanoseconds.
    latencies: Histogram<u64>,
}

impl Tally {
    /// Counts a command that succeeded.
    pub(super) fn count(&mut self, bytes: usize, elapsed: Duration) {
        self.bytes += bytes as u64;
        self.commands += 1;
        self.latencies.saturating_record(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Compares the received data with the expected data.
    pub(super) fn compare(&mut self, expected: Option<&[u8]>, found: Option<&[u8]>) {
        self.compared = true;
        self.mismatches += u64::from(expected != found);
    }
}

/// Runs a row: a warm-up, then repetitions. `run` moves data until the given time.
///
/// # Errors
/// Any error of `run`; Ctrl-C.
pub(super) fn repeat<U: ?Sized>(
    unit: &mut U,
    effort: Effort,
    interrupt: Interrupt<'_>,
    mut run: impl FnMut(&mut U, &mut Tally, Instant) -> Result<(), Halt>,
) -> Result<Outcome, AnyFailure> {
    let mut tally = Tally {
        bytes: 0,
        commands: 0,
        mismatches: 0,
        compared: false,
        // 1 ns to 1 hour at three significant digits: bounds that hdrhistogram accepts.
        latencies: Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds are valid"),
    };
    let (mut throughput, mut rate) = (Vec::new(), Vec::new());
    for repetition in 0..=effort.repetitions.max(1) {
        (tally.bytes, tally.commands) = (0, 0);
        let begun = Instant::now();
        let length = if repetition == 0 { effort.warm_up } else { effort.repetition };
        if let Err(halt) = run(unit, &mut tally, begun + length) {
            return halt.outcome();
        }
        let seconds = begun.elapsed().as_secs_f64();
        interrupt.check()?;
        if repetition == 0 {
            tally.latencies.reset();
        } else {
            throughput.push(tally.bytes as f64 / 1e6 / seconds);
            rate.push(tally.commands as f64 / seconds);
        }
    }
    let latency = |quantile: f64| tally.latencies.value_at_quantile(quantile) as f64 / 1e3;
    let (Some(mb_per_s), Some(commands_per_s)) = (Spread::of(throughput), Spread::of(rate)) else {
        unreachable!("at least one repetition was run")
    };
    Ok(Outcome::Measured(Box::new(Figures {
        mb_per_s,
        commands_per_s,
        p50_us: latency(0.5),
        p99_us: latency(0.99),
        p99_9_us: latency(0.999),
        max_us: tally.latencies.max() as f64 / 1e3,
        commands: tally.latencies.len(),
        mismatches: tally.mismatches,
        compared: tally.compared,
    })))
}
