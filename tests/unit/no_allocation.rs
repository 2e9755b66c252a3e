//! In their steady state, both transports allocate nothing at any depth.

use std::collections::VecDeque;
use std::time::Duration;

use asm2464::scsi::bot::{CBW_LEN, CSW_LEN, CommandStatusWrapper, CswStatus};
use asm2464::scsi::{Command, Lun, ScsiStatus};
use asm2464_host::bridge::{
    BulkOnly, CommandEnd, Endpoint, Job, JobData, PipeError, Pipes, Reaped, TransferEnd, TransferId, Transport, Uas,
    Workload,
};

const TIMEOUT: Duration = Duration::from_secs(1);
const BLOCK: usize = 65_536;

/// Pipes of a device that completes every transfer at once, the newest first.
struct Obedient {
    streams: u16,
    buffers: Vec<Vec<u8>>,
    waiting: Vec<(TransferId, Endpoint, usize)>,
    back: VecDeque<Reaped>,
    /// Tag of the last command wrapper.
    tag: u32,
}

impl Obedient {
    fn new(streams: u16) -> Self {
        let (waiting, back) = (Vec::with_capacity(128), VecDeque::with_capacity(128));
        Self { streams, buffers: Vec::new(), waiting, back, tag: 0 }
    }

    fn give_back(&mut self, transfer: TransferId, moved: usize) {
        self.back.push_back(Reaped { transfer, moved, end: TransferEnd::Completed });
    }
}

impl Pipes for Obedient {
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
            // A sense IU with GOOD. The tag equals the stream ID.
            Endpoint::Status => {
                let iu = &mut self.buffers[transfer.0][..16];
                iu.fill(0);
                iu[0] = 0x03;
                iu[2..4].copy_from_slice(&stream.to_be_bytes());
                self.waiting.push((transfer, endpoint, 16));
            }
            Endpoint::DataIn if len == CSW_LEN => {
                let status = CommandStatusWrapper { tag: self.tag, residue: 0, status: CswStatus::Passed };
                self.buffers[transfer.0][..CSW_LEN].copy_from_slice(&status.to_bytes());
                self.waiting.push((transfer, endpoint, len));
            }
            Endpoint::DataOut if len == CBW_LEN => {
                let wrapper = &self.buffers[transfer.0];
                self.tag = u32::from_le_bytes([wrapper[4], wrapper[5], wrapper[6], wrapper[7]]);
                self.waiting.push((transfer, endpoint, len));
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

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        Ok(())
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        Ok(())
    }
}

/// A number of commands of 64 KiB, alternately reads and writes.
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
            Job { lun: Lun::ZERO, cdb: Command::Read16 { lba, blocks }.cdb(), data: JobData::In(BLOCK), id: 0 }
        } else {
            Job { lun: Lun::ZERO, cdb: Command::Write16 { lba, blocks }.cdb(), data: JobData::Out(BLOCK), id: 0 }
        })
    }

    fn complete(&mut self, _job: &Job, completion: &CommandEnd, _data: &[u8], _elapsed: Duration) -> bool {
        self.good += u32::from(completion.status == ScsiStatus::Good && completion.transferred == BLOCK);
        true
    }
}

/// Runs a warmed-up engine. Returns the number of successful commands and of allocations.
fn steady_state_of(mut engine: impl Transport, depth: usize) -> (u32, u64) {
    let mut warm_up = Count { left: 64, good: 0 };
    engine.run(&mut warm_up, depth, TIMEOUT).expect("an obedient device");
    let mut steady = Count { left: 10_000, good: 0 };
    let allocations = allocation_counter::measure(|| {
        engine.run(&mut steady, depth, TIMEOUT).expect("an obedient device");
    });
    (steady.good, allocations.count_total)
}

#[test]
fn the_uas_queue_allocates_nothing_per_command_at_any_depth() {
    for depth in [1, 8, 31] {
        let engine = Uas::new(Obedient::new(32)).expect("pipes that only allocate");
        assert_eq!(steady_state_of(engine, depth), (10_000, 0), "at depth {depth}");
    }
}

#[test]
fn bulk_only_allocates_nothing_per_command() {
    let engine = BulkOnly::new(Obedient::new(0)).expect("pipes that only allocate");
    assert_eq!(steady_state_of(engine, 1), (10_000, 0));
}
