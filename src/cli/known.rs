//! What is known of images, patches and units: the arguments that add to it, and the loading.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Context, input};
use crate::devices::Devices;
use crate::failure::AnyFailure;
use crate::fetch::{Cache, CacheError, Manifests};
use crate::firmware::UsbId;
use crate::patch::Library;
use crate::shell;

/// Where more patches are, beside those in the binary.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PatchDirs {
    /// Add the patches in this folder, one .toml file each. Repeatable.
    #[arg(long = "patch-dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

impl PatchDirs {
    /// The folders, as given.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The embedded patches, those in the folders, and the images of the manifests.
    ///
    /// # Errors
    /// Unreadable folders and files, and patches that are wrong, each with its file's name.
    pub fn load(&self, manifests: &Manifests) -> Result<Library, AnyFailure> {
        let mut library = Library::embedded()?;
        for manifest in manifests.iter() {
            library.know(manifest.sha256, &manifest.id);
        }
        for dir in &self.dirs {
            for (path, text) in input::read_toml_files(dir)? {
                library.add(&path.display().to_string(), &text)?;
            }
        }
        Ok(library)
    }
}

/// Which USB IDs are taken for ASM2464PD units, beside those in the binary.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceIds {
    /// Treat devices with this USB ID as ASM2464PD units in this run: for a dock whose ID `asmpatch list --known`
    /// doesn't show. Repeatable.
    #[arg(long = "usb-id", value_name = "VID:PID")]
    usb_ids: Vec<UsbId>,

    /// Add the docks' USB IDs in this folder's .toml files. Repeatable.
    #[arg(long = "devices-dir", value_name = "DIR")]
    device_dirs: Vec<PathBuf>,
}

impl DeviceIds {
    /// The IDs in the binary, those in the folders, and those that are named.
    ///
    /// # Errors
    /// Unreadable folders and files, and entries that are wrong, each with its file's name.
    pub fn load(&self) -> Result<Arc<Devices>, AnyFailure> {
        let mut devices = Devices::embedded()?;
        for dir in &self.device_dirs {
            for (path, text) in input::read_toml_files(dir)? {
                devices.add(&path.display().to_string(), &text)?;
            }
        }
        self.usb_ids.iter().for_each(|id| devices.name(*id));
        Ok(Arc::new(devices))
    }

    /// What a command that is printed needs behind it, so that it finds the same units: the options, each after a space.
    pub fn suffix(&self) -> String {
        let ids = self.usb_ids.iter().map(|id| format!(" --usb-id={id}"));
        let dirs = self.device_dirs.iter().map(|dir| {
            let mut option = OsString::from("--devices-dir=");
            option.push(dir);
            format!(" {}", shell::word(option))
        });
        ids.chain(dirs).collect()
    }
}

/// The cache that `asmpatch download` fills without `--cache-dir`: what the environment says, the configuration file, or the
/// platform's.
///
/// # Errors
/// Where the system names no cache folder.
pub fn cache(context: &Context) -> Result<Cache, CacheError> {
    match (env::var_os("ASMPATCH_CACHE_DIR"), context.settings().cache_dir()) {
        (Some(folder), _) if !folder.is_empty() => Ok(Cache::at(Path::new(&folder))),
        (_, Some(folder)) => Ok(Cache::at(folder)),
        _ => Cache::of_user(),
    }
}
