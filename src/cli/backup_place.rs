//! Where backups go: the option, and the folder that it or the environment names.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use thiserror::Error;

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
    /// [`NoBackupPlace`] if the system names no data folder.
    pub fn folder(&self) -> Result<PathBuf, NoBackupPlace> {
        let from_environment = || env::var_os("ASMPATCH_BACKUP_DIR").filter(|folder| !folder.is_empty());
        let named = self.backup_dir.clone().or_else(|| from_environment().map(PathBuf::from));
        if let Some(folder) = named {
            return Ok(folder);
        }
        default_folder()
    }
}

/// Returns the platform's folder for backups.
fn default_folder() -> Result<PathBuf, NoBackupPlace> {
    let strategy = etcetera::choose_base_strategy().map_err(|error| NoBackupPlace(error.to_string()))?;
    Ok(strategy.data_dir().join("asmpatch").join("backups"))
}

/// Returns the folders for a backup whose own folder can't be written, the best first.
pub fn elsewhere() -> Vec<PathBuf> {
    default_folder().ok().into_iter().chain(env::current_dir()).chain([env::temp_dir()]).collect()
}

/// The system names no data folder.
#[derive(Debug, Error)]
#[error("no data folder for backups: {0}")]
pub struct NoBackupPlace(String);

asm2464::coded!(NoBackupPlace => Usage "asmpatch::backup::no_place");
