//! Bounds on a download.

use std::time::Duration;

/// How long and how much a transfer may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest wait for a connection.
    pub connect: Duration,
    /// The longest silence of a server, before its answer and within it.
    pub silence: Duration,
    /// The longest that a download may take as a whole, with all attempts and mirrors, however slowly bytes come.
    pub deadline: Duration,
    /// The most redirects to follow.
    pub redirects: u32,
    /// The most bytes to take.
    pub bytes: u64,
    /// How often a transfer that is cut is taken up again before it fails.
    pub retries: u32,
    /// The pause before each of those, times its number.
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
