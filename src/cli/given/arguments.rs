//! The options that several commands share: known images, patches and units; the unit, its transport and the capture of
//! its traffic; where backups go.

use std::collections::HashSet;
use std::env;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asm2464::escape::Escape as _;
use asm2464::firmware::UsbId;
use asm2464::{AnyFailure, Failure, Kind, TransportKind};
use asm2464_files::folder_of;
use asm2464_files::queue::QueueEnd;
use asm2464_host::bridge::{Location, Port, UnitInfo};
use clap::ValueEnum;
use etcetera::BaseStrategy as _;

use crate::cli::given::user_files;
use crate::cli::words::ask;
use crate::cli::words::interrupt;
use crate::devices::Devices;
use crate::fetch::Cache;
use crate::flash::backup_folder::BackupPlaces;
use crate::flash::job::NamedPort;
use crate::patch::{Library, Patch, Receipt};
use crate::pcap::Capture;
use crate::unit::{self, Live, Purpose, Selector, Unit};

/// The option that adds patches to the embedded ones.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PatchDirs {
    /// Add the patches in this folder, one .toml file each. Repeatable.
    #[arg(long = "patch-dir", value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
}

impl PatchDirs {
    /// Loads what is [embedded](crate::embedded::library), and the patches in the folders.
    ///
    /// # Errors
    /// Fails if a folder or file can't be read or a patch is wrong. Errors name the file.
    pub fn load(&self) -> Result<Library, AnyFailure> {
        let mut library = crate::embedded::library()?;
        for (origin, text) in user_files::read_toml_files(&self.dirs)? {
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
        if let Some(receipt) = receipt {
            add_named(&mut library, receipt, beside)?;
        }
        Ok(library)
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
            library.add_unvouched(&path.display().to_string(), &user_files::read_own_text(&path)?)?;
        }
    }
    Ok(())
}

/// Returns, for a receipt, the id and the file name of each patch that asmpatch does not contain.
pub fn own_files(patches: &[&Patch]) -> Vec<(String, String)> {
    let own = patches.iter().filter(|patch| !crate::embedded::has_patch(&patch.id));
    let named = own.filter_map(|patch| {
        let name = Path::new(&patch.origin).file_name()?;
        Some((patch.id.clone(), name.to_string_lossy().into_owned()))
    });
    named.collect()
}

/// The options that add USB IDs of ASM2464PD units to the known ones.
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
    /// Loads the known IDs, those in the folders, and those given on the command line.
    ///
    /// # Errors
    /// Fails if a folder or file can't be read or an entry is wrong. Errors name the file.
    pub fn load(&self) -> Result<Devices, AnyFailure> {
        let mut devices = Devices::shipped();
        for (origin, text) in user_files::read_toml_files(&self.device_dirs)? {
            devices.add(&origin, &text)?;
        }
        self.usb_ids.iter().for_each(|id| devices.name(*id));
        Ok(devices)
    }
}

/// The options about units, for the commands that open them.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct UnitArgs {
    #[command(flatten)]
    ids: DeviceIds,

    /// Take the unit although asmpatch can't check whether this disk behind it, such as sda, is in use: in a container
    /// without the disk's node. Repeatable.
    #[arg(long = "unchecked-disk", value_name = "DISK")]
    unchecked_disks: Vec<String>,
}

impl UnitArgs {
    /// Loads the IDs, as [`DeviceIds::load`], and the disks that the user vouches for.
    ///
    /// # Errors
    /// As for [`DeviceIds::load`].
    pub fn load(&self) -> Result<Arc<Devices>, AnyFailure> {
        let mut devices = self.ids.load()?;
        self.unchecked_disks.iter().for_each(|disk| devices.vouch_for_disk(disk));
        Ok(Arc::new(devices))
    }
}

/// Returns the cache of images: in the folder that `--cache-dir` or the environment names, or in the platform's default.
///
/// # Errors
/// Fails if the system names no cache folder.
pub fn cache(named: Option<&Path>) -> Result<Cache, Failure> {
    folder_named(named, "ASMPATCH_CACHE_DIR").map_or_else(Cache::of_user, |folder| Ok(Cache::at(&folder)))
}

/// Returns the folder that an option names, or else this variable of the environment. An empty variable names none.
fn folder_named(option: Option<&Path>, variable: &str) -> Option<PathBuf> {
    let from_environment = || env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    option.map(Path::to_owned).or_else(from_environment)
}

/// The value of `--device`.
pub const UNIT: &str = "PORT|SERIAL|virtual[:DIR]";

/// Selects a unit.
#[derive(Debug, Clone, clap::Args)]
pub struct PortArgs {
    /// The unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder. With one unit
    /// connected it can be left out.
    #[arg(long, value_name = UNIT, env = "ASMPATCH_DEVICE")]
    pub device: Option<Selector>,

    #[command(flatten)]
    /// The IDs that are taken for units.
    pub ids: UnitArgs,

    #[command(flatten)]
    /// Where its traffic is recorded.
    pub pcap: PcapArgs,
}

impl PortArgs {
    /// Opens the unit's port and starts the capture of its traffic if one is requested. The capture must outlive the
    /// port.
    ///
    /// # Errors
    /// As for [`unit::port`]; also fails if a device file is wrong or the capture can't be written.
    pub fn open(&self) -> Result<(Recording<'_>, Box<dyn Port>), AnyFailure> {
        let recording = self.pcap.start()?;
        let port = self.port(recording.capture())?;
        Ok((recording, port))
    }

    /// Opens the unit's port; `capture` records it.
    ///
    /// # Errors
    /// As for [`unit::port`]; also fails if a device file is wrong.
    pub fn port(&self, capture: Option<&Capture>) -> Result<Box<dyn Port>, AnyFailure> {
        let devices = self.ids.load()?;
        opened(&devices, self.device.as_ref(), capture)
    }

    /// Selects the unit; `capture` records it. From here on Ctrl-C only sets a flag, so that the unit is
    /// always released.
    ///
    /// # Errors
    /// As for [`unit::port`]; also fails if a device file is wrong.
    pub fn choose(&self, capture: Option<&Capture>) -> Result<Unit, AnyFailure> {
        interrupt::install();
        let devices = self.ids.load()?;
        Unit::at(opened(&devices, self.device.as_ref(), capture)?)
    }
}

/// Selects one unit or several. A command says in its own words what `--all` does.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct UnitsArgs {
    /// The unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder. With one unit connected it can
    /// be left out. May be given more than once.
    #[arg(long, value_name = UNIT, env = "ASMPATCH_DEVICE")]
    pub device: Vec<Selector>,

    /// All connected units, one after the other.
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    /// The IDs that are taken for units.
    pub ids: UnitArgs,

    #[command(flatten)]
    /// Where their traffic is recorded.
    pub pcap: PcapArgs,
}

impl UnitsArgs {
    /// Opens the units' ports: of all, of those that are named, each once, or of the only one. `capture` records them.
    ///
    /// # Errors
    /// As for [`unit::port`]; also fails if a device file is wrong.
    pub fn ports(&self, capture: Option<&Capture>) -> Result<Vec<Box<dyn Port>>, AnyFailure> {
        let known = self.ids.load()?;
        if !self.device.is_empty() {
            return named_ports(&known, &self.device, capture).map(|(_, port)| port).collect();
        }
        if self.all { unit::ports(&known, capture) } else { Ok(vec![opened(&known, None, capture)?]) }
    }
}

/// Opens the ports of the named units in turn, each once, though it may be named by its port and by its serial number.
/// One that can't be opened has the name that was given. `capture` records them.
pub fn named_ports<'a>(
    known: &'a Arc<Devices>,
    named: &'a [Selector],
    capture: Option<&'a Capture>,
) -> impl Iterator<Item = NamedPort> + 'a {
    let mut names = HashSet::new();
    let mut named_before = Vec::new();
    named.iter().filter_map(move |selector| {
        // A virtual unit can't be opened twice.
        if named_before.contains(&selector) {
            return None;
        }
        named_before.push(selector);
        let port = opened(known, Some(selector), capture);
        let name = port.as_ref().map_or_else(|_| selector.to_string(), |port| port.location().to_string());
        names.insert(name.clone()).then_some((name, port))
    })
}

/// Opens the port of the unit that the selector names. Without one, and with several units, it asks on a terminal which
/// one is meant. Says on a terminal that this has made a new virtual unit: its name may be mistyped.
///
/// # Errors
/// As for [`unit::port`].
pub fn opened(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Box<dyn Port>, AnyFailure> {
    let new = unit::new_virtual(selector);
    let port = match unit::port(known, selector, capture) {
        Err(error) if error.code() == unit::SEVERAL.code && ask::can_choose() => {
            let Some(unit) = asked_for(&unit::list(known)?)? else { return Err(error) };
            // It may have left since, and another one be at its port.
            return Ok(unit::again(known, &unit, capture)?.into_port());
        }
        opened => opened?,
    };
    if let Some(dir) = new
        && std::io::stderr().is_terminal()
    {
        errln!("a new virtual unit in {}", dir.shown());
    }
    Ok(port)
}

/// Asks which of several units is meant; `None` if there are not several, or the user chooses none.
///
/// # Errors
/// Fails on Ctrl-C.
fn asked_for(units: &[UnitInfo]) -> Result<Option<UnitInfo>, AnyFailure> {
    if units.len() < 2 {
        return Ok(None);
    }
    errln!("{} units are connected:", units.len());
    for (number, unit) in (1..).zip(units) {
        errln!("  {number:>2}  {}", unit.to_string().shown());
    }
    Ok(ask::which(units.len(), interrupt::install())?.map(|index| units[index].clone()))
}

/// The value of `--transport`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum TransportArg {
    /// UAS where the unit offers it, else Bulk-Only.
    #[default]
    Auto,
    /// Bulk-Only, which a unit speaks in every state.
    Bot,
    /// UAS: an error where the unit does not offer it.
    Uas,
}

impl From<TransportArg> for Option<TransportKind> {
    fn from(wanted: TransportArg) -> Self {
        match wanted {
            TransportArg::Auto => None,
            TransportArg::Bot => Some(TransportKind::BulkOnly),
            TransportArg::Uas => Some(TransportKind::Uas),
        }
    }
}

/// Selects a unit and its transport.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    #[command(flatten)]
    /// The unit.
    pub port: PortArgs,

    /// How commands are carried.
    #[arg(long, value_enum, default_value_t)]
    pub transport: TransportArg,
}

impl DeviceArgs {
    /// Selects the unit, as [`PortArgs::choose`], and opens it by the firmware that it runs.
    ///
    /// # Errors
    /// As for [`PortArgs::open`] and [`Unit::open`].
    pub fn open(&self, purpose: Purpose) -> Result<OpenedUnit<'_>, AnyFailure> {
        let recording = self.port.pcap.start()?;
        let mut unit = self.port.choose(recording.capture())?;
        let live = unit.open(purpose, self.transport.into())?;
        Ok(OpenedUnit { live, unit, _recording: recording })
    }
}

/// A unit that is open. It is given back before the capture of its traffic ends.
pub struct OpenedUnit<'a> {
    /// What takes its commands.
    pub live: Live,
    /// The unit.
    pub unit: Unit,
    _recording: Recording<'a>,
}

/// The option that says where USB traffic is recorded.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PcapArgs {
    /// Record the unit's USB traffic into this file (pcapng, for Wireshark). The file has everything that moves: serial
    /// number, firmware, data. Replaces an earlier capture, and no other file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl PcapArgs {
    /// Starts the capture if one is requested.
    ///
    /// # Errors
    /// As for [`Capture::create`].
    pub fn start(&self) -> Result<Recording<'_>, Failure> {
        let Some(path) = self.pcap.as_deref() else { return Ok(Recording(None)) };
        user_files::check_name(path)?;
        Ok(Recording(Some((Capture::create(path)?, path))))
    }
}

/// A running capture, or none. Dropping it reports packets that are missing in the file.
#[derive(Debug)]
pub struct Recording<'a>(Option<(Capture, &'a Path)>);

impl Recording<'_> {
    /// Returns the capture, if there is one.
    pub fn capture(&self) -> Option<&Capture> {
        self.0.as_ref().map(|(capture, _)| capture)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let Some((capture, path)) = &self.0 else { return };
        let QueueEnd { received, lost, failure, has_ended } = capture.finish();
        let why = match &failure {
            Some(failure) => failure.as_str(),
            None if !has_ended => "the disk does not answer",
            None if lost > 0 => "the disk was too slow",
            None => return,
        };
        errln!("asmpatch: {} lacks {lost} of {received} events on the bus: {why}", path.display());
    }
}

/// The option that says where backups go.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct BackupPlace {
    /// Create the backup's folder here; by default in the folder that ASMPATCH_BACKUP_DIR names, or in
    /// asmpatch/backups in the platform's data folder.
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,
}

impl BackupPlace {
    /// Returns the backup folder: from the option, the environment, or the platform's default.
    ///
    /// # Errors
    /// Fails if the system names no data folder.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        folder_named(self.backup_dir.as_deref(), "ASMPATCH_BACKUP_DIR").map_or_else(platforms_folder, Ok)
    }

    /// Returns where the backups of these units are looked for: in the folder that takes new ones, in the default folder,
    /// in the platform's if there is one, and in the current folder; those of virtual units also beside the unit.
    pub fn places<'u>(&self, units: impl IntoIterator<Item = &'u Location>) -> BackupPlaces {
        // Without a place for backups there are none.
        let mut folders: Vec<PathBuf> = [self.folder(), Self::default().folder()].into_iter().flatten().collect();
        // A variable that was set later doesn't hide what is there.
        folders.extend(platforms_folder().ok().filter(|folder| !matches!(folder.try_exists(), Ok(false))));
        folders.dedup();
        let mut beside = vec![PathBuf::from(".")];
        for unit in units {
            if let Location::Virtual(folder) = unit {
                beside.push(folder_of(folder).to_owned());
            }
        }
        BackupPlaces { folders, beside }
    }
}

/// Returns the platform's folder for backups. Pointers are left there, because a variable that names another folder may be
/// gone at the next command.
///
/// # Errors
/// Fails if the system names no data folder.
pub fn platforms_folder() -> Result<PathBuf, Failure> {
    let label = Kind::Usage.code("asmpatch::backup::no_place");
    let strategy = etcetera::choose_base_strategy()
        .map_err(|error| Failure::new(label, format!("no data folder for backups: {error}")))?;
    Ok(strategy.data_dir().join("asmpatch").join("backups"))
}

/// Returns the folders for a backup whose own folder can't be written, the best first. None is the system's temporary
/// folder, which a restart empties: the backup may be the only copy of a unit's identity.
pub fn backups_elsewhere() -> Vec<PathBuf> {
    let folders = platforms_folder().ok().into_iter().chain(env::current_dir()).chain(etcetera::home_dir());
    folders.filter(|folder| *folder != env::temp_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_backup_goes_where_a_restart_removes_it() {
        let folders = backups_elsewhere();
        assert!(folders.contains(&env::current_dir().unwrap()) && !folders.contains(&env::temp_dir()), "{folders:?}");
    }
}
