//! Processes that have a USB device open or hold a file's lock. Source: proc_pid_fd(5), proc_pid_comm(5),
//! proc_locks(5).

use std::fs::{self, File, Metadata};

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
        let holder = |name: &String| {
            let pid = name.parse().ok().filter(|pid| *pid != std::process::id())?;
            let folder = self.proc.join(name);
            let descriptors = folder.join("fd");
            let is_node = |name: &String| fs::read_link(descriptors.join(name)).is_ok_and(|target| target == node);
            let has_open = names(&descriptors).iter().any(is_node);
            has_open.then(|| Process { pid, command: read(&folder.join("comm")) })
        };
        let mut found: Vec<Process> = names(&self.proc).iter().filter_map(holder).collect();
        found.sort();
        found
    }

    /// The processes that hold a lock of flock(2) on a file. Only Linux reports them.
    pub(in crate::usb) fn lock_holders(&self, file: &File) -> Vec<Process> {
        let inode = file.metadata().ok().and_then(|metadata| inode(&metadata));
        inode.map(|inode| self.holders_of(inode)).unwrap_or_default()
    }

    /// The processes that hold a lock of flock(2) on the file with this inode.
    pub(super) fn holders_of(&self, inode: u64) -> Vec<Process> {
        let holder = |line: &str| {
            // As in `1: FLOCK  ADVISORY  WRITE 708 00:13:20 0 EOF`. Waiting processes have `->` after the number.
            let [_, "FLOCK", _, _, pid, place, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            let is_it = place.rsplit(':').next()?.parse() == Ok(inode);
            let pid = pid.parse().ok().filter(|_| is_it)?;
            Some(Process { pid, command: read(&self.proc.join(pid.to_string()).join("comm")) })
        };
        read(&self.proc.join("locks")).lines().filter_map(holder).collect()
    }
}

#[cfg(unix)]
pub(super) fn inode(metadata: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Some(metadata.ino())
}

#[cfg(not(unix))]
pub(super) fn inode(_: &Metadata) -> Option<u64> {
    None
}
