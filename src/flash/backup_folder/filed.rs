//! Looks for backups: in folders of them, with what is, or may be, a backup there and can't be read.
//!
//! A backup that can't be read is not a backup that doesn't exist: it may be the only copy of a unit's identity. So
//! whoever looks for backups gets both. A backup that was saved elsewhere is known by its pointer.

use std::collections::HashSet;
use std::error::Error as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, FirmwareVersion};
use asm2464::flash::BlockBytes;
use asm2464::{Coded as _, Failure, Kind, Label, Named};
use asm2464_files::user::User;

use super::{BackupFolderError, CONFIG, MANIFEST, Pointer, describe, is_systems, pointer, unread};
use crate::flash::backup::{BackedUpUnit, NAME_BEGINS};
use crate::flash::identity::UnitIdentity;

/// A backup in a folder of backups, without its firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiledBackup {
    /// The backup's folder.
    pub folder: PathBuf,
    /// When the unit was read; when the backup was written, if it does not say.
    pub written: Option<SystemTime>,
    /// The unit of the backup.
    pub unit: BackedUpUnit,
    /// Configuration blocks 0 and 1, valid or not.
    pub blocks: [BlockBytes; 2],
    /// The serial numbers that asmpatch gave the unit after this backup; unknown for a pointer.
    pub later_serials: Vec<String>,
    /// The pointer to it, if it was found by one alone.
    pub pointer: Option<Pointer>,
}

impl FiledBackup {
    /// The identity that the backup gives a unit, including values that every unit gets.
    pub(in crate::flash) fn given_identity(&self) -> UnitIdentity {
        UnitIdentity::of(self.blocks.each_ref().map(Some))
    }

    /// The values that identify only the unit of this backup.
    pub(in crate::flash) fn identity(&self) -> UnitIdentity {
        self.given_identity().own()
    }

    /// The digits of the content in its folder's name; `None` for a folder with another name.
    pub fn digits(&self) -> Option<&str> {
        digits_in_name(&self.folder)
    }

    /// Whether the digest of the content begins with these digits.
    pub fn has_digits(&self, digits: &str) -> bool {
        match self.digits() {
            Some(own) if digits.len() <= own.len() => own.starts_with(digits),
            Some(own) if !digits.starts_with(own) => false,
            _ => self.load().is_ok_and(|backup| to_hex(&backup.content_digest(), "").starts_with(digits)),
        }
    }

    /// The version that its unit ran; `None` for open firmware, which reports none.
    pub fn version(&self) -> Option<FirmwareVersion> {
        self.unit.firmware_version.as_deref()?.parse().ok()
    }

    /// The block's part of what tells its unit apart; `None` if the block is not valid.
    pub fn block(&self, index: BlockIndex) -> Option<ConfigBlock> {
        ConfigBlock::parse(index, index.of(&self.blocks).as_slice()).ok()
    }

    /// The serial number that the backup gives a unit; without a valid block, the one that its unit showed.
    pub fn serial(&self) -> String {
        self.block(BlockIndex::Zero).map_or_else(|| self.unit.serial.clone(), |block| block.text(ConfigField::Serial))
    }
}

/// The backups in one or more folders of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filed {
    /// Those that can be read, without their firmware.
    pub backups: Vec<FiledBackup>,
    /// What is, or may be, a backup and can't be read.
    pub unread: Vec<UnreadBackup>,
}

/// A folder that is, or may be, a backup and can't be read; or a folder of backups that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadBackup {
    /// The folder.
    pub folder: PathBuf,
    /// What it is.
    pub kind: UnreadKind,
    /// Who owns it, or the first file in it that is another user's; `None` if the system doesn't say.
    pub owner: Option<User>,
    /// Whether asmpatch lacks the right to read it, as when it is another user's.
    pub lacks_rights: bool,
    label: Label,
    why: String,
}

/// What can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadKind {
    /// What is, or may be, a backup.
    Backup,
    /// A folder of backups.
    Folder,
    /// A backup that was saved elsewhere, and is not where its [pointer](super::Pointer) says.
    Elsewhere,
}

impl UnreadBackup {
    /// A backup that is not where its pointer says. Doesn't touch its folder.
    pub fn elsewhere(folder: &Path, error: &BackupFolderError) -> Self {
        let (folder, kind) = (folder.to_owned(), UnreadKind::Elsewhere);
        Self { folder, kind, owner: None, lacks_rights: false, label: error.label(), why: error.to_string() }
    }

    fn new(folder: &Path, kind: UnreadKind, error: &BackupFolderError) -> Self {
        let (mut label, mut why, mut lacks_rights) = (error.label(), error.to_string(), false);
        if let Some(source) = error.source() {
            why = format!("{why}: {source}");
        }
        if let BackupFolderError::NoBackup(failure) = error
            && is_systems(failure)
        {
            let source = failure.source().and_then(|source| source.downcast_ref::<io::Error>());
            lacks_rights = source.is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied);
            label = match lacks_rights {
                true => Kind::System.code("asmpatch::backup::no_rights"),
                false => Kind::System.code("asmpatch::backup::unread"),
            };
        }
        let files = [MANIFEST, CONFIG[0], CONFIG[1]].map(|name| folder.join(name));
        let owners = [folder.to_owned()].into_iter().chain(files).filter_map(|path| User::owner_of(&path));
        let owners: Vec<User> = owners.collect();
        let others = owners.iter().find(|owner| Some(**owner) != User::current());
        let owner = others.or(owners.first()).copied();
        Self { folder: folder.to_owned(), kind, owner, lacks_rights, label, why }
    }

    /// Why it can't be read.
    pub fn failure(&self) -> Failure {
        Failure::new(self.label, self.why.clone()).naming(Named::File(self.folder.display().to_string()))
    }

    /// Whether its name is one that asmpatch gives a backup.
    fn has_a_backups_name(&self) -> bool {
        let name = self.folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(NAME_BEGINS.as_bytes())
    }

    /// The serial number that its name has, as names of backups have it; `None` for another name. A port may follow:
    /// then there are two readings.
    pub fn serials_in_name(&self) -> Vec<&str> {
        let Some((serial, _)) = parts_of_name(&self.folder) else { return Vec::new() };
        let without_port = serial.rsplit_once("-at-").map(|(serial, _)| serial);
        [Some(serial), without_port].into_iter().flatten().collect()
    }
}

/// The serial number, with a port that may follow, and the digits of the content in the name of a backup's folder; `None`
/// for another name.
fn parts_of_name(folder: &Path) -> Option<(&str, &str)> {
    let rest = folder.file_name()?.to_str()?.strip_prefix(NAME_BEGINS)?;
    let is_digits = |part: &str| part.len() == DIGITS && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = rest.rsplit_once('-')?;
    if is_digits(parts.1) {
        return Some(parts);
    }
    // A backup that was saved again has a number behind the digits.
    parts.0.rsplit_once('-').filter(|(_, digits)| is_digits(digits))
}

/// The digits of the content in the name of a backup's folder; `None` for another name.
pub fn digits_in_name(folder: &Path) -> Option<&str> {
    parts_of_name(folder).map(|(_, digits)| digits)
}

/// Number of digits of the content in a name.
const DIGITS: usize = 8;

/// Folders that systems put where backups may be: at the root of a disk.
const SYSTEMS: [&str; 3] = ["lost+found", "System Volume Information", "$RECYCLE.BIN"];

/// Whether something that is no readable backup has, or may have, the manifest of one.
fn may_be_one(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    if name.as_encoded_bytes().starts_with(b".") || SYSTEMS.iter().any(|systems| name == *systems) {
        return false;
    }
    if pointer::is_named_like_one(folder) {
        return true;
    }
    match folder.join(MANIFEST).symlink_metadata() {
        Ok(_) => true,
        // A link to a disk that is not there may lead to a backup.
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.is_symlink() && !folder.exists(),
        Err(error) => error.kind() != io::ErrorKind::NotADirectory,
    }
}

/// Lists the backups directly in a folder, without reading their firmware, and what may be one and can't be read. Leaves
/// out everything else. A folder that does not exist has none.
///
/// # Errors
/// [`BackupFolderError::NoBackup`] if the folder can't be read.
pub fn filed(folder: &Path) -> Result<Filed, BackupFolderError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Filed::default()),
        entries => entries.map_err(unread(folder))?,
    };
    let mut filed = Filed::default();
    for entry in entries {
        let folder = entry.map_err(unread(folder))?.path();
        let found = if pointer::is_named_like_one(&folder) { pointer::read(&folder) } else { describe(&folder) };
        match found {
            Ok(backup) => filed.backups.push(backup),
            Err(error) if may_be_one(&folder) => {
                filed.unread.push(UnreadBackup::new(&folder, UnreadKind::Backup, &error))
            }
            Err(_) => {}
        }
    }
    filed.unread.sort_by(|one, other| one.folder.cmp(&other.folder));
    Ok(filed)
}

/// Where backups are looked for: the one list for all commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupPlaces {
    /// The folders for backups, in order.
    pub folders: Vec<PathBuf>,
    /// Folders in which backups may be among other things. There, only what has the name of one counts as a backup that
    /// can't be read.
    pub beside: Vec<PathBuf>,
}

impl BackupPlaces {
    /// The same places, and these beside which something was named.
    #[must_use]
    pub fn and_beside(mut self, beside: impl IntoIterator<Item = PathBuf>) -> Self {
        self.beside.extend(beside);
        self
    }

    /// Lists the backups in all of them as [`filed`] does, each once. A folder for backups that can't be read is in the
    /// list itself.
    pub fn search(&self) -> Filed {
        let mut all = Filed::default();
        for folder in &self.folders {
            match filed(folder) {
                Ok(Filed { backups, unread }) => {
                    all.backups.extend(backups);
                    all.unread.extend(unread);
                }
                Err(error) => all.unread.push(UnreadBackup::new(folder, UnreadKind::Folder, &error)),
            }
        }
        for folder in &self.beside {
            let Ok(Filed { backups, mut unread }) = filed(folder) else { continue };
            unread.retain(UnreadBackup::has_a_backups_name);
            all.backups.extend(backups);
            all.unread.extend(unread);
        }
        // What is there counts before what a pointer says. Its folder is not touched.
        all.backups.sort_by_key(|backup| backup.pointer.is_some());
        let mut known = HashSet::new();
        let whole = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        all.backups.retain(|backup| match &backup.pointer {
            None => known.insert(whole(&backup.folder)),
            Some(_) => known.insert(backup.folder.clone()),
        });
        all.unread.retain(|unread| known.insert(whole(&unread.folder)));
        for backup in &mut all.backups {
            backup.folder = without_dot(&backup.folder);
        }
        for unread in &mut all.unread {
            unread.folder = without_dot(&unread.folder);
        }
        all
    }

    /// The places, in words.
    pub fn shown(&self) -> String {
        let all = self.folders.iter().chain(&self.beside);
        let mut shown: Vec<String> = all.map(|place| place.shown().to_string()).collect();
        let mut known = HashSet::new();
        shown.retain(|place| known.insert(place.clone()));
        shown.join(" and ")
    }
}

/// A path without the dot of the current folder.
fn without_dot(folder: &Path) -> PathBuf {
    folder.strip_prefix(".").unwrap_or(folder).to_owned()
}
