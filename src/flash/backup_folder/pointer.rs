//! Pointers: what the default folder knows of a backup that was saved elsewhere, as with `backup -o`.
//!
//! A pointer is one small file. It is named by its content, so that several runs never write one file, and has both
//! configuration blocks, so that a unit's identity outlives the folder. It never stops a write: one that can't be written
//! is a line of trouble. Whoever searches compares the blocks in the pointer, and touches the folder only if they fit: it
//! may be on a network that is dead, so that asmpatch doesn't wait for it for long. Neither a pointer nor its folder is
//! followed through a link.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::firmware::Part;
use asm2464::flash::BlockBytes;
use asm2464::{Failure, Kind, text};
use asm2464_files::user::host_name;
use asm2464_files::{atomic, file, toml_file};
use serde::Deserialize;

use super::{BackupFolderError, FiledBackup, describe, load, load_any, no_backup, unread};
use crate::flash::backup::{BackedUpUnit, Backup};

/// How a pointer's name begins. Versions of asmpatch that know no pointers leave out what is no folder.
const NAME_BEGINS: &str = "asmpatch-pointer-";
/// Version of the format.
const FORMAT: u32 = 1;
/// Maximum length in bytes of a pointer. A longer one is not read.
const MAX_POINTER_LEN: usize = 16 << 10;
/// How long to wait for the folder of a pointer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a backup is known by that is not in the folders that were searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The file.
    pub file: PathBuf,
    /// The host that saved the backup.
    pub host: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PointerText {
    format: u32,
    path: String,
    host: String,
    date: Option<String>,
    unit: BackedUpUnit,
    config_0: String,
    config_1: String,
}

/// Formats the pointer for [`toml`]. Written by hand, because no serialiser escapes a unit's own strings as needed.
impl fmt::Display for PointerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, path, host, date, unit, config_0, config_1 } = self;
        writeln!(f, "# Where asmpatch has saved a backup. `asmpatch help formats` describes this file.")?;
        let (path, host) = (toml_file::string(path), toml_file::string(host));
        writeln!(f, "format = {format}\npath = {path}\nhost = {host}")?;
        if let Some(date) = date {
            writeln!(f, "date = {}", toml_file::string(date))?;
        }
        writeln!(f, "config-0 = \"{config_0}\"\nconfig-1 = \"{config_1}\"\n\n[unit]")?;
        unit.fmt_table(f)
    }
}

/// Leaves a pointer to the backup in `folder` among those in the `default` folder, unless it is there itself. Virtual
/// units' backups have none: they are looked for beside their units.
///
/// # Errors
/// If the pointer can't be written.
pub fn leave(folder: &Path, default: &Path) -> Result<(), Failure> {
    let label = Kind::System.code("asmpatch::backup::pointer");
    let unwritten = |why: String| Failure::new(label, format!("no pointer to {}: {why}", folder.display()));
    let FiledBackup { written, unit, blocks, .. } = describe(folder).map_err(|error| unwritten(error.to_string()))?;
    let path = folder.canonicalize().map_err(|error| unwritten(error.to_string()))?;
    if unit.is_virtual() || path.parent().map(Path::to_owned) == default.canonicalize().ok() {
        return Ok(());
    }
    let Some(path) = path.to_str() else { return Err(unwritten("its path is not Unicode".to_owned())) };
    let [config_0, config_1] = blocks.map(|block| to_hex(&block, ""));
    let pointer = PointerText {
        format: FORMAT,
        path: path.to_owned(),
        host: host_name(),
        date: written.map(|time| humantime::format_rfc3339_millis(time).to_string()),
        unit,
        config_0,
        config_1,
    };
    let text = pointer.to_string();
    file::make_folder(default).map_err(|error| unwritten(error.to_string()))?;
    atomic::create_private(&default.join(name_of(text.as_bytes())), text.as_bytes())
}

fn name_of(text: &[u8]) -> String {
    let digest = Sha256Digest::of(text).to_string();
    format!("{NAME_BEGINS}{}.toml", digest.get(..16).unwrap_or(&digest))
}

/// Whether a path has the name of a pointer.
pub fn is_named_like_one(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NAME_BEGINS.as_bytes()))
}

/// Reads a pointer, and not through a link.
///
/// # Errors
/// [`BackupFolderError`] if it can't be read, or has other content than its name says.
pub fn read(path: &Path) -> Result<FiledBackup, BackupFolderError> {
    let bytes = file::read_unlinked(path, MAX_POINTER_LEN).map_err(unread(path))?;
    let no_pointer = |why: String| {
        let message = format!("{} is no pointer to a backup: {why}", path.display());
        no_backup(Failure::new(Kind::BadInput.code("asmpatch::backup::bad_pointer"), message))
    };
    if path.file_name().is_none_or(|name| name != name_of(&bytes).as_str()) {
        return Err(no_pointer("it was changed, as its name says".to_owned()));
    }
    let text = text::decode(&bytes).map_err(|why| no_pointer(why.to_string()))?;
    let pointer: PointerText = toml::from_str(&text).map_err(|error| no_pointer(toml_file::reason(&text, &error)))?;
    if pointer.format != FORMAT {
        return Err(no_pointer(format!("it has format {}, expected {FORMAT}", pointer.format)));
    }
    let block = |hex: &str| block(hex).ok_or_else(|| no_pointer("a block has not 128 bytes".to_owned()));
    Ok(FiledBackup {
        folder: PathBuf::from(&pointer.path),
        written: pointer.date.as_deref().and_then(|date| humantime::parse_rfc3339(date).ok()),
        blocks: [block(&pointer.config_0)?, block(&pointer.config_1)?],
        unit: pointer.unit,
        later_serials: Vec::new(),
        pointer: Some(Pointer { file: path.to_owned(), host: pointer.host }),
    })
}

fn block(hex: &str) -> Option<BlockBytes> {
    BlockBytes::try_from(parse_hex(hex).ok()?).ok()
}

impl FiledBackup {
    /// Reads the whole backup. That of a [pointer](Pointer) is read only if its folder answers soon, no link leads to it,
    /// and it is still the backup that was saved there.
    ///
    /// # Errors
    /// As [`load`]; [`BackupFolderError`] also for a pointer whose backup is not there.
    pub fn load(&self) -> Result<Backup, BackupFolderError> {
        let Some(Pointer { host, .. }) = &self.pointer else { return load_any(&self.folder) };
        let folder = self.folder.clone();
        let why = match within(PATIENCE, move || unlinked(&folder)) {
            Some(Ok(backup)) if backup.blocks == self.blocks => return Ok(backup),
            Some(Ok(_)) => "another backup is there now".to_owned(),
            Some(Err(error)) => error.to_string(),
            None => "its disk doesn't answer".to_owned(),
        };
        let message = format!("the backup that host {host} saved in {} is not there: {why}", self.folder.display());
        Err(no_backup(Failure::new(Kind::System.code("asmpatch::backup::not_there"), message)))
    }

    /// The backup as far as it is known without its folder: its blocks.
    pub fn blocks_alone(&self) -> Backup {
        let parts = Part::ALL.map(|part| vec![0xFF; part.max_len()]);
        Backup { unit: self.unit.clone(), tool: "a pointer".to_owned(), blocks: self.blocks, parts }
    }
}

/// Reads the backup in a folder to which no link leads.
fn unlinked(folder: &Path) -> Result<Backup, BackupFolderError> {
    if folder.canonicalize().map_err(unread(folder))? != folder {
        let reason = io::Error::new(io::ErrorKind::InvalidInput, "a link leads to it");
        return Err(unread(folder)(reason));
    }
    load(folder)
}

/// Returns what `work` returns, unless it takes longer.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(work())).ok()?;
    done.recv_timeout(patience).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use asm2464::Coded as _;

    use super::super::{BackupPlaces, Filed, save};
    use super::*;
    use crate::flash::backup::tests::sample_backup;

    /// A default folder with a pointer, and the backup elsewhere that it is about.
    fn pointed() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let (default, folder) =
            (home.path().join("default"), home.path().canonicalize().unwrap().join("elsewhere/one"));
        save(&sample_backup(), &folder).unwrap();
        leave(&folder, &default).unwrap();
        (home, default, folder)
    }

    fn search(default: &Path) -> Filed {
        BackupPlaces { folders: vec![default.to_owned()], beside: Vec::new() }.search()
    }

    #[test]
    fn a_backup_that_was_saved_elsewhere_is_found_and_its_number_known_even_if_its_folder_is_lost() {
        let (_home, default, folder) = pointed();
        // A second save leaves no second pointer.
        leave(&folder, &default).unwrap();
        let Filed { backups, unread } = search(&default);
        assert_eq!((backups.len(), unread.len()), (1, 0), "{backups:?} {unread:?}");
        let found = &backups[0];
        let expected = describe(&folder).unwrap();
        assert_eq!((&found.folder, &found.unit, found.blocks), (&folder, &expected.unit, expected.blocks));
        assert_eq!((found.serial(), found.load().unwrap()), (expected.serial(), sample_backup()));
        assert!(found.written.is_some() && found.written == expected.written, "{found:?}");
        fs::remove_dir_all(&folder).unwrap();
        let found = search(&default).backups.remove(0);
        assert_eq!(found.load().unwrap_err().code(), "asmpatch::backup::not_there");
        assert_eq!(found.blocks_alone().blocks, sample_backup().blocks);
        let file = found.pointer.unwrap().file;
        assert_eq!(super::super::load_any(&file).unwrap().blocks, sample_backup().blocks);
    }

    #[test]
    fn a_pointer_has_the_whole_path_of_its_backup() {
        let (home, default, folder) = pointed();
        let roundabout = home.path().join("default/../elsewhere/one");
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        leave(&roundabout, &other).unwrap();
        assert_eq!(search(&other).backups[0].folder, folder);
        assert_eq!(search(&default).backups[0].folder, folder);
    }

    #[test]
    fn a_pointer_of_another_format_or_with_half_a_block_counts_as_a_backup_that_can_not_be_read() {
        let (_home, default, _) = pointed();
        let file = fs::read_dir(&default).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let hex = to_hex(&sample_backup().blocks[1], "");
        for (changed, why) in [
            (text.replace("format = 1", "format = 2"), "it has format 2, expected 1"),
            (text.replace(&hex, &hex[..128]), "a block has not 128 bytes"),
        ] {
            assert_ne!(changed, text);
            let file = default.join(name_of(changed.as_bytes()));
            fs::write(&file, changed).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
            assert_eq!(search(&default).unread.len(), 1);
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_backup_in_the_default_folder_and_one_of_a_virtual_unit_leave_no_pointer() {
        let home = tempfile::tempdir().unwrap();
        let default = home.path().join("default");
        save(&sample_backup(), &default.join("one")).unwrap();
        leave(&default.join("one"), &default).unwrap();
        let mut virtual_units = sample_backup();
        virtual_units.unit.device = "virtual:u".to_owned();
        save(&virtual_units, &home.path().join("two")).unwrap();
        leave(&home.path().join("two"), &default).unwrap();
        assert_eq!(fs::read_dir(&default).unwrap().count(), 1);
    }

    #[test]
    fn another_backup_in_the_place_of_the_one_that_was_saved_is_not_taken_for_it() {
        let (_home, default, folder) = pointed();
        fs::remove_dir_all(&folder).unwrap();
        let mut other = sample_backup();
        other.blocks[0][40] ^= 1;
        save(&other, &folder).unwrap();
        let why = search(&default).backups[0].load().unwrap_err().to_string();
        assert!(why.ends_with("another backup is there now"), "{why}");
    }

    #[test]
    fn a_pointer_that_was_changed_counts_as_a_backup_that_can_not_be_read() {
        let (_home, default, _) = pointed();
        let file = fs::read_dir(&default).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("elsewhere", "nowhere")).unwrap();
        let Filed { backups, unread } = search(&default);
        assert_eq!(backups, []);
        assert_eq!(unread[0].failure().code(), "asmpatch::backup::bad_pointer");
    }

    #[cfg(unix)]
    #[test]
    fn neither_a_pointer_nor_its_folder_is_followed_through_a_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (home, default, folder) = pointed();
        let file = fs::read_dir(&default).unwrap().next().unwrap().unwrap().path();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "it has a serial number");
        let moved = home.path().join("moved");
        fs::rename(&folder, &moved).unwrap();
        symlink(&moved, &folder).unwrap();
        let why = search(&default).backups[0].load().unwrap_err().to_string();
        assert!(why.contains("is not there"), "{why}");
        fs::rename(&file, home.path().join("pointer")).unwrap();
        symlink(home.path().join("pointer"), &file).unwrap();
        let Filed { backups, unread } = search(&default);
        assert_eq!((backups.len(), unread.len()), (0, 1));
    }

    #[test]
    fn a_folder_on_a_network_that_is_dead_is_not_waited_for() {
        assert_eq!(within(Duration::from_millis(10), || thread::sleep(Duration::from_secs(5))), None);
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_block_or_none(hex: String) {
            let _ = block(&hex);
        }
    }
}
