//! Waits while the user does something by hand: holds no unit, and reads only the system's files.

use std::time::{Duration, Instant};

use asm2464::AnyFailure;
use asm2464::interrupt::Interrupt;
use asm2464_files::file;
use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::Sysfs;

use crate::cli::words::ask;

/// Interval between looks.
const TICK: Duration = Duration::from_millis(250);
/// How long nothing may change before what has changed is looked at: a dock comes up in several steps.
const SETTLED: Duration = Duration::from_millis(1500);
/// The largest bridge.toml that is compared.
const MAX_SCENARIO: usize = 0x1_0000;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The user pressed Enter.
    Entered,
    /// Something has changed.
    Changed,
    /// The terminal is gone, or its input has ended.
    Closed,
}

/// What is watched: the devices of this host or, for a virtual unit, what is set for it.
pub struct Watched {
    location: Option<Location>,
    before: Vec<String>,
}

impl Watched {
    /// Watches what the unit here needs, from now on.
    pub fn of(location: Option<&Location>) -> Self {
        Self { location: location.cloned(), before: look(location) }
    }

    /// Whether this system shows changes.
    pub fn sees_changes(&self) -> bool {
        matches!(self.location, Some(Location::Virtual(_))) || !self.before.is_empty()
    }

    /// Whether the unit's port is empty, though it was not, and nothing has come to another port.
    fn is_away(&self, now: &[String]) -> bool {
        let Some(Location::Port(port)) = &self.location else { return false };
        let device = |lines: &[String]| {
            lines.iter().any(|line| {
                line.strip_prefix("usb ").is_some_and(|rest| rest.split(' ').next() == Some(&*port.to_string()))
            })
        };
        let count = |lines: &[String]| lines.iter().filter(|line| line.starts_with("usb ")).count();
        device(&self.before) && !device(now) && count(now) < count(&self.before)
    }

    /// Waits for a change, which has settled, or for Enter.
    ///
    /// # Errors
    /// On Ctrl-C.
    pub fn wait(&self, interrupt: Interrupt<'_>) -> Result<Woken, AnyFailure> {
        let (mut last, mut since) = (self.before.clone(), Instant::now());
        loop {
            match ask::line_within(TICK) {
                ask::Line::Typed(_) => return Ok(Woken::Entered),
                ask::Line::Closed => return Ok(Woken::Closed),
                ask::Line::NotYet => interrupt.check()?,
            }
            let now = look(self.location.as_ref());
            if now != last {
                (last, since) = (now, Instant::now());
            } else if last != self.before && since.elapsed() >= SETTLED && !self.is_away(&last) {
                return Ok(Woken::Changed);
            }
        }
    }
}

/// What a unit here depends on, as it is now.
fn look(location: Option<&Location>) -> Vec<String> {
    match location {
        Some(Location::Virtual(folder)) => {
            file::read_regular_text(&folder.join("bridge.toml"), MAX_SCENARIO).into_iter().collect()
        }
        _ => Sysfs::system().snapshot(),
    }
}
