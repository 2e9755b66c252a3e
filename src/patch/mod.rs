//! Declarative patches: their files, which of them fit together, applying them to an image, and undoing that.
//!
//! Everything here is pure: patches come in as text, images as values, and a [`Receipt`] records what was done.

mod apply;
mod config_edits;
mod definition;
mod elf;
mod hunk;
mod identify;
mod library;
mod on_image;
mod receipt;
mod set;
mod verify;

pub use apply::Patched;
pub use config_edits::{ConfigEdits, ConfigValue};
pub use definition::{Effect, Patch, PatchedImage};
pub use elf::hunks_from_elf;
pub use hunk::{Hunk, HunkAddress};
pub use identify::{Identified, identify, not_a_base, unpatch};
pub use library::Library;
pub use on_image::{HunkOnImage, PatchOnImage};
pub use receipt::{Receipt, ReceiptImage, ReceiptPatch};
pub use set::{PatchSet, Selection};
pub use verify::{Difference, Expectations, Originals, Verification, verify, verify_file};
