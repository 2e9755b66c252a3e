//! How long a run waits for units and for the user.

use std::env;
use std::time::Duration;

/// The variable with a whole number that divides every deadline. For tests only, so that waiting for thousands of lost
/// units takes minutes. Only a build with debug assertions reads it: a variable in a user's environment must not make
/// `flash` give up on a unit that is still starting.
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
        let asked = env::var(SHORTEN).ok();
        Self { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) }
            .shortened(divisor(asked.as_deref(), cfg!(debug_assertions)))
    }

    fn shortened(self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        Self { come_back: self.come_back / divisor, replug: self.replug / divisor }
    }
}

fn divisor(asked: Option<&str>, is_test_build: bool) -> u32 {
    asked.filter(|_| is_test_build).and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_waits_as_long_as_it_says_whatever_the_environment_asks_for() {
        assert_eq!(divisor(Some("100"), true), 100);
        assert_eq!(divisor(Some("100"), false), 1);
        assert_eq!((divisor(None, true), divisor(Some("much"), true)), (1, 1));
    }

    #[test]
    fn deadlines_shrink_in_proportion_and_no_divisor_is_zero() {
        let full = Deadlines { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) };
        let short = Deadlines { come_back: Duration::from_millis(150), replug: Duration::from_millis(1200) };
        assert_eq!(full.shortened(100), short);
        assert_eq!(full.shortened(0), full);
    }
}
