//! How long a run waits for units and for the user.

use std::env;
use std::time::Duration;

/// Divides every deadline by this whole number. For tests only, so that waiting for thousands of lost units takes
/// minutes.
const SHORTEN: &str = "ASMPATCH_TEST_SHORTEN_DEADLINES";

/// How long a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// How long a unit may take to come back by itself.
    pub come_back: Duration,
    /// How long the user may then take to plug it in again.
    pub replug: Duration,
}

impl Deadlines {
    /// Returns the deadlines, shortened if a test asks for it.
    pub fn of_this_run() -> Self {
        let divisor = env::var(SHORTEN).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        Self { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) }.shortened(divisor)
    }

    fn shortened(self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        Self { come_back: self.come_back / divisor, replug: self.replug / divisor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_shrink_in_proportion_and_no_divisor_is_zero() {
        let full = Deadlines { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) };
        let short = Deadlines { come_back: Duration::from_millis(150), replug: Duration::from_millis(1200) };
        assert_eq!(full.shortened(100), short);
        assert_eq!(full.shortened(0), full);
    }
}
