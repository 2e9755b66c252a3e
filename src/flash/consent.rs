//! What the user agrees to, and what a printed command has to agree to.

use derive_more::Display;

/// Permissions that the user gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Write a unit that can't be backed up.
    pub no_backup: bool,
    /// Write an image that is not known to work.
    pub unproven: bool,
    /// Give a unit an identity that is not its own.
    pub clone_identity: Waivers,
    /// Change the [line](asm2464::firmware::FirmwareVersion::line) of the version.
    pub other_line: bool,
    /// Write even if the unit already holds the plan.
    pub force: bool,
    /// Nobody can be asked: anything that needs a question is refused.
    pub unasked: bool,
}

/// A concern about identities that the user waives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum Waiver {
    /// The unit gets another unit's serial number, or loses its own.
    #[display("serial")]
    Serial,
    /// The unit gets another unit's USB4 identity, or loses its own.
    #[display("usb4")]
    Usb4,
    /// The unit gets the known or a neutral identity although a backup may have its own.
    #[display("own-backup")]
    OwnBackup,
    /// Nobody knows whether another unit has the same serial number.
    #[display("neighbours")]
    Neighbours,
}

impl Waiver {
    /// All concerns.
    pub const ALL: [Self; 4] = [Self::Serial, Self::Usb4, Self::OwnBackup, Self::Neighbours];
}

/// The concerns that the user waives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waivers(u8);

impl Waivers {
    /// All of them.
    pub const ALL: Self = Self((1 << Waiver::ALL.len()) - 1);

    /// Waives this, too.
    #[must_use]
    pub const fn and(self, waiver: Waiver) -> Self {
        Self(self.0 | 1 << waiver as u8)
    }

    /// Whether this is waived.
    pub const fn has(self, waiver: Waiver) -> bool {
        self.0 & 1 << waiver as u8 != 0
    }
}

/// A permission of [`Allowed`] that a command after a run may need, in the order in which commands have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// [`Allowed::unproven`].
    Unproven,
    /// [`Allowed::clone_identity`], of this.
    CloneIdentity(Waiver),
    /// [`Allowed::other_line`].
    OtherLine,
}
