//! What happens while an image is fetched.

use crate::progress::Progress;

/// What happens while an image is fetched.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
    /// A transfer begins, or begins again.
    Begin {
        /// The address, behind all redirects.
        url: &'a str,
        /// Bytes that are there from an earlier attempt.
        already: u64,
        /// The file's length in bytes, if the server tells.
        total: Option<u64>,
    },
    /// This many more bytes are on disk.
    Advance(u64),
    /// The transfer failed for this reason, and something else is tried: the next attempt, or the next mirror.
    Retry(&'a str),
    /// The transfer has ended, well or not.
    End,
}

/// Who is told of a fetch.
pub type FetchProgress<'p> = dyn for<'e> Progress<FetchEvent<'e>> + 'p;
