//! Limits the cost of unpacking: one budget for a file and everything nested in it.

use crate::interrupt::{Interrupt, Interrupted};

/// The most bytes that one file may expand to, including all archives inside it.
pub const MAX_EXPANDED: u64 = 64 << 20;
/// The most bytes that are searched for images, including the candidates themselves: sections of a program may overlap.
pub(super) const MAX_SEARCHED: u64 = 512 << 20;

/// The remaining budget, and the flag that stops the work.
#[derive(Debug)]
pub struct Budget<'a> {
    expand: u64,
    search: u64,
    interrupt: Interrupt<'a>,
}

impl<'a> Budget<'a> {
    /// Creates a full budget.
    pub const fn new(interrupt: Interrupt<'a>) -> Self {
        Self { expand: MAX_EXPANDED, search: MAX_SEARCHED, interrupt }
    }

    /// Returns an error if it is time to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        self.interrupt.check()
    }

    /// Returns how many bytes may still be expanded.
    pub(super) const fn left_to_expand(&self) -> u64 {
        self.expand
    }

    /// Subtracts expanded bytes.
    pub(super) const fn expanded(&mut self, bytes: u64) {
        self.expand = self.expand.saturating_sub(bytes);
    }

    /// Subtracts bytes to search; `false` if fewer are left.
    pub(super) const fn take_to_search(&mut self, bytes: u64) -> bool {
        match self.search.checked_sub(bytes) {
            Some(left) => {
                self.search = left;
                true
            }
            None => false,
        }
    }
}
