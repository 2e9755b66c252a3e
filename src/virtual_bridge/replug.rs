//! Asks the process that serves a unit to take its power away and give it back: by a file in the unit's folder.
//!
//! A file needs no port, no rights but the folder's, and nobody who listens: the server looks for it, and removing it is
//! the answer.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use miette::Diagnostic;
use thiserror::Error;

use super::open::VirtualOpenError;
use super::unit::VirtualBridge;
use crate::interrupt::{Interrupt, Interrupted};

/// The file that asks.
const REQUEST_FILE: &str = "replug";
/// How often the server and the command look for the file.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How long the server may take: it looks between two waits of at most a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a unit was not replugged.
#[derive(Debug, Error, Diagnostic)]
pub enum ReplugError {
    /// Nobody has the unit open.
    #[error("no process serves the virtual bridge in {}", dir.display())]
    #[diagnostic(code(asmpatch::virtual_bridge::not_served))]
    NotServed {
        /// The unit's folder.
        dir: PathBuf,
    },
    /// The process that has the unit does not answer.
    #[error("the process that has the virtual bridge in {} did not replug it within {PATIENCE:?}", dir.display())]
    #[diagnostic(code(asmpatch::virtual_bridge::not_replugged))]
    NoAnswer {
        /// The unit's folder.
        dir: PathBuf,
    },
    /// The folder.
    #[error("cannot {what} {}", path.display())]
    #[diagnostic(code(asmpatch::virtual_bridge::replug_file))]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The unit itself.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Open(#[from] VirtualOpenError),
    /// Ctrl-C.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Asks the server of the unit in `dir` to replug it, and waits until it has.
///
/// # Errors
/// [`ReplugError`].
pub fn replug(dir: &Path, interrupt: Interrupt<'_>) -> Result<(), ReplugError> {
    match VirtualBridge::is_in_use(dir) {
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
        // Somebody else asks: one replug serves both.
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
            // Taken back: else the next server would find it.
            let _ = fs::remove_file(&path);
            stopped?;
            return Err(ReplugError::NoAnswer { dir: dir.to_owned() });
        }
        std::thread::sleep(TICK);
    }
}

/// The server's side: where the request appears.
#[derive(Debug)]
pub(super) struct Requests {
    path: PathBuf,
    looked_at: Instant,
}

impl Requests {
    /// Those of the unit in a folder. One that is there already was meant for an earlier server.
    pub(super) fn of(dir: &Path) -> Self {
        let path = dir.join(REQUEST_FILE);
        let _ = fs::remove_file(&path);
        Self { path, looked_at: Instant::now() }
    }

    /// Whether a replug is asked for; taking the request answers it.
    pub(super) fn take(&mut self) -> bool {
        if self.looked_at.elapsed() < TICK {
            return false;
        }
        self.looked_at = Instant::now();
        fs::remove_file(&self.path).is_ok()
    }
}
