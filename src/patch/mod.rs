//! Declarative patches: their files, which of them fit together, applying them to an image, and undoing that.
//!
//! A patch is a TOML file that a reader who knows no Rust can follow: which bytes it expects in which image, which it
//! writes, and why. Everything here is pure: patches come in as text, images as values, and a [`Receipt`] records what was
//! done.
//!
//! # The trip
//!
//! ```text
//!  *.toml ─► Patch ─► Library ─┐
//!                              ├─► PatchSet ─► Patched { image, Receipt }
//!  Image, SHA-256 ─► identify ─┘        ▲
//!                        │  Selection ──┘
//!                        └─► Identified { base, original, patches } ─► unpatch, verify ─► Verification
//! ```
//!
//! - A [`Patch`] has [`Hunk`]s for each image that it fits, and [`ConfigEdits`] for the configuration blocks. Its
//!   [`PatchEffect`]s say what asmpatch must know of an image that contains it; asmpatch never looks at a patch's ID.
//! - A [`Library`] is the known patches and images: the embedded ones, and those that the user adds.
//! - A [`PatchSet`] is patches that go together on one image: same base, no hunk over another, no field set twice.
//! - [`identify()`] finds what an image was made from, by taking the known patches out again and comparing digests. So
//!   `unpatch` and `verify` need no original.
//! - [`verify()`] compares an image with what it should be, and explains every byte that differs, if it can.
//!
//! # Why it is so
//!
//! - **A hunk names the bytes that it replaces.** A patch that meets other bytes stops, and nothing is guessed: the same
//!   code is at another place in the vendor's next version.
//! - **An image is known by its SHA-256, never by its version.** Another image of a known version is somebody's change.
//! - **A patch file beside an image vouches for nothing.** It explains bytes, but whoever changed the image could have
//!   written it, so such an image doesn't verify.
//! - **Addresses have types.** A file offset, an offset in the body and a code address differ by the header and by banks,
//!   and mixing them up breaks an image.
//!
//! Tried and dropped: patches that find their place by a signature in any version. No runtime drives a version other than
//! 240417, and a match by signature is no proof that the code around it is the same.
//!
//! The [crate's page](crate) has an example that patches the practice image.

mod config_edits;
mod definition;
mod elf;
mod identify;
mod library;
mod on_image;
mod receipt;
mod set;
mod verify;

pub use config_edits::{ConfigEdits, ConfigValue};
pub use definition::{Hunk, ImageHunks, Patch, PatchEffect};
pub use elf::hunks_from_elf;
pub use identify::{Identified, identify, not_a_base, unpatch};
pub use library::{KnownOpen, Library};
pub use on_image::{HunkOnImage, PatchOnImage};
pub use receipt::{Receipt, ReceiptImage, ReceiptPatch};
pub use set::{PatchSet, Patched, Selection};
pub use verify::{Difference, Expectations, Originals, Verification, verify, verify_file};
