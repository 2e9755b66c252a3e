//! How long a transfer may take, and how much it may transfer.

use std::time::Duration;

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
