//! Requests for a power cycle in a unit's folder: how the unit's server finds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
