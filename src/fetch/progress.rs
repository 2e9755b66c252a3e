//! How long operations tell where they are. The library never prints.

/// Told of a transfer's progress.
pub trait Progress {
    /// A transfer begins, or begins again: from `url`, with `already` of `total` bytes there from an earlier attempt.
    fn begin(&mut self, url: &str, already: u64, total: Option<u64>);

    /// This many more bytes are on disk.
    fn advance(&mut self, bytes: u64);

    /// The transfer failed and something else is tried: the next attempt, or the next mirror.
    fn retry(&mut self, reason: &str);

    /// The transfer has ended, well or not.
    fn end(&mut self);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _url: &str, _already: u64, _total: Option<u64>) {}
    fn advance(&mut self, _bytes: u64) {}
    fn retry(&mut self, _reason: &str) {}
    fn end(&mut self) {}
}
