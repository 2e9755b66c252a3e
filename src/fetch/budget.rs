//! How much work a fetched file may cause.

use asm2464::interrupt::Interrupt;

/// The most bytes that one file may expand to, including all archives inside it.
pub(super) const MAX_EXPANDED: u64 = 64 << 20;
/// The most bytes that are searched for images. Bytes in overlapping sections, and each candidate, count again.
pub(super) const MAX_SEARCHED: u64 = 512 << 20;

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
