//! The state in which a stopped run leaves a unit.

use derive_more::Display;
use serde::Serialize;

/// State of a unit after a stopped run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Nothing was written.
    #[display("nothing was written: the unit is as it was")]
    Untouched,
    /// Nothing was written, but the flash's block protection, which was set, may be cleared.
    #[display(
        "no firmware was written: the unit runs as before. Its flash's block protection, which was set, may be cleared"
    )]
    Unprotected,
    /// The write began, which erases everything first, and did not finish. How much the unit has done is not known: a
    /// command whose status is lost may have been carried out, or not even begun.
    #[display(
        "the write didn't finish, so the image may be incomplete. The unit runs on while it has power, and may come \
         up in its boot loader after that, which still takes firmware"
    )]
    Incomplete,
    /// Everything was written, but not everything was read back.
    #[display(
        "everything was written, but not verified: the unit may come up in its boot loader at its next restart, \
         which still takes firmware"
    )]
    Complete,
    /// Everything was written and read back; the unit has not been restarted.
    #[display("the new firmware is written and verified: the unit runs the old one until its next restart")]
    Verified,
    /// Everything was written and the unit was told to restart; it has not been seen since.
    #[display("everything was written, and the unit was told to restart; it hasn't come back")]
    Restarted,
    /// The unit came back in its boot loader.
    #[display("it runs the boot loader in its ROM, which takes firmware over USB")]
    BootLoader,
    /// The unit came back under another identity than planned.
    #[display("everything was written; the unit hasn't taken the new identity from its configuration yet")]
    OtherIdentity,
    /// The unit came back as planned, but it is not proven that it runs what was written.
    #[display("it came back under its new identity, but asmpatch couldn't confirm that it runs what was written")]
    Unproven,
}
