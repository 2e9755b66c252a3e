//! An NVMe controller behind the bridge: registers, queues in host memory, one namespace of 512-byte blocks.
//!
//! Layout of registers, commands and data structures: NVM Express base specification 1.4. A doorbell's commands are
//! carried out at once. The controller sends no interrupt: the bridge finds entries in its own memory.

mod command;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use asm2464::scsi::BLOCK_LEN;
use command::{NvmeStatus, PrpRanges, SubmissionEntry};
use serde::Deserialize;

use super::fabric::HostMemory;

/// Bytes of BAR 0.
pub(super) const REGISTERS_LEN: u64 = 0x4000;

/// Bytes in a memory page: CC.MPS has to be 0.
const PAGE_LEN: u64 = 4096;
/// A command moves at most `PAGE_LEN` << this.
const MDTS: u8 = 5;
/// Maximum number of entries in a queue.
const QUEUE_MAX: u16 = 256;
/// Number of queue pairs: the admin queues, and the I/O queues that a host may create.
const QUEUES: usize = 5;
/// Maximum number of waiting asynchronous event requests. None ever ends, because no events happen in this drive.
const EVENT_REQUESTS: usize = 4;

const CAP: u64 = 0x00;
const CAP_HIGH: u64 = 0x04;
const VS: u64 = 0x08;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1C;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

const CC_ENABLE: u32 = 0x01;
/// Command set and page size: both 0.
const CC_MUST_BE_0: u32 = 0x07F0;
const CC_SHUTDOWN: u32 = 0xC000;
const CSTS_READY: u32 = 0x01;
const CSTS_FATAL: u32 = 0x02;
const CSTS_SHUT_DOWN: u32 = 0x08;
const VERSION: u32 = 0x0001_0400;

/// Description of a drive in memory, and its defects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DriveSpec {
    /// Number of 512-byte blocks that the drive reports. Only written blocks take memory.
    pub blocks: u64,
    /// The drive never gets ready.
    #[serde(default)]
    pub never_ready: bool,
    /// Number of reads and writes that succeed; all later ones end in a media error.
    #[serde(default)]
    pub fails_after: Option<u64>,
}

/// The controller.
#[derive(Debug)]
pub(super) struct NvmeController {
    spec: DriveSpec,
    store: Box<dyn BlockStore>,
    cc: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    is_fatal: bool,
    submissions: [SubmissionQueue; QUEUES],
    completions: [CompletionQueue; QUEUES],
    features: [u32; 12],
    event_requests: usize,
    /// Number of reads and writes so far.
    moved: u64,
}

impl NvmeController {
    pub(super) fn new(spec: DriveSpec) -> Self {
        Self {
            spec,
            store: Box::new(SparseStore::new(spec.blocks)),
            cc: 0,
            aqa: 0,
            asq: 0,
            acq: 0,
            is_fatal: false,
            submissions: Default::default(),
            completions: Default::default(),
            features: [0; 12],
            event_requests: 0,
            moved: 0,
        }
    }

    /// Replaces the blocks.
    pub(super) fn put_store(&mut self, store: Box<dyn BlockStore>) {
        self.store = store;
    }

    /// Resets the controller. The stored blocks stay.
    pub(super) fn reset(&mut self) {
        (self.cc, self.aqa, self.asq, self.acq) = (0, 0, 0, 0);
        self.stop();
    }

    /// Discards the state that is lost when the host clears CC.EN.
    fn stop(&mut self) {
        self.is_fatal = false;
        self.submissions = Default::default();
        self.completions = Default::default();
        self.features = [0; 12];
        self.event_requests = 0;
    }

    pub(super) fn register_read(&self, offset: u64) -> u32 {
        match offset {
            // Contiguous queues; a timeout of 10 s; doorbells side by side; the NVM command set.
            CAP => u32::from(QUEUE_MAX - 1) | 0x01 << 16 | 20 << 24,
            CAP_HIGH => 0x20,
            VS => VERSION,
            CC => self.cc,
            CSTS => self.status(),
            AQA => self.aqa,
            ASQ => self.asq as u32,
            0x2C => (self.asq >> 32) as u32,
            ACQ => self.acq as u32,
            0x34 => (self.acq >> 32) as u32,
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let is_ready = self.cc & CC_ENABLE != 0 && !self.spec.never_ready && !self.is_fatal;
        let shut_down = if self.cc & CC_SHUTDOWN != 0 { CSTS_SHUT_DOWN } else { 0 };
        let ready = if is_ready { CSTS_READY } else { 0 };
        let fatal = if self.is_fatal { CSTS_FATAL } else { 0 };
        ready | fatal | shut_down
    }

    /// Writes a register for a host. `host` is the memory that the drive's own requests reach.
    pub(super) fn register_write(&mut self, offset: u64, value: u32, host: &mut dyn HostMemory) {
        match offset {
            CC => self.configure(value),
            AQA => self.aqa = value,
            ASQ => self.asq = self.asq & !0xFFFF_FFFF | u64::from(value & !0xFFF),
            0x2C => self.asq = self.asq & 0xFFFF_FFFF | u64::from(value) << 32,
            ACQ => self.acq = self.acq & !0xFFFF_FFFF | u64::from(value & !0xFFF),
            0x34 => self.acq = self.acq & 0xFFFF_FFFF | u64::from(value) << 32,
            DOORBELLS.. if self.status() & CSTS_READY != 0 => {
                let number = (offset - DOORBELLS) / 4;
                let (queue, is_completion) = ((number / 2) as usize, !number.is_multiple_of(2));
                if queue < QUEUES && is_completion {
                    self.completions[queue].set_head(value);
                } else if queue < QUEUES {
                    self.submissions[queue].set_tail(value);
                }
                self.work(host);
            }
            _ => {}
        }
    }

    fn configure(&mut self, value: u32) {
        let was_enabled = self.cc & CC_ENABLE != 0;
        self.cc = value;
        match (was_enabled, value & CC_ENABLE != 0) {
            (true, false) => self.stop(),
            (false, true) => {
                let entries = |bits: u32| (bits & 0xFFF) as u16 + 1;
                self.submissions[0] = SubmissionQueue::new(self.asq, entries(self.aqa).min(QUEUE_MAX), 0);
                self.completions[0] = CompletionQueue::new(self.acq, entries(self.aqa >> 16).min(QUEUE_MAX));
                self.is_fatal = value & CC_MUST_BE_0 != 0;
            }
            _ => {}
        }
        if value & CC_SHUTDOWN != 0 {
            // A shutdown has to flush. The protocol has no way to report that it failed.
            let _ = self.store.flush();
        }
    }

    /// Carries out the queued commands while the completion queues have room.
    fn work(&mut self, host: &mut dyn HostMemory) {
        for queue in 0..QUEUES {
            while !self.is_fatal {
                let submission = &self.submissions[queue];
                let completion = &self.completions[submission.completion()];
                if !completion.has_room() {
                    break;
                }
                let Some(at) = submission.next() else { break };
                let mut command = SubmissionEntry([0; 64]);
                if !host.read(at, &mut command.0) {
                    self.is_fatal = true;
                    break;
                }
                self.submissions[queue].take();
                let ended = if queue == 0 { self.admin(&command, host) } else { Some(self.io(&command, host)) };
                if let Some(ended) = ended {
                    self.complete(queue, &command, ended, host);
                }
            }
        }
    }

    fn complete(
        &mut self,
        queue: usize,
        command: &SubmissionEntry,
        ended: Result<u32, NvmeStatus>,
        host: &mut dyn HostMemory,
    ) {
        let (result, status) = ended.map_or_else(|status| (0, status.0), |result| (result, 0));
        let submission = &self.submissions[queue];
        let head = submission.head();
        let (at, phase) = self.completions[submission.completion()].put();
        let mut entry = [0; 16];
        entry[0..4].copy_from_slice(&result.to_le_bytes());
        entry[8..10].copy_from_slice(&head.to_le_bytes());
        entry[10..12].copy_from_slice(&(queue as u16).to_le_bytes());
        entry[12..14].copy_from_slice(&command.id().to_le_bytes());
        entry[14..16].copy_from_slice(&(status << 1 | u16::from(phase)).to_le_bytes());
        self.is_fatal |= !host.write(at, &entry);
    }

    /// Carries out an admin command; `None` if it waits for an event.
    fn admin(&mut self, command: &SubmissionEntry, host: &mut dyn HostMemory) -> Option<Result<u32, NvmeStatus>> {
        const DELETE_SUBMISSION: u8 = 0x00;
        const CREATE_SUBMISSION: u8 = 0x01;
        const GET_LOG_PAGE: u8 = 0x02;
        const DELETE_COMPLETION: u8 = 0x04;
        const CREATE_COMPLETION: u8 = 0x05;
        const IDENTIFY: u8 = 0x06;
        const ABORT: u8 = 0x08;
        const SET_FEATURES: u8 = 0x09;
        const GET_FEATURES: u8 = 0x0A;
        const EVENT_REQUEST: u8 = 0x0C;
        Some(match command.opcode() {
            DELETE_SUBMISSION => self.delete_submission(command),
            CREATE_SUBMISSION => self.create_submission(command),
            DELETE_COMPLETION => self.delete_completion(command),
            CREATE_COMPLETION => self.create_completion(command),
            GET_LOG_PAGE => log_page(command, host),
            IDENTIFY => self.identify(command, host),
            // The command has ended already, or never existed.
            ABORT => Ok(1),
            SET_FEATURES => self.feature(command, true),
            GET_FEATURES => self.feature(command, false),
            EVENT_REQUEST if self.event_requests < EVENT_REQUESTS => {
                self.event_requests += 1;
                return None;
            }
            EVENT_REQUEST => Err(NvmeStatus::EVENT_LIMIT),
            _ => Err(NvmeStatus::INVALID_OPCODE),
        })
    }

    fn create_completion(&mut self, command: &SubmissionEntry) -> Result<u32, NvmeStatus> {
        let (id, len) = queue_wanted(command)?;
        let queue = self.completions.get_mut(id).filter(|queue| !queue.exists()).ok_or(NvmeStatus::INVALID_QUEUE)?;
        *queue = CompletionQueue::new(command.prp1(), len);
        Ok(0)
    }

    fn create_submission(&mut self, command: &SubmissionEntry) -> Result<u32, NvmeStatus> {
        let (id, len) = queue_wanted(command)?;
        let completion = (command.dword(11) >> 16) as usize;
        if completion == 0 || !self.completions.get(completion).is_some_and(CompletionQueue::exists) {
            return Err(NvmeStatus::INVALID_COMPLETION_QUEUE);
        }
        let queue = self.submissions.get_mut(id).filter(|queue| !queue.exists()).ok_or(NvmeStatus::INVALID_QUEUE)?;
        *queue = SubmissionQueue::new(command.prp1(), len, completion);
        Ok(0)
    }

    fn delete_submission(&mut self, command: &SubmissionEntry) -> Result<u32, NvmeStatus> {
        let id = (command.dword(10) & 0xFFFF) as usize;
        let queue = self.submissions.get_mut(id).filter(|queue| id != 0 && queue.exists());
        *queue.ok_or(NvmeStatus::INVALID_QUEUE)? = SubmissionQueue::default();
        Ok(0)
    }

    fn delete_completion(&mut self, command: &SubmissionEntry) -> Result<u32, NvmeStatus> {
        let id = (command.dword(10) & 0xFFFF) as usize;
        if self.submissions.iter().any(|queue| queue.exists() && queue.completion() == id) {
            return Err(NvmeStatus::INVALID_QUEUE_DELETION);
        }
        let queue = self.completions.get_mut(id).filter(|queue| id != 0 && queue.exists());
        *queue.ok_or(NvmeStatus::INVALID_QUEUE)? = CompletionQueue::default();
        Ok(0)
    }

    fn feature(&mut self, command: &SubmissionEntry, is_set: bool) -> Result<u32, NvmeStatus> {
        const NUMBER_OF_QUEUES: usize = 0x07;
        let number = (command.dword(10) & 0xFF) as usize;
        let feature = match self.features.get_mut(number) {
            Some(feature) if number != 0 => feature,
            _ => return Err(NvmeStatus::INVALID_FIELD),
        };
        if number == NUMBER_OF_QUEUES {
            let most = QUEUES as u32 - 2;
            return Ok(most << 16 | most);
        }
        if is_set {
            *feature = command.dword(11);
            return Ok(0);
        }
        Ok(*feature)
    }

    fn identify(&mut self, command: &SubmissionEntry, host: &mut dyn HostMemory) -> Result<u32, NvmeStatus> {
        let page = command::identify_page((command.dword(10) & 0xFF) as u8, command.namespace(), self.store.blocks())?;
        PrpRanges::of(command, page.len() as u64, host)?.deliver(&page, host)
    }

    fn io(&mut self, command: &SubmissionEntry, host: &mut dyn HostMemory) -> Result<u32, NvmeStatus> {
        const FLUSH: u8 = 0x00;
        const WRITE: u8 = 0x01;
        const READ: u8 = 0x02;
        const ALL: u32 = u32::MAX;
        let opcode = command.opcode();
        if !matches!(opcode, FLUSH | WRITE | READ) {
            return Err(NvmeStatus::INVALID_OPCODE);
        }
        if command.namespace() != 1 && (opcode != FLUSH || command.namespace() != ALL) {
            return Err(NvmeStatus::INVALID_NAMESPACE);
        }
        if opcode == FLUSH {
            return self.store.flush().map(|()| 0).map_err(|StoreFailed| NvmeStatus::WRITE_FAULT);
        }
        let first = u64::from(command.dword(11)) << 32 | u64::from(command.dword(10));
        let blocks = u64::from(command.dword(12) & 0xFFFF) + 1;
        if first.checked_add(blocks).is_none_or(|end| end > self.store.blocks()) {
            return Err(NvmeStatus::OUT_OF_RANGE);
        }
        let len = blocks * BLOCK_LEN as u64;
        if len > PAGE_LEN << MDTS {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        let fault = if opcode == READ { NvmeStatus::READ_ERROR } else { NvmeStatus::WRITE_FAULT };
        self.moved += 1;
        if self.spec.fails_after.is_some_and(|good| self.moved > good) {
            return Err(fault);
        }
        let transfer = PrpRanges::of(command, len, host)?;
        let mut data = vec![0; len as usize];
        if opcode == READ {
            self.store.read(first, &mut data).map_err(|StoreFailed| fault)?;
            return transfer.deliver(&data, host);
        }
        transfer.fetch(&mut data, host)?;
        self.store.write(first, &data).map(|()| 0).map_err(|StoreFailed| fault)
    }
}

/// Decodes the number of a queue to create, and its number of entries.
fn queue_wanted(command: &SubmissionEntry) -> Result<(usize, u16), NvmeStatus> {
    const CONTIGUOUS: u32 = 0x01;
    let id = (command.dword(10) & 0xFFFF) as usize;
    let entries = command.dword(10) >> 16;
    if id == 0 || id >= QUEUES {
        return Err(NvmeStatus::INVALID_QUEUE);
    }
    if entries == 0 || entries >= u32::from(QUEUE_MAX) {
        return Err(NvmeStatus::INVALID_QUEUE_SIZE);
    }
    if command.dword(11) & CONTIGUOUS == 0 || !command.prp1().is_multiple_of(PAGE_LEN) {
        return Err(NvmeStatus::INVALID_FIELD);
    }
    Ok((id, entries as u16 + 1))
}

/// Answers Get Log Page: error information, health and firmware slots of a healthy, new drive.
fn log_page(command: &SubmissionEntry, host: &mut dyn HostMemory) -> Result<u32, NvmeStatus> {
    const HEALTH: u32 = 2;
    const LONGEST: u64 = PAGE_LEN;
    let page = command.dword(10) & 0xFF;
    let len = (u64::from(command.dword(11) & 0xFFFF) << 16 | u64::from(command.dword(10) >> 16)) * 4 + 4;
    if !(1..=3).contains(&page) {
        return Err(NvmeStatus::INVALID_LOG_PAGE);
    }
    if len > LONGEST {
        return Err(NvmeStatus::INVALID_FIELD);
    }
    let mut data = vec![0; len.max(512) as usize];
    if page == HEALTH {
        // 27 degrees Celsius, in kelvins; available spare in per cent, and its threshold.
        data[1..5].copy_from_slice(&[0x2C, 0x01, 100, 10]);
    }
    PrpRanges::of(command, len, host)?.deliver(&data[..len as usize], host)
}

const COMMAND_LEN: u64 = 64;
const ENTRY_LEN: u64 = 16;

/// A submission queue. A queue without entries does not exist.
#[derive(Debug, Default)]
struct SubmissionQueue {
    base: u64,
    len: u16,
    head: u16,
    tail: u16,
    completion: usize,
}

impl SubmissionQueue {
    /// Creates an empty queue whose commands end in completion queue `completion`.
    pub(super) fn new(base: u64, len: u16, completion: usize) -> Self {
        Self { base, len, head: 0, tail: 0, completion }
    }

    pub(super) fn exists(&self) -> bool {
        self.len != 0
    }

    pub(super) fn completion(&self) -> usize {
        self.completion
    }

    fn head(&self) -> u16 {
        self.head
    }

    /// Sets the tail from the doorbell. Ignores a value outside the queue.
    fn set_tail(&mut self, value: u32) {
        if let Some(tail) = u16::try_from(value).ok().filter(|tail| *tail < self.len) {
            self.tail = tail;
        }
    }

    /// Address of the next command.
    pub(super) fn next(&self) -> Option<u64> {
        (self.head != self.tail).then(|| self.base.wrapping_add(COMMAND_LEN * u64::from(self.head)))
    }

    /// Advances past the fetched command.
    pub(super) fn take(&mut self) {
        self.head = (self.head + 1) % self.len.max(1);
    }
}

/// A completion queue. A queue without entries does not exist.
#[derive(Debug, Default)]
struct CompletionQueue {
    base: u64,
    len: u16,
    head: u16,
    tail: u16,
    phase: bool,
}

impl CompletionQueue {
    /// Creates an empty queue.
    pub(super) fn new(base: u64, len: u16) -> Self {
        Self { base, len, head: 0, tail: 0, phase: true }
    }

    pub(super) fn exists(&self) -> bool {
        self.len != 0
    }

    pub(super) fn has_room(&self) -> bool {
        self.exists() && (self.tail + 1) % self.len != self.head
    }

    /// Sets the head from the doorbell. Ignores a value outside the queue.
    fn set_head(&mut self, value: u32) {
        if let Some(head) = u16::try_from(value).ok().filter(|head| *head < self.len) {
            self.head = head;
        }
    }

    /// Claims the next entry. Returns its address and its phase.
    pub(super) fn put(&mut self) -> (u64, bool) {
        let put = (self.base.wrapping_add(ENTRY_LEN * u64::from(self.tail)), self.phase);
        self.tail = (self.tail + 1) % self.len.max(1);
        self.phase ^= self.tail == 0;
        put
    }
}

/// The blocks could not be read, or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreFailed;

/// Storage of 512-byte blocks. A drive only accesses existing blocks, at most as many as a command moves.
pub trait BlockStore: fmt::Debug + Send {
    /// Number of blocks.
    fn blocks(&self) -> u64;

    /// Reads whole blocks, from block number `first` on.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a media error.
    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed>;

    /// Writes whole blocks, from block number `first` on.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a write fault.
    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a write fault.
    fn flush(&mut self) -> Result<(), StoreFailed>;
}

/// Blocks in memory. Only written blocks take memory; the rest reads as zeros.
#[derive(Debug)]
struct SparseStore {
    blocks: u64,
    written: BTreeMap<u64, [u8; BLOCK_LEN]>,
}

impl SparseStore {
    pub(super) fn new(blocks: u64) -> Self {
        Self { blocks, written: BTreeMap::new() }
    }
}

impl BlockStore for SparseStore {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        for (number, block) in (first..).zip(into.chunks_mut(BLOCK_LEN)) {
            match self.written.get(&number) {
                Some(written) => block.copy_from_slice(&written[..block.len()]),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed> {
        for (number, block) in (first..).zip(data.chunks(BLOCK_LEN)) {
            let written = self.written.entry(number).or_insert([0; BLOCK_LEN]);
            written[..block.len()].copy_from_slice(block);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        Ok(())
    }
}
