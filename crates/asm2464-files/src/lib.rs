#![doc = include_str!("../README.md")]

use std::path::Path;

pub mod atomic;
pub mod file;
pub mod queue;
pub mod staged;
pub mod toml_file;
pub mod user;

/// Returns the folder that has this path's last name. An empty parent means the current folder, which the system does not
/// open under an empty name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether what has this name in a folder, a link itself, is this open file.
#[cfg(unix)]
fn is_in(folder: &std::fs::File, name: &std::ffi::OsStr, open: &std::fs::File) -> bool {
    use rustix::fs::{AtFlags, fstat, statat};
    let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((there, fstat(open)), (Ok(there), Ok(open)) if (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino))
}
