//! The processes that have a USB device open, or hold a file's lock. Source: proc_pid_fd(5), proc_pid_comm(5),
//! proc_locks(5).

use std::fs::{self, File, Metadata};
use std::path::Path;

use asm2464::escape::Escape as _;

use super::{Sysfs, names, read};

/// A process that has a device open or holds its lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("process {pid} ({})", command.shown())]
pub struct Process {
    /// The process ID.
    pub pid: u32,
    /// The command's name, which the process itself may have set.
    pub command: String,
}

impl Sysfs {
    /// The processes, except this one, that have a USB device open. Only root sees other users' processes.
    pub fn users(&self, bus: u8, address: u8) -> Vec<Process> {
        let node = self.dev.join(format!("bus/usb/{bus:03}/{address:03}"));
        self.processes_with(|descriptor| fs::read_link(descriptor).is_ok_and(|target| target == node))
    }

    /// The processes that hold a lock of flock(2) on a file. Only Linux reports them.
    pub(in crate::usb) fn lock_holders(&self, file: &File) -> Vec<Process> {
        file.metadata().map(|metadata| self.holders_of(&metadata)).unwrap_or_default()
    }

    /// The processes that hold a lock of flock(2) on the file at this path. Opens nothing, and follows no link.
    pub fn lock_holders_at(&self, path: &Path) -> Vec<Process> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => self.holders_of(&metadata),
            _ => Vec::new(),
        }
    }

    fn holders_of(&self, file: &Metadata) -> Vec<Process> {
        let Some(inode) = inode(file).map(|inode| inode.to_string()) else { return Vec::new() };
        let mut holders: Vec<Process> = Vec::new();
        for line in read(&self.proc.join("locks")).lines() {
            // As in `1: FLOCK  ADVISORY  WRITE 708 00:13:20 0 EOF`. Waiting processes have `->` after the number.
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { continue };
            if let Ok(pid) = pid.parse::<u32>()
                && place.rsplit(':').next() == Some(inode.as_str())
            {
                let folder = self.proc.join(pid.to_string());
                // If the process that took the lock has ended, a child that has its file open holds it still.
                let has_it = |descriptor: &Path| fs::metadata(descriptor).is_ok_and(|open| is_same(&open, file));
                let children = if folder.exists() { Vec::new() } else { self.processes_with(has_it) };
                if children.is_empty() {
                    holders.push(Process { pid, command: read(&folder.join("comm")) });
                }
                holders.extend(children);
            }
        }
        holders
    }

    /// The processes, except this one, with an open file that is this one, as far as this process may see. `is_it` takes a
    /// descriptor's path in /proc.
    fn processes_with(&self, is_it: impl Fn(&Path) -> bool) -> Vec<Process> {
        let mut found = Vec::new();
        for name in names(&self.proc) {
            let Ok(pid) = name.parse() else { continue };
            if pid == std::process::id() {
                continue;
            }
            let folder = self.proc.join(&name);
            let descriptors = folder.join("fd");
            if names(&descriptors).iter().any(|name| is_it(&descriptors.join(name))) {
                found.push(Process { pid, command: read(&folder.join("comm")) });
            }
        }
        found.sort();
        found
    }
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_one: &Metadata, _other: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Some(metadata.ino())
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> Option<u64> {
    None
}
