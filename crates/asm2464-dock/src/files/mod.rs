//! Files, for all of asmpatch's crates: reading up to a size limit ([`mod@file`]), writing completely or not at all
//! ([`atomic`]) or by a thread of its own ([`queue`]), and TOML with errors that show their place ([`toml_file`]).
//!
//! ```
//! use asm2464_dock::files::{atomic, file};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("serial");
//! atomic::write(&path, b"0123")?;
//! assert_eq!(file::read_regular(&path, 4)?, b"0123");
//! assert!(file::read_regular(&path, 3).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod atomic;
pub mod file;
pub mod queue;
pub mod toml_file;
