//! The UAS queue in its steady state allocates nothing, whatever the depth.

use std::collections::VecDeque;
use std::time::Duration;

use asmpatch::bridge::{
    Completion, Endpoint, Job, JobData, PipeError, Reaped, StreamPipes, TransferEnd, TransferId, Transport, Uas,
    Workload,
};
use asmpatch::scsi::{Command, ScsiStatus};

const TIMEOUT: Duration = Duration::from_secs(1);
const BLOCK: usize = 65_536;

/// Pipes of a device that does everything it is told, at once and in the order in which it is told, newest first.
struct Obedient {
    streams: u16,
    buffers: Vec<Vec<u8>>,
    waiting: Vec<(TransferId, Endpoint, usize)>,
    back: VecDeque<Reaped>,
}

impl Obedient {
    fn new(streams: u16) -> Self {
        Self { streams, buffers: Vec::new(), waiting: Vec::with_capacity(128), back: VecDeque::with_capacity(128) }
    }

    fn give_back(&mut self, transfer: TransferId, moved: usize) {
        self.back.push_back(Reaped { transfer, moved, end: TransferEnd::Completed });
    }
}

impl StreamPipes for Obedient {
    fn streams(&self) -> u16 {
        self.streams
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.buffers.push(vec![0; capacity]);
        Ok(TransferId(self.buffers.len() - 1))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        let buffer = &mut self.buffers[transfer.0];
        buffer.resize(buffer.len().max(capacity), 0);
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        &mut self.buffers[transfer.0]
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        match endpoint {
            // A sense IU: GOOD, for the tag that is the stream's number.
            Endpoint::Status => {
                let unit = &mut self.buffers[transfer.0][..16];
                unit.fill(0);
                unit[0] = 0x03;
                unit[2..4].copy_from_slice(&stream.to_be_bytes());
                self.waiting.push((transfer, endpoint, 16));
            }
            _ => self.waiting.push((transfer, endpoint, len)),
        }
        Ok(())
    }

    fn reap(&mut self, _timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        if self.back.is_empty() {
            while let Some((transfer, _, moved)) = self.waiting.pop() {
                self.give_back(transfer, moved);
            }
        }
        Ok(self.back.pop_front())
    }

    fn cancel(&mut self, _transfer: TransferId) {}

    fn clear_halt(&mut self, _endpoint: Endpoint) -> Result<(), PipeError> {
        Ok(())
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        Ok(())
    }
}

/// So many commands of 64 KiB, reads and writes by turns.
struct Count {
    left: u32,
    good: u32,
}

impl Workload for Count {
    fn buffer_len(&self) -> usize {
        BLOCK
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        self.left = self.left.checked_sub(1)?;
        let (lba, blocks) = (u64::from(self.left), 128);
        Some(if self.left.is_multiple_of(2) {
            Job { cdb: Command::Read16 { lba, blocks }.cdb(), data: JobData::In(BLOCK), id: 0 }
        } else {
            Job { cdb: Command::Write16 { lba, blocks }.cdb(), data: JobData::Out(BLOCK), id: 0 }
        })
    }

    fn complete(&mut self, _job: &Job, completion: &Completion, _data: &[u8], _elapsed: Duration) -> bool {
        self.good += u32::from(completion.status == ScsiStatus::Good && completion.transferred == BLOCK);
        true
    }
}

#[test]
fn the_queue_allocates_nothing_per_command_at_any_depth() {
    for depth in [1, 8, 31] {
        let mut engine = Uas::new(Obedient::new(32)).expect("pipes that only allocate");
        let mut warm_up = Count { left: 64, good: 0 };
        engine.run(&mut warm_up, depth, TIMEOUT).expect("an obedient device");
        let mut steady = Count { left: 10_000, good: 0 };
        let allocations = allocation_counter::measure(|| {
            engine.run(&mut steady, depth, TIMEOUT).expect("an obedient device");
        });
        assert_eq!((steady.good, allocations.count_total), (10_000, 0), "at depth {depth}");
    }
}
