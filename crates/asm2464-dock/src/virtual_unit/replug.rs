//! Asks the process that serves a unit for a power cycle, through a file in the unit's folder.
//!
//! A file needs no port, no rights except the folder's, and no listener. The server polls for the file and answers by
//! removing it ([`Requests`]).

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use asm2464::interrupt::{Interrupt, Interrupted};
use thiserror::Error;

use super::folder::VirtualOpenError;
use super::unit::VirtualUnit;

/// Time that the server may take to answer. It waits at most a tenth of a second between two polls.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reasons a unit was not replugged.
#[derive(Debug, Error)]
pub enum ReplugError {
    /// No process has the unit open.
    #[error("no process serves the virtual unit in {}", dir.display())]
    NotServed {
        /// The unit's folder.
        dir: PathBuf,
    },
    /// The process that has the unit does not answer.
    #[error("the process that has the virtual unit in {} did not replug it within {PATIENCE:?}", dir.display())]
    NoAnswer {
        /// The unit's folder.
        dir: PathBuf,
    },
    /// The unit's folder could not be accessed.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The failed operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The unit could not be opened.
    #[error(transparent)]
    Open(#[from] VirtualOpenError),
    /// You pressed Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(ReplugError {
    NotServed => Refused "asm2464::virtual_unit::not_served",
    NoAnswer => Device "asm2464::virtual_unit::not_replugged",
    File => System "asm2464::virtual_unit::replug_file",
    Open(cause) => cause,
    Interrupted(cause) => cause,
});

/// Asks the server of the unit in `dir` to replug it, and waits until it has.
///
/// # Errors
/// [`ReplugError`].
pub fn replug(dir: &Path, interrupt: Interrupt<'_>) -> Result<(), ReplugError> {
    match VirtualUnit::is_in_use(dir) {
        Ok(true) => {}
        Ok(false) => return Err(ReplugError::NotServed { dir: dir.to_owned() }),
        Err(error) => return Err(error.into()),
    }
    let path = dir.join(REQUEST_FILE);
    let failed = |what| {
        let path = path.clone();
        move |source| ReplugError::File { what, path, source }
    };
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => {}
        // Another process has asked, too. One replug serves both.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(failed("write")(source)),
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(failed("look at")(source)),
            Ok(_) => {}
        }
        let stopped = interrupt.check();
        if stopped.is_err() || Instant::now() >= until {
            // Withdraw the request, or the next server would find it.
            let _ = fs::remove_file(&path);
            stopped?;
            return Err(ReplugError::NoAnswer { dir: dir.to_owned() });
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
pub(super) struct Requests {
    path: PathBuf,
    looked_at: Instant,
}

impl Requests {
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
