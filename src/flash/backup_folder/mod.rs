//! A backup as a folder: `backup.toml` with the digests, the blocks, the firmware and the raw parts.
//!
//! | file | content |
//! | --- | --- |
//! | `backup.toml` | the unit, the tool, and length and SHA-256 of each file below |
//! | `config-0.bin`, `config-1.bin` | the configuration blocks, 128 bytes each |
//! | `firmware.bin` | the image by its own length field; absent if the flash holds none |
//! | `part-1.bin`, `part-2.bin` | the flash as E2 read it: 0xFF00 and 0x10000 bytes |
//! | `later-serials.txt` | the serial numbers that the unit got after this backup, if any; not in `backup.toml` |

use std::error::Error as _;
use std::fmt;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{CONFIG_BLOCK_LEN, ConfigField, Part};
use asm2464::flash::{BlockBytes, CONFIG_LEN, SLOT_LEN, image_file};
use asm2464::{Failure, Kind, Named, text};
use asm2464_files::atomic::{self, sync_folder};
use asm2464_files::staged::StagedFolder;
use asm2464_files::user::User;
use asm2464_files::{file, folder_of, toml_file};
use serde::Deserialize;

use super::backup::{BackedUpUnit, Backup};
use super::error::BackupFolderError;
use crate::file_kind::{FileKind, MAX_LOOKED_AT};

mod filed;
mod pointer;

pub use self::filed::{BackupPlaces, Filed, FiledBackup, UnreadBackup, UnreadKind, digits_in_name, filed};
pub use self::pointer::{Pointer, leave as leave_pointer};

/// Version of the folder's format.
const FORMAT: u32 = 1;
/// The file that lists what is in a backup.
pub const MANIFEST: &str = "backup.toml";
const CONFIG: [&str; 2] = ["config-0.bin", "config-1.bin"];
/// The file with the image, in a backup's folder.
pub const FIRMWARE: &str = "firmware.bin";
const PARTS: [&str; 2] = ["part-1.bin", "part-2.bin"];
/// The serial numbers that a unit got after its backup, one a line. No manifest lists the file: a backup stays as it is, and
/// versions of asmpatch that don't know it leave it alone.
const LATER_SERIALS: &str = "later-serials.txt";
/// Maximum length in bytes of that file. A longer one is not read.
const MAX_LATER_SERIALS_LEN: usize = 4 << 10;
/// The files that the manifest of every backup lists, in this order.
const WITH_FIRMWARE: [&str; 5] = [CONFIG[0], CONFIG[1], FIRMWARE, PARTS[0], PARTS[1]];
/// The same, if the flash holds no image.
const WITHOUT_FIRMWARE: [&str; 4] = [CONFIG[0], CONFIG[1], PARTS[0], PARTS[1]];
/// Maximum length in bytes of a file in a backup. A longer one is not read.
const MAX_BACKUP_FILE_LEN: usize = SLOT_LEN;
/// Maximum number of names that are tried in one folder to save a backup again.
const NAMES: u32 = 9;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct BackupManifest {
    format: u32,
    tool: String,
    /// When the unit was read, in UTC; backups of the first builds have none.
    date: Option<String>,
    unit: BackedUpUnit,
    file: Vec<FileEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FileEntry {
    name: String,
    length: u64,
    sha256: String,
}

/// Formats the manifest for [`toml`]. Written by hand, because no serialiser escapes a unit's own strings as needed.
impl fmt::Display for BackupManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, tool, date, unit, file } = self;
        writeln!(f, "format = {format}\ntool = {}", toml_file::string(tool))?;
        if let Some(date) = date {
            writeln!(f, "date = {}", toml_file::string(date))?;
        }
        writeln!(f, "\n[unit]")?;
        unit.fmt_table(f)?;
        for FileEntry { name, length, sha256 } in file {
            let (name, sha256) = (toml_file::string(name), toml_file::string(sha256));
            writeln!(f, "\n[[file]]\nname = {name}\nlength = {length}\nsha256 = {sha256}")?;
        }
        Ok(())
    }
}

/// Result of saving a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The folder.
    pub folder: PathBuf,
    /// Whether the folder was created; otherwise it already existed with exactly this content.
    pub is_new: bool,
    /// Whose it is, if root has saved it: nobody else can read root's.
    pub owner: Option<User>,
}

impl Saved {
    fn new(folder: &Path, is_new: bool) -> Self {
        let is_root = User::current().is_some_and(User::is_root);
        let owner = if is_root { User::owner_of(folder) } else { None };
        Self { folder: folder.to_owned(), is_new, owner }
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, is_new, owner } = self;
        let mut notes = Vec::new();
        if !is_new {
            notes.push("already there, with the same content".to_owned());
        }
        notes.extend(owner.map(|owner| format!("belongs to {owner}")));
        write!(f, "{}", folder.display())?;
        if notes.is_empty() { Ok(()) } else { write!(f, " ({})", notes.join("; ")) }
    }
}

/// Writes a backup to `folder`. If that exists, it must be empty or hold the same backup.
///
/// The folder appears complete or not at all: it is filled under another name beside it, synced, then renamed. Only its
/// owner can read it. If several units with the same content are saved at once, one creates the folder and the others
/// find it.
///
/// # Errors
/// [`BackupFolderError::Exists`], [`BackupFolderError::Unread`], [`BackupFolderError::Save`].
pub fn save(backup: &Backup, folder: &Path) -> Result<Saved, BackupFolderError> {
    if is_taken(folder) {
        return already_saved(backup, folder);
    }
    let parent = folder_of(folder);
    file::make_folder(parent).map_err(unsaved("create", parent))?;
    let partial = StagedFolder::for_backup(parent).map_err(unsaved("create a folder in", parent))?;
    fill(&partial, backup)?;
    match partial.persist(folder) {
        Ok(()) => {}
        // Another unit or process has created the folder meanwhile.
        Err(_) if is_taken(folder) => return already_saved(backup, folder),
        Err(error) => return Err(unsaved("rename the finished backup to", folder)(error)),
    }
    sync_folder(parent).map_err(unsaved("sync", parent))?;
    Ok(Saved::new(folder, true))
}

fn fill(folder: &StagedFolder, backup: &Backup) -> Result<(), BackupFolderError> {
    let mut entries = Vec::new();
    for (name, bytes) in contents(backup) {
        write_synced(folder, name, &bytes)?;
        entries.push(FileEntry {
            name: name.to_owned(),
            length: bytes.len() as u64,
            sha256: Sha256Digest::of(&bytes).to_string(),
        });
    }
    let manifest = BackupManifest {
        format: FORMAT,
        tool: backup.tool.clone(),
        date: Some(humantime::format_rfc3339_millis(SystemTime::now()).to_string()),
        unit: backup.unit.clone(),
        file: entries,
    };
    write_synced(folder, MANIFEST, manifest.to_string().as_bytes())?;
    folder.sync().map_err(unsaved("sync", folder.path()))
}

fn already_saved(backup: &Backup, folder: &Path) -> Result<Saved, BackupFolderError> {
    match load(folder) {
        Ok(there) if is_same(backup, &there) => Ok(Saved::new(folder, false)),
        Err(BackupFolderError::NoBackup(why)) if is_systems(&why) => {
            Err(BackupFolderError::Unread { folder: folder.to_owned(), why })
        }
        _ => Err(BackupFolderError::Exists(folder.to_owned())),
    }
}

/// Whether the system keeps asmpatch from reading what is there: another user's file, or no file handle is left.
fn is_systems(why: &Failure) -> bool {
    let source = why.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_missing = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    source.is_some_and(|source| source.raw_os_error().is_some() && !is_missing(source.kind()))
}

fn is_same(backup: &Backup, there: &Backup) -> bool {
    there.blocks == backup.blocks && there.parts == backup.parts
}

/// Whether this folder holds the backup, complete and undamaged.
pub fn is_kept(backup: &Backup, folder: &Path) -> bool {
    load(folder).is_ok_and(|there| is_same(backup, &there))
}

/// Saves again a backup that is gone from `folder` or damaged there: under the same name if that is free, otherwise
/// under another one beside it. If it can't be written there, tries the folders of `elsewhere` in order.
///
/// # Errors
/// The first error, if the backup can't be saved anywhere.
pub fn save_again(backup: &Backup, folder: &Path, elsewhere: &[PathBuf]) -> Result<Saved, BackupFolderError> {
    let name = folder.file_name().unwrap_or_default();
    let mut first = None;
    for place in iter::once(folder.to_owned()).chain(elsewhere.iter().map(|place| place.join(name))) {
        let numbered = (2..=NAMES).map(|number| {
            let mut other = name.to_owned();
            other.push(format!("-{number}"));
            place.with_file_name(other)
        });
        for place in iter::once(place.clone()).chain(numbered) {
            match save(backup, &place) {
                // Nothing is overwritten: try the next name.
                Err(error @ (BackupFolderError::Exists(_) | BackupFolderError::Unread { .. })) => {
                    first = first.or(Some(error))
                }
                Err(error) => {
                    first = first.or(Some(error));
                    break;
                }
                saved => return saved,
            }
        }
    }
    Err(first.unwrap_or_else(|| BackupFolderError::Exists(folder.to_owned())))
}

/// Whether a backup can be saved in this folder. To find out, writes as many bytes as a backup has, and removes them.
pub fn has_room(folder: &Path) -> bool {
    let Ok(partial) = file::make_folder(folder).and_then(|()| StagedFolder::for_backup(folder)) else { return false };
    // A backup holds the image twice: as a file of its own, and in the two parts.
    PARTS.iter().all(|name| write_synced(&partial, name, &[0; MAX_BACKUP_FILE_LEN]).is_ok())
}

/// Reads a backup and checks every length and digest, so that damaged bytes are never written to a unit.
///
/// # Errors
/// [`BackupFolderError`] if a file can't be read, is damaged, or is not what the manifest lists.
pub fn load(folder: &Path) -> Result<Backup, BackupFolderError> {
    let manifest = BackupManifest::read(folder)?;
    let backup = Backup {
        unit: manifest.unit.clone(),
        tool: manifest.tool.clone(),
        blocks: manifest.blocks(folder)?,
        parts: [manifest.bytes(folder, PARTS[0])?, manifest.bytes(folder, PARTS[1])?],
    };
    for (part, (bytes, name)) in Part::ALL.iter().zip(backup.parts.iter().zip(PARTS)) {
        if bytes.len() > part.max_len() {
            let expected = format!("at most {}", part.max_len());
            return Err(damaged(folder, name, format!("{} bytes", bytes.len()), expected));
        }
    }
    if manifest.listed() == WITH_FIRMWARE && manifest.bytes(folder, FIRMWARE)? != image_file(&backup.parts) {
        let (found, expected) = ("other bytes than the two parts", "the image that the two parts hold");
        return Err(damaged(folder, FIRMWARE, found.to_owned(), expected.to_owned()));
    }
    Ok(backup)
}

/// Reads a backup from its folder, or makes one of a copy of a flash, or of its beginning: at least its configuration page.
/// A pointer gives the blocks alone.
///
/// # Errors
/// As for [`load`], and if a file is no such copy, or one without a valid block 0: a unit that got it would lose its
/// serial number and its names. A folder is what a unit was, valid or not; nobody knows where a copy comes from.
pub fn load_any(path: &Path) -> Result<Backup, BackupFolderError> {
    if !path.is_file() {
        return load(path);
    }
    if pointer::is_named_like_one(path) {
        return pointer::read(path).map(|pointed| pointed.blocks_alone());
    }
    let bytes = file::read_start(path, MAX_LOOKED_AT).map_err(unread(path))?;
    match FileKind::of(&bytes) {
        FileKind::Flash(copy) if copy.bytes().len() >= CONFIG_LEN => {
            let extent = copy.extent();
            Backup::of_copy(&copy).ok_or_else(|| {
                let shown = path.display().to_string();
                let label = Kind::BadInput.code("asmpatch::backup::copy_without_block");
                let message = format!("{shown} has no valid configuration block 0, though it is {extent}");
                no_backup(Failure::new(label, message).naming(Named::File(shown)))
            })
        }
        kind => {
            let shown = path.display().to_string();
            let label = Kind::BadInput.code("asmpatch::backup::no_copy");
            let message = format!("{shown} is {kind}, expected the folder of a backup or a copy of a flash");
            Err(no_backup(Failure::new(label, message).naming(Named::File(shown))))
        }
    }
}

/// Whether a folder has the manifest of a backup.
pub fn is_one(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// Reads a backup without its firmware.
///
/// # Errors
/// As for [`load`].
pub fn describe(folder: &Path) -> Result<FiledBackup, BackupFolderError> {
    let manifest = BackupManifest::read(folder)?;
    let date = manifest.date.as_deref().and_then(|date| humantime::parse_rfc3339(date).ok());
    let written = date.or_else(|| fs::metadata(folder.join(MANIFEST)).and_then(|metadata| metadata.modified()).ok());
    let blocks = manifest.blocks(folder)?;
    let later_serials = later_serials(folder);
    Ok(FiledBackup { folder: folder.to_owned(), written, unit: manifest.unit, blocks, later_serials, pointer: None })
}

/// The serial numbers that the unit got after this backup. A file with anything else says nothing.
fn later_serials(folder: &Path) -> Vec<String> {
    let Ok(bytes) = file::read_unlinked(&folder.join(LATER_SERIALS), MAX_LATER_SERIALS_LEN) else { return Vec::new() };
    let Ok(text) = text::decode(&bytes) else { return Vec::new() };
    let are_serials = text.lines().all(|line| !line.is_empty() && ConfigField::Serial.accepts(line));
    if are_serials { text.lines().map(ToOwned::to_owned).collect() } else { Vec::new() }
}

/// Notes in a backup's folder that its unit gets this serial number.
///
/// # Errors
/// If the file can't be written.
pub fn note_later_serial(folder: &Path, serial: &str) -> Result<(), Failure> {
    let mut serials = later_serials(folder);
    if serials.iter().any(|known| known == serial) {
        return Ok(());
    }
    serials.push(serial.to_owned());
    atomic::write(&folder.join(LATER_SERIALS), (serials.join("\n") + "\n").as_bytes())
}

/// Reads a backup, or a copy of a flash, without its firmware.
///
/// # Errors
/// As for [`load_any`].
pub fn describe_any(path: &Path) -> Result<FiledBackup, BackupFolderError> {
    if !path.is_file() {
        return describe(path);
    }
    let Backup { unit, blocks, .. } = load_any(path)?;
    let later_serials = Vec::new();
    Ok(FiledBackup { folder: path.to_owned(), written: None, unit, blocks, later_serials, pointer: None })
}

impl BackupManifest {
    /// Reads the manifest in a backup's folder.
    fn read(folder: &Path) -> Result<Self, BackupFolderError> {
        let path = folder.join(MANIFEST);
        let text = read_bounded(&path)?;
        let text = text::decode(&text).map_err(|why| unread(&path)(io::Error::new(io::ErrorKind::InvalidData, why)))?;
        // Another format may have keys that this version does not know.
        if let Ok(table) = text.parse::<toml::Table>()
            && let Some(format) = table.get("format").and_then(toml::Value::as_integer)
            && let Ok(format) = u32::try_from(format)
            && format != FORMAT
        {
            let message = format!("{} has format {format}, expected {FORMAT}", path.display());
            return Err(Failure::new(Kind::BadInput.code("asmpatch::backup::format"), message).into());
        }
        let manifest: Self = toml::from_str(&text).map_err(|error| {
            let message = format!("{} is not a backup manifest: {}", path.display(), toml_file::reason(&text, &error));
            no_backup(Failure::new(Kind::BadInput.code("asmpatch::backup::manifest"), message))
        })?;
        let listed = manifest.listed();
        if listed != WITH_FIRMWARE && listed != WITHOUT_FIRMWARE {
            return Err(manifest.other_files(folder));
        }
        Ok(manifest)
    }

    fn listed(&self) -> Vec<&str> {
        self.file.iter().map(|entry| entry.name.as_str()).collect()
    }

    fn other_files(&self, folder: &Path) -> BackupFolderError {
        let (path, found, expected) = (folder.join(MANIFEST), self.listed().join(", "), WITH_FIRMWARE.join(", "));
        let message = format!("{} lists {found}, expected {expected}", path.display());
        Failure::new(Kind::BadInput.code("asmpatch::backup::files"), message).into()
    }

    /// Reads a file of the backup in `folder`, and checks its length and digest.
    fn bytes(&self, folder: &Path, name: &str) -> Result<Vec<u8>, BackupFolderError> {
        let entry = self.file.iter().find(|entry| entry.name == name).ok_or_else(|| self.other_files(folder))?;
        read(folder, entry)
    }

    /// As [`BackupManifest::bytes`], of both configuration blocks.
    fn blocks(&self, folder: &Path) -> Result<[BlockBytes; 2], BackupFolderError> {
        let block = |name| {
            let bytes = self.bytes(folder, name)?;
            BlockBytes::try_from(bytes.as_slice()).map_err(|_| {
                let expected = format!("a configuration block of {CONFIG_BLOCK_LEN}");
                damaged(folder, name, format!("{} bytes", bytes.len()), expected)
            })
        };
        Ok([block(CONFIG[0])?, block(CONFIG[1])?])
    }
}

fn contents(backup: &Backup) -> Vec<(&'static str, Vec<u8>)> {
    let [zero, one] = &backup.blocks;
    let mut files = vec![(CONFIG[0], zero.to_vec()), (CONFIG[1], one.to_vec())];
    if backup.firmware().is_ok() {
        files.push((FIRMWARE, image_file(&backup.parts)));
    }
    let [one, two] = &backup.parts;
    files.extend([(PARTS[0], one.clone()), (PARTS[1], two.clone())]);
    files
}

fn read(folder: &Path, entry: &FileEntry) -> Result<Vec<u8>, BackupFolderError> {
    let bytes = read_bounded(&folder.join(&entry.name))?;
    if bytes.len() as u64 != entry.length {
        let (found, expected) = (format!("{} bytes", bytes.len()), format!("{} bytes", entry.length));
        return Err(damaged(folder, &entry.name, found, expected));
    }
    let found = Sha256Digest::of(&bytes).to_string();
    if found != entry.sha256 {
        return Err(damaged(folder, &entry.name, format!("SHA-256 {found}"), entry.sha256.clone()));
    }
    Ok(bytes)
}

fn damaged(folder: &Path, name: &str, found: String, expected: String) -> BackupFolderError {
    let message = format!("{} has {found}, backup.toml says {expected}", folder.join(name).display());
    Failure::new(Kind::BadInput.code("asmpatch::backup::digest"), message).into()
}

/// Whether there is anything but an empty folder at this path.
fn is_taken(path: &Path) -> bool {
    let is_empty_folder = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    path.symlink_metadata().is_ok() && !is_empty_folder()
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, BackupFolderError> {
    file::read_regular(path, MAX_BACKUP_FILE_LEN).map_err(unread(path))
}

fn write_synced(folder: &StagedFolder, name: &str, bytes: &[u8]) -> Result<(), BackupFolderError> {
    folder.write(name, bytes).map_err(unsaved("write", &folder.path().join(name)))
}

fn unread(path: &Path) -> impl FnOnce(io::Error) -> BackupFolderError {
    let message = format!("cannot read {}", path.display());
    move |source| no_backup(Failure::new(Kind::BadInput.code("asmpatch::backup::io"), message).because(source))
}

fn no_backup(why: Failure) -> BackupFolderError {
    BackupFolderError::NoBackup(Box::new(why))
}

fn unsaved(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupFolderError {
    let path = path.to_owned();
    move |source| BackupFolderError::Save { doing, path, source }
}

#[cfg(test)]
mod tests;
