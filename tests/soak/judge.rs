//! What became of a unit.

use std::fmt;

use asmpatch::chip::Outcome;
use asmpatch::firmware::CodeAddress;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Answers,
    /// It works after a class reset, CLEAR_FEATURE, SET_CONFIGURATION and SET_INTERFACE.
    AfterControlRequests,
    /// It works after a reset of the port.
    AfterPortReset,
    /// Its flash holds no image.
    Blank,
    /// Only its power helps.
    Dead {
        outcome: Outcome,
        /// Whether it answers control requests.
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

    /// What tells one dead state from another; `None` where the unit lives.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Dead { outcome, control, is_on_bus, from, .. } => {
                // A spinning loop is known by where it begins; an idle main loop's place says nothing.
                let from = if *outcome == Outcome::Parked { None } else { *from };
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
