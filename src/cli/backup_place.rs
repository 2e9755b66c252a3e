//! Where backups go: the option, and the folder that it or the environment names.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use asm2464::Kind;
use etcetera::BaseStrategy as _;

/// The option that says where backups go.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct BackupPlace {
    /// Create the backup's folder here; by default in the folder that ASMPATCH_BACKUP_DIR names, or in
    /// asmpatch/backups in the platform's data folder.
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,
}

/// Returns the option that names this folder.
pub fn option(folder: &Path) -> OsString {
    let mut option = OsString::from("--backup-dir=");
    option.push(folder);
    option
}

impl BackupPlace {
    /// Returns the option as given, for printing the command again; `None` if it was not given.
    pub fn option(&self) -> Option<OsString> {
        self.backup_dir.as_deref().map(option)
    }

    /// Returns the backup folder: from the option, the environment, or the platform's default.
    ///
    /// # Errors
    /// Fails if the system names no data folder.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let from_environment = || env::var_os("ASMPATCH_BACKUP_DIR").filter(|folder| !folder.is_empty());
        let named = self.backup_dir.clone().or_else(|| from_environment().map(PathBuf::from));
        if let Some(folder) = named {
            return Ok(folder);
        }
        default_folder()
    }
}

/// Returns the platform's folder for backups.
fn default_folder() -> Result<PathBuf, Failure> {
    let label = Kind::Usage.code("asmpatch::backup::no_place");
    let strategy = etcetera::choose_base_strategy()
        .map_err(|error| Failure::new(label, format!("no data folder for backups: {error}")))?;
    Ok(strategy.data_dir().join("asmpatch").join("backups"))
}

/// Returns the folders for a backup whose own folder can't be written, the best first. None is the system's temporary
/// folder, which a restart empties: the backup may be the only copy of a unit's identity.
pub fn elsewhere() -> Vec<PathBuf> {
    let folders = default_folder().ok().into_iter().chain(env::current_dir()).chain(etcetera::home_dir());
    folders.filter(|folder| *folder != env::temp_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_backup_goes_where_a_restart_removes_it() {
        let folders = elsewhere();
        assert!(folders.contains(&env::current_dir().unwrap()) && !folders.contains(&env::temp_dir()), "{folders:?}");
    }
}
