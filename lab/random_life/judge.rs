//! The verdict on a unit after a life.

use std::fmt;

use asm2464::firmware::CodeAddress;
use asm2464_chip::chip::RunEnd;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The unit works.
    Answers,
    /// The unit works after a class reset, CLEAR_FEATURE, SET_CONFIGURATION and SET_INTERFACE.
    AfterControlRequests,
    /// The unit works after a port reset.
    AfterPortReset,
    /// The flash holds no image.
    Blank,
    /// The unit needs a power cycle.
    Dead {
        outcome: RunEnd,
        /// Whether the unit answers control requests.
        control: bool,
        is_on_bus: bool,
        from: Option<CodeAddress>,
        to: Option<CodeAddress>,
    },
}

impl Verdict {
    pub fn words(&self) -> &'static str {
        match self {
            Self::Answers => "answer at once",
            Self::AfterControlRequests => "answer after control requests that recover",
            Self::AfterPortReset => "answer after a reset of the port",
            Self::Blank => "have no image in the flash",
            Self::Dead { .. } => "answer once the power has gone",
        }
    }

    /// Identifies a dead state; `None` if the unit can be recovered.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Dead { outcome, control, is_on_bus, from, .. } => {
                // The start of a spinning loop identifies it; the position of an idle main loop says nothing.
                let from = if *outcome == RunEnd::Parked { None } else { *from };
                Some(format!("{outcome:?} {control} {is_on_bus} {from:?}"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Dead { outcome, control, is_on_bus, from, to } = self else {
            return writeln!(f, "units {}", self.words());
        };
        let text = |at: &Option<CodeAddress>| at.map_or_else(|| "outside the code".to_owned(), |at| at.to_string());
        let control = if *control { "answers control requests" } else { "answers no control request" };
        let bus = if *is_on_bus { "" } else { ", has left the bus" };
        writeln!(f, "only the power helps: {outcome:?}, {control}{bus}, runs between {} and {}", text(from), text(to))
    }
}
