//! A register as its block's table describes it: its addresses and its name.

/// The CPU's accesses to a register that act on memory alone, although a block owns the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    Neither,
    Reads,
    Both,
}

/// One register, or several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// First address, in the main page.
    pub first: u16,
    /// Last address, inclusive.
    pub last: u16,
    /// The project's name for the register. The vendor's names are not known.
    pub name: &'static str,
    pub(super) plain: Plain,
}

impl Register {
    pub(super) const fn one(at: u16, name: &'static str) -> Self {
        Self::range(at, at, name)
    }

    pub(super) const fn range(first: u16, last: u16, name: &'static str) -> Self {
        Self { first, last, name, plain: Plain::Neither }
    }

    /// Marks a register whose reads return what its memory holds.
    pub(super) const fn plain_to_reads(self) -> Self {
        Self { plain: Plain::Reads, ..self }
    }

    /// Marks a register whose reads return what its memory holds and whose writes only store.
    pub(super) const fn plain(self) -> Self {
        Self { plain: Plain::Both, ..self }
    }
}
