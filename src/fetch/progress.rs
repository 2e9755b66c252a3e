//! The events of fetching an image.

use crate::progress::Progress;

/// An event of fetching an image.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
    /// A transfer begins or resumes.
    Begin {
        /// The address, after all redirects.
        url: &'a str,
        /// How many bytes an earlier attempt has left.
        already: u64,
        /// The file's length in bytes, if the server tells it.
        total: Option<u64>,
    },
    /// This many more bytes are on disk.
    Advance(u64),
    /// The transfer failed for this reason. The next attempt or the next mirror follows.
    Retry(&'a str),
    /// The transfer has ended, successfully or not.
    End,
}

/// Receives the events of a fetch.
pub type FetchProgress<'p> = dyn for<'e> Progress<FetchEvent<'e>> + 'p;
