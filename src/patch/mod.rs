//! Declarative patches: their files, which of them fit together, applying them to an image, and undoing that.
//!
//! Everything here is pure: patches come in as text, images as values, and a [`Receipt`] records what was done.

mod apply;
mod config_edits;
mod definition;
mod elf;
mod hunk;
mod instructions;
mod library;
mod receipt;
mod set;
mod verify;

pub use apply::{Identified, Patched, identify, unpatch};
pub use config_edits::{ConfigEdits, ConfigValue};
pub use definition::{DefinitionError, Effect, Patch, PatchedImage};
pub use elf::{ElfError, hunks_from_elf};
pub use hunk::{Hunk, HunkAddress};
pub use instructions::Instructions;
pub use library::{Library, LibraryError};
pub use receipt::{Receipt, ReceiptError, ReceiptImage, ReceiptPatch};
pub use set::{PatchError, PatchSet, Selection};
pub use verify::{Difference, Expectations, Finding, Originals, Verification, verify};
