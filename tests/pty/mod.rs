//! A terminal for processes, of which the tests have the other end.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Opens a pseudo-terminal. Returns our end and the command's.
pub fn open() -> io::Result<(File, File)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    Ok((ours.into(), options.open(OsStr::from_bytes(name.to_bytes()))?))
}
