//! What unpacking may cost: one budget for a file and for all that is nested in it.

use crate::interrupt::{Interrupt, Interrupted};

/// The most bytes that one file may expand to, with all the archives in it.
pub const MAX_EXPANDED: u64 = 64 << 20;
/// The most bytes that are searched for images, with each candidate's own: sections of a program may overlap.
pub(super) const MAX_SEARCHED: u64 = 512 << 20;

/// What is left of it, and who may stop the work.
#[derive(Debug)]
pub struct Budget<'a> {
    expand: u64,
    search: u64,
    interrupt: Interrupt<'a>,
}

impl<'a> Budget<'a> {
    /// All of it.
    pub const fn new(interrupt: Interrupt<'a>) -> Self {
        Self { expand: MAX_EXPANDED, search: MAX_SEARCHED, interrupt }
    }

    /// Fails when it is time to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        self.interrupt.check()
    }

    /// Bytes that may still be expanded.
    pub(super) const fn left_to_expand(&self) -> u64 {
        self.expand
    }

    /// So many bytes have been expanded.
    pub(super) const fn expanded(&mut self, bytes: u64) {
        self.expand = self.expand.saturating_sub(bytes);
    }

    /// Takes so many bytes to search; `false` where there are not as many left.
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
