//! Asks the process that serves a unit for a power cycle, through a file in the unit's folder.
//!
//! A file needs no port, no rights except the folder's, and no listener. The server polls for the file and answers by
//! removing it ([`ReplugRequests`]).

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};

use super::unit::VirtualUnit;

/// Time that the server may take to answer. It waits at most a tenth of a second between two polls.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the server of the unit in `dir` to replug it, and waits until it has.
///
/// # Errors
/// `asm2464::virtual_unit::not_served`: no process has the unit. `asm2464::virtual_unit::not_replugged`: that process
/// does not answer. `asm2464::virtual_unit::replug_file`: the folder can't be accessed. Those of
/// [`VirtualUnit::is_in_use`]; [`Kind::Interrupted`].
pub fn replug(dir: &Path, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    let shown = dir.display();
    if !VirtualUnit::is_in_use(dir)? {
        let label = Kind::Refused.code("asm2464::virtual_unit::not_served");
        return Err(Failure::new(label, format!("no process serves the virtual unit in {shown}")).into());
    }
    let path = dir.join(REQUEST_FILE);
    let failed = |what, error: io::Error| {
        let label = Kind::System.code("asm2464::virtual_unit::replug_file");
        Failure::new(label, format!("cannot {what} {}", path.display())).because(error)
    };
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => {}
        // Another process has asked, too. One replug serves both.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("write", error).into()),
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("look at", error).into()),
            Ok(_) => {}
        }
        let stopped = interrupt.check();
        if stopped.is_err() || Instant::now() >= until {
            // Withdraw the request, or the next server would find it.
            let _ = fs::remove_file(&path);
            stopped?;
            let label = Kind::Device.code("asm2464::virtual_unit::not_replugged");
            let message =
                format!("the process that has the virtual unit in {shown} did not replug it within {PATIENCE:?}");
            return Err(Failure::new(label, message).into());
        }
        std::thread::sleep(TICK);
    }
}

/// Name of the request file.
pub(super) const REQUEST_FILE: &str = "replug";
/// Interval at which the server and the command poll for the file.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The server's side of a replug request.
#[derive(Debug)]
pub(super) struct ReplugRequests {
    path: PathBuf,
    looked_at: Instant,
}

impl ReplugRequests {
    /// Watches the folder of a unit. Ignores a request that is already there, because it was meant for an earlier
    /// server.
    pub(super) fn of(dir: &Path) -> Self {
        let path = dir.join(REQUEST_FILE);
        let _ = fs::remove_file(&path);
        Self { path, looked_at: Instant::now() }
    }

    /// Takes a pending request, which answers it. Returns whether there was one.
    pub(super) fn take(&mut self) -> bool {
        if self.looked_at.elapsed() < TICK {
            return false;
        }
        self.looked_at = Instant::now();
        fs::remove_file(&self.path).is_ok()
    }
}
