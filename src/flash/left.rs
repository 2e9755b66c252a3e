//! The state in which a stopped run leaves a unit.

use std::fmt;

use serde::Serialize;

/// What state a unit is in after a run stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Nothing was written.
    Untouched,
    /// Writing was begun, which erases everything first; its end was not seen. How much of it the unit has done can't be
    /// told: a command whose status is lost may have been carried out, or not even begun.
    Incomplete,
    /// The unit took everything; not all was seen to read back.
    Complete,
    /// Everything reads back as it should; the unit has not been restarted.
    Verified,
    /// Everything was written and E8 was sent; the unit has not been seen since.
    Restarted,
    /// It came back in its boot loader.
    BootLoader,
    /// It came back under another identity than planned.
    OtherIdentity,
    /// It came back as planned, but what it runs is not proven.
    Unproven,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untouched => "nothing was written: the unit is as it was",
            Self::Incomplete => {
                "writing was begun, and its end was not seen: the flash may hold no whole firmware. The unit runs on as \
                 long as it has power, and may come up in its boot loader after that, which takes firmware all the same"
            }
            Self::Complete => {
                "everything was written, but it is not known to be right: the unit may come up in its boot loader \
                 at its next restart, which takes firmware all the same"
            }
            Self::Verified => {
                "the new firmware is written and reads back right: the unit runs the old one until its next restart"
            }
            Self::Restarted => "everything was written and the unit was told to restart; it has not been seen since",
            Self::BootLoader => "it runs the boot loader in its ROM, which takes firmware over USB",
            Self::OtherIdentity => {
                "everything was written; the unit has not taken the new identity from its configuration yet"
            }
            Self::Unproven => "it came back under its new identity, but that it runs what was written is not proven",
        })
    }
}
