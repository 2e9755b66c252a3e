//! Measurement of one path at one size and depth: a warm-up, then repetitions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{Command, ScsiStatus, XdataAddress};
use asm2464_host::bridge::{Bridge, CommandEnd, Job, JobData, Transport, Workload};

use super::benched_unit::Task;
use super::integrity;
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::plan::Point;
use super::report::Outcome;
use super::tally::{Tally, repeat};
use crate::failure::AnyFailure;

/// ID of a job that frees slots. Its data does not count for the path.
const FREEING: u64 = u64::MAX;

/// Streams commands until its deadline and counts their results.
struct Stream<'a> {
    point: Point,
    pattern: &'a Pattern,
    compare: bool,
    tally: &'a mut Tally,
    until: Instant,
    interrupt: Interrupt<'a>,
    number: u64,
    /// The remaining writes that free the slots of the last WRITE(16).
    freeing: VecDeque<(u16, u8)>,
    /// Result of the first command that failed.
    trouble: Option<Outcome>,
}

impl Workload for Stream<'_> {
    fn buffer_len(&self) -> usize {
        self.point.size
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn next(&mut self, buffer: &mut [u8]) -> Option<Job> {
        let Point { path, size, .. } = self.point;
        if self.trouble.is_some() {
            return None;
        }
        // Free all slots in the same queue: a WRITE(16) that finds no free slot is never answered.
        if let Some((at, value)) = self.freeing.pop_front() {
            let command = Command::XdataWrite { at: XdataAddress::main(at), value };
            return Some(Job { cdb: command.cdb(), data: JobData::None, id: FREEING });
        }
        if Instant::now() >= self.until || self.interrupt.is_requested() {
            return None;
        }
        let at = path.offset(self.number, size);
        let command = path.command(at, size)?;
        if path.writes() {
            // Fill each slot's buffer once and send it again and again, so that the host copies nothing per command.
            let head = size.min(16);
            if buffer[..head] != self.pattern.bytes()[..head] {
                buffer[..size].copy_from_slice(&self.pattern.bytes()[..size]);
            }
            self.freeing.extend(freeing(size));
        }
        self.number += 1;
        Some(Job { cdb: command.cdb(), data: path.job_data(size), id: at as u64 })
    }

    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], elapsed: Duration) -> bool {
        let Point { path, size, .. } = self.point;
        if completion.status != ScsiStatus::Good {
            self.trouble.get_or_insert(Outcome::Refused { reason: integrity::refusal(completion) });
            return false;
        }
        if job.id == FREEING {
            return true;
        }
        if completion.transferred != size {
            self.trouble.get_or_insert(Outcome::Short { expected: size, found: completion.transferred });
            return false;
        }
        if self.compare {
            // The window holds the pattern's first 4 KiB.
            let (at, len) = if path == Path::Read16 { (0, size.min(WINDOW_LEN)) } else { (job.id as usize, size) };
            self.tally.compare(self.pattern.bytes().get(at..at + len), data.get(..len));
        }
        self.tally.count(size, elapsed);
        true
    }
}

/// Measures one path.
///
/// WRITE(16) is measured as a GPU runtime uses it: each is followed in the same queue by the E5 commands that free its
/// slots. Their time counts, but not their number, bytes or latency.
///
/// # Errors
/// If the wire failed, or on Ctrl-C. No answer, a refusal and short data are outcomes.
pub(super) fn measure<T: Transport>(
    bridge: &mut Bridge<T>,
    point: Point,
    task: &Task<'_>,
) -> Result<Outcome, AnyFailure> {
    let Point { path, depth, .. } = point;
    let Task { pattern, effort, interrupt, .. } = *task;
    let returns_sram = path.reads_window() || (path == Path::Read16 && task.known.read16_sram);
    repeat(bridge, effort, interrupt, |bridge, tally, until| {
        let mut stream = Stream {
            point,
            pattern,
            compare: task.window_holds && returns_sram,
            tally,
            until,
            interrupt,
            number: 0,
            freeing: VecDeque::new(),
            trouble: None,
        };
        match bridge.transport_mut().run(&mut stream, depth, effort.timeout) {
            Ok(()) => stream.trouble.map_or(Ok(()), |trouble| Err(trouble.into())),
            Err(error) if error.is_timeout() => {
                integrity::recover(bridge, path)?;
                Err(Outcome::no_answer(effort.timeout).into())
            }
            Err(error) => Err(AnyFailure::from(error).into()),
        }
    })
}
