//! How much a fetch may cost: the time and the bytes of its transfers, and the work that a fetched file may cause.

use std::time::Duration;

use asm2464::interrupt::Interrupt;

/// The most bytes that one file may expand to, including all archives inside it.
pub(super) const MAX_EXPANDED: u64 = 64 << 20;
/// The most bytes that are searched for images. Bytes in overlapping sections, and each candidate, count again.
pub(super) const MAX_SEARCHED: u64 = 512 << 20;

/// How long a transfer may take, and how much it may transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest wait for a connection.
    pub connect: Duration,
    /// The longest wait for a server's answer, with all redirects, and the longest silence within the answer.
    pub silence: Duration,
    /// The longest that a download may take in total, with all attempts and mirrors, however slowly bytes arrive.
    pub deadline: Duration,
    /// The most redirects to follow.
    pub redirects: u32,
    /// The most bytes to accept.
    pub bytes: u64,
    /// How often an interrupted transfer is retried before it fails.
    pub retries: u32,
    /// The pause before each retry, multiplied by the retry's number.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            silence: Duration::from_secs(30),
            deadline: Duration::from_secs(15 * 60),
            redirects: 10,
            bytes: 64 << 20,
            retries: 3,
            pause: Duration::from_millis(500),
        }
    }
}

/// The remaining budget of a search in a file and everything nested in it, and the flag that stops the work.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    /// How many bytes may still be expanded.
    pub(super) expand: u64,
    /// How many bytes may still be searched.
    pub(super) search: u64,
    /// Whether something failed because the budget is used up: what follows would fail, too.
    pub(super) is_spent: bool,
    pub(super) interrupt: Interrupt<'a>,
}

impl<'a> Budget<'a> {
    /// Creates a full budget.
    pub(super) const fn new(interrupt: Interrupt<'a>) -> Self {
        Self { expand: MAX_EXPANDED, search: MAX_SEARCHED, is_spent: false, interrupt }
    }
}
