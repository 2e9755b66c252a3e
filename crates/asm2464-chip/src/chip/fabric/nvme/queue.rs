//! Submission and completion queues: their place in host memory and their positions.

const COMMAND_LEN: u64 = 64;
const ENTRY_LEN: u64 = 16;

/// A submission queue. A queue without entries does not exist.
#[derive(Debug, Default)]
pub(super) struct SubmissionQueue {
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

    pub(super) fn head(&self) -> u16 {
        self.head
    }

    /// Sets the tail from the doorbell. Ignores a value outside the queue.
    pub(super) fn set_tail(&mut self, value: u32) {
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
pub(super) struct CompletionQueue {
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
    pub(super) fn set_head(&mut self, value: u32) {
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
