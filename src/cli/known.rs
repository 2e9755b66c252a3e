//! Known images, patches and units: the options that add to them, and the loading.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::devices::Devices;
use crate::failure::{AnyFailure, Failure};
use crate::fetch::{Cache, ImageVersion};
use crate::patch::{Library, Patch, Receipt};
use crate::shell;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::UsbId;
use asm2464_chip::practice;

use super::input;

/// The option that adds patches to the embedded ones.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PatchDirs {
    /// Add the patches in this folder, one .toml file each. Repeatable.
    #[arg(long = "patch-dir", value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
}

impl PatchDirs {
    /// Loads the embedded patches, those in the folders, and the vendor images of the embedded manifests.
    ///
    /// # Errors
    /// Fails if a folder or file can't be read or a patch is wrong. Errors name the file.
    pub fn load(&self) -> Result<Library, AnyFailure> {
        let mut library = crate::embedded::patches()?;
        for manifest in crate::embedded::manifests(&[])?.iter() {
            // Open firmware takes no patches. What it enumerates as identifies its build.
            if let ImageVersion::Vendor(version) = manifest.version {
                library.know(manifest.sha256, &manifest.id, version);
            }
        }
        let practice = practice::image();
        library.know(Sha256Digest(practice.sha256()), "practice", practice.version());
        for (origin, text) in input::read_toml_files(&self.dirs)? {
            // Patched images and their receipts may be in the same folder.
            if Receipt::parse(&origin, &text).is_err() {
                library.add(&origin, &text)?;
            }
        }
        Ok(library)
    }

    /// Loads the same, and the patches that a receipt names, from the folder of the file `beside`.
    ///
    /// # Errors
    /// As [`PatchDirs::load`].
    pub fn load_with(&self, receipt: Option<&Receipt>, beside: &Path) -> Result<Library, AnyFailure> {
        let mut library = self.load()?;
        receipt.map_or(Ok(()), |receipt| add_named(&mut library, receipt, beside))?;
        Ok(library)
    }

    /// Returns the options that a printed command needs to know the same patches, each after a space.
    pub fn suffix(&self) -> String {
        let dirs = self.dirs.iter().map(|dir| format!(" --patch-dir {}", shell::path(dir)));
        dirs.collect()
    }
}

/// Adds the patches that a receipt names, from the folder of the file `beside`. Missing ones are reported when the
/// image is verified. The user did not name these files; they came with the image. So they show what was changed, but
/// an image that contains such a patch does not verify.
///
/// # Errors
/// Fails if such a file can't be read or is not a patch.
pub fn add_named(library: &mut Library, receipt: &Receipt, beside: &Path) -> Result<(), AnyFailure> {
    for (id, name) in &receipt.files {
        let path = beside.with_file_name(name);
        if library.get(id).is_none() && path.symlink_metadata().is_ok() {
            library.add_unvouched(&path.display().to_string(), &input::read_own_text(&path)?)?;
        }
    }
    Ok(())
}

/// Returns, for a receipt, the id and the file name of each patch that asmpatch does not contain.
///
/// # Errors
/// Fails if the embedded patches can't be loaded, which succeeded before.
pub fn own_files(patches: &[&Patch]) -> Result<Vec<(String, String)>, AnyFailure> {
    let embedded = crate::embedded::patches()?;
    let own = patches.iter().filter(|patch| embedded.get(&patch.id).is_none());
    let named = own.filter_map(|patch| {
        let name = Path::new(&patch.origin).file_name()?;
        Some((patch.id.clone(), name.to_string_lossy().into_owned()))
    });
    Ok(named.collect())
}

/// The options that add USB IDs of ASM2464PD units to the embedded ones.
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
    /// Loads the embedded IDs, those in the folders, and those given on the command line.
    ///
    /// # Errors
    /// Fails if a folder or file can't be read or an entry is wrong. Errors name the file.
    pub fn load(&self) -> Result<Arc<Devices>, AnyFailure> {
        Ok(Arc::new(self.load_own()?))
    }

    fn load_own(&self) -> Result<Devices, AnyFailure> {
        let mut devices = Devices::shipped()?;
        for (origin, text) in input::read_toml_files(&self.device_dirs)? {
            devices.add(&origin, &text)?;
        }
        self.usb_ids.iter().for_each(|id| devices.name(*id));
        Ok(devices)
    }

    /// Returns the options that a printed command needs to find the same units, each after a space.
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

/// The options about units, for the commands that open them.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct KnownUnits {
    #[command(flatten)]
    ids: DeviceIds,

    /// Take the unit although asmpatch can't check whether this disk behind it, such as sda, is in use: in a container
    /// without the disk's node. Repeatable.
    #[arg(long = "unchecked-disk", value_name = "DISK")]
    unchecked_disks: Vec<String>,
}

impl KnownUnits {
    /// Loads the IDs, as [`DeviceIds::load`], and the disks that the user vouches for.
    ///
    /// # Errors
    /// As for [`DeviceIds::load`].
    pub fn load(&self) -> Result<Arc<Devices>, AnyFailure> {
        let mut devices = self.ids.load_own()?;
        self.unchecked_disks.iter().for_each(|disk| devices.vouch_for_disk(disk));
        Ok(Arc::new(devices))
    }

    /// Returns the options that a printed command needs to find and open the same units, each after a space.
    pub fn suffix(&self) -> String {
        let disks = self.unchecked_disks.iter();
        let disks = disks.map(|disk| format!(" {}", shell::word(format!("--unchecked-disk={disk}"))));
        self.ids.suffix() + &disks.collect::<String>()
    }
}

/// Returns the cache of images: in the folder that `--cache-dir` or the environment names, or in the platform's default.
///
/// # Errors
/// Fails if the system names no cache folder.
pub fn cache(named: Option<&Path>) -> Result<Cache, Failure> {
    let from_environment = || env::var_os("ASMPATCH_CACHE_DIR").filter(|folder| !folder.is_empty());
    let folder = named.map(Path::to_owned).or_else(|| from_environment().map(PathBuf::from));
    folder.map_or_else(Cache::of_user, |folder| Ok(Cache::at(&folder)))
}
