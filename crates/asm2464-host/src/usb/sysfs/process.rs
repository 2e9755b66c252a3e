//! Processes that have a USB device open. Source: proc_pid_fd(5), proc_pid_comm(5).

use std::fs;

use asm2464::escape::Escape as _;

use super::{Sysfs, names, read};

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
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
}
