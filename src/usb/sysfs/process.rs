//! Processes that have a USB device open. Source: proc_pid_fd(5), proc_pid_comm(5).

use std::fmt;
use std::fs;
use std::path::Path;

use crate::escape::Escape as _;

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// The process ID.
    pub pid: u32,
    /// The command's name, which the process itself may have set.
    pub command: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command.shown())
    }
}

/// The processes, except this one, that have `node` open. Only root sees other users' processes.
pub(super) fn with_open(proc: &Path, node: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let mut found: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| *pid != std::process::id() && has_open(&proc.join(pid.to_string()).join("fd"), node))
        .map(|pid| Process {
            pid,
            command: super::read(&proc.join(pid.to_string()).join("comm")).trim_end().to_owned(),
        })
        .collect();
    found.sort();
    found
}

fn has_open(descriptors: &Path, node: &Path) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    entries.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == node))
}
