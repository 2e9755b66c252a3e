//! A time as RFC 3339 writes it, in UTC.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

/// A time, to the millisecond.
pub struct Utc(pub SystemTime);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Before 1970 only on a machine without a clock.
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
    }
}

/// Year, month and day so many days after 1970-01-01. Years begin with March here: a leap day is the last one. Source:
/// Howard Hinnant's "chrono-compatible low-level date algorithms".
const fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + (month <= 2) as u64, month, date)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_763_790_587, "2025-11-22T05:49:47.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc(UNIX_EPOCH + Duration::from_secs(seconds)).to_string(), shown);
        }
        assert_eq!(Utc(UNIX_EPOCH + Duration::from_millis(1_999)).to_string(), "1970-01-01T00:00:01.999Z");
    }
}
