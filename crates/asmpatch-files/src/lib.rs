//! Files that others may have put there or may read at the same time, for asmpatch's crates: read up to a limit and never
//! through a link ([`file`]), written completely or not at all ([`atomic`]), and TOML whose errors show their place
//! ([`toml_file`]).

pub mod atomic;
pub mod file;
pub mod toml_file;

use asm2464::{escape, interrupt};
