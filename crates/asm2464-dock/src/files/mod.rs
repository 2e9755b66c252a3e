//! Files that others may have put there or may read at the same time, for asmpatch's crates: read up to a limit and never
//! through a link ([`mod@file`]), written completely or not at all ([`atomic`]) or by a thread of its own ([`queue`]), and
//! TOML whose errors show their place ([`toml_file`]).
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
