//! What every row has in common, whatever moves its data: a warm-up and repetitions, the counts and figures of what they
//! move, the pattern that they compare with, and what ends them early.

use std::time::{Duration, Instant};

use asm2464::AnyFailure;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{CommandError, ControlError, TransportError};
use asm2464_host::pcie::PcieError;
use derive_more::{Display, From};
use hdrhistogram::Histogram;

use super::plan::Effort;
use super::report::{Figures, Outcome, Spread};

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

/// Reasons a path's measurement or check ends early.
#[derive(Debug, Display, From)]
pub enum Halt {
    /// The path has this result.
    Outcome(Outcome),
    /// Nothing more can be measured.
    Error(AnyFailure),
}

impl Halt {
    /// The path's result, or the error that ends the bench.
    pub(super) fn outcome(self) -> Result<Outcome, AnyFailure> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Error(error) => Err(error),
        }
    }

    /// What a failed transfer means for its path.
    pub(super) fn of_transport(error: TransportError, timeout: Duration) -> Self {
        if error.is_timeout() { Outcome::no_answer(timeout).into() } else { Self::Error(error.into()) }
    }

    /// What a failed PCIe request means for its path.
    pub(super) fn of(error: PcieError, timeout: Duration) -> Self {
        match error {
            PcieError::Control(error) => error.into(),
            PcieError::Command(CommandError::Transport(error)) => Self::of_transport(error, timeout),
            PcieError::Command(
                CommandError::Short { expected, found, .. } | CommandError::ShortXdata { expected, found },
            ) => Outcome::Short { expected, found }.into(),
            PcieError::Command(error) => Outcome::Refused { reason: error.to_string() }.into(),
            other => Self::Error(other.into()),
        }
    }
}

impl From<ControlError> for Halt {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Timeout { deadline, .. }
            | ControlError::BulkTimeout { deadline, .. }
            | ControlError::SramBusy { deadline, .. }
            | ControlError::NotTaken { deadline, .. } => Outcome::no_answer(deadline).into(),
            ControlError::Short { expected, found, .. } => Outcome::Short { expected, found }.into(),
            ControlError::Stalled { .. }
            | ControlError::Malformed { .. }
            | ControlError::Completion { .. }
            | ControlError::LinkDown { .. } => Outcome::Refused { reason: error.to_string() }.into(),
            ControlError::Disconnected { .. }
            | ControlError::Length { .. }
            | ControlError::Interrupted(_)
            | ControlError::Io { .. } => Self::Error(error.into()),
        }
    }
}

/// Length of the pattern in bytes: the most that a WRITE(16) moves.
pub(super) const PATTERN_LEN: usize = 0x1_0000;

/// Returns the pattern of this seed: the bytes to write. No two blocks are equal, so that a misplaced one is found. Two
/// seeds differ in every block, so leftovers of an earlier run never match.
pub(super) fn pattern_of(seed: u64) -> Vec<u8> {
    (0..PATTERN_LEN as u64 / 8).flat_map(|word| mix(seed ^ mix(word)).to_le_bytes()).collect()
}

/// Compares the received bytes with those written at `offset` of the pattern.
pub(super) fn compare(expected: &[u8], found: &[u8], offset: usize) -> Outcome {
    if found.len() != expected.len() {
        return Outcome::Short { expected: expected.len(), found: found.len() };
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Outcome::Differs { offset: offset + at, expected: expected[at], found: found[at] },
        None => Outcome::Same,
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit affects every output bit.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_of_a_pattern_or_of_two_seeds_are_alike() {
        let (one, two) = (pattern_of(1), pattern_of(2));
        let mut blocks: Vec<&[u8]> = one.chunks(512).chain(two.chunks(512)).collect();
        let count = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!((blocks.len(), one.len()), (count, PATTERN_LEN));
    }
}
