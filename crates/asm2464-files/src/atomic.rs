//! Atomic file writes: a file appears complete or not at all.
//!
//! A file is written under a temporary name beside its place, then renamed. Temporary files and folders are locked while
//! their process lives. The next run that works in the same folder removes those that have such a name, belong to the same
//! user and are not locked: killed runs left them behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use asm2464::escape::Escape as _;
use asm2464::{Failure, Kind};
use tempfile::NamedTempFile;

use crate::user::hand_over;
use crate::{file, folder_of};

/// Writes a file: writes a temporary file in the same folder, syncs it to disk, renames it, and syncs the folder.
///
/// After a crash at any point the name holds either the old bytes or all of the new ones. Replaces an existing file, so
/// the caller must check that it may. Never replaces a link, a device, a pipe or a folder. Also removes what killed
/// runs left in the folder.
/// # Errors
/// `asm2464::file::write`, with the step that failed. The temporary file is removed. An earlier file of that name is
/// unchanged, unless only the sync of its folder failed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_all(&[(path, bytes)])
}

/// Writes files that belong together: no file gets its name before the bytes of all are on disk.
///
/// # Errors
/// As for [`write()`].
pub fn write_all(files: &[(&Path, &[u8])]) -> Result<(), Failure> {
    let mut staged = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        staged.push((path, stage(path, bytes, EVERYBODY)?));
    }
    // Sync only after all are written, so that a journalling file system commits them together.
    for (path, file) in &staged {
        file.as_file().sync_all().map_err(failed(path, "bringing the bytes to the disk"))?;
    }
    for (path, file) in staged {
        file.persist(path).map_err(|error| failed(path, NAMING)(error.error))?;
    }
    let mut synced: Vec<&Path> = Vec::new();
    for (path, _) in files {
        let folder = folder_of(path);
        if !synced.contains(&folder) {
            sync_folder(folder).map_err(failed(path, "bringing the name to the disk"))?;
            synced.push(folder);
        }
    }
    Ok(())
}

/// Writes a file like [`write()`], unless it exists. Keeps an existing file and returns `Ok`.
///
/// # Errors
/// As for [`write()`].
pub fn create(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    create_for(EVERYBODY, path, bytes)
}

/// Writes a file like [`create()`], for its owner alone.
///
/// # Errors
/// As for [`write()`].
pub fn create_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    create_for(OWNER, path, bytes)
}

fn create_for(mode: u32, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let file = stage(path, bytes, mode)?;
    file.as_file().sync_all().map_err(failed(path, "bringing the bytes to the disk"))?;
    match file.persist_noclobber(path) {
        Ok(_) => sync_folder(folder_of(path)).map_err(failed(path, "bringing the name to the disk")),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(path, NAMING)(error.error)),
    }
}

/// The mode of an ordinary file, of which the umask takes its part.
const EVERYBODY: u32 = 0o666;
/// The mode of a file for its owner alone.
const OWNER: u32 = 0o600;

const NAMING: &str = "giving the file its name";

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let message = format!("cannot write {}: {doing}", path.shown());
        Failure::new(Kind::System.code("asm2464::file::write"), message).because(error)
    }
}

/// Creates a temporary file with these bytes, in the folder of its final path.
fn stage(path: &Path, bytes: &[u8], mode: u32) -> Result<NamedTempFile, Failure> {
    match file::irregular(path) {
        None => {}
        Some("a folder") => {
            return Err(failed(path, "there is a folder of this name")(io::ErrorKind::IsADirectory.into()));
        }
        Some(kind) => {
            let source = io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}"));
            return Err(failed(path, "only a regular file is replaced")(source));
        }
    }
    let mut file = new_file(folder_of(path), mode).map_err(failed(path, "creating a temporary file in its folder"))?;
    file.write_all(bytes).map_err(failed(path, "writing the bytes"))?;
    Ok(file)
}

/// Syncs a folder's entries to the disk.
///
/// # Errors
/// The system's error.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

// On other systems a folder can't be opened as a file, and the system alone decides when a rename is on the disk.
/// Syncs a folder's entries to the disk, if the system can.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Prefix of every temporary name. Six random letters and digits follow at the end.
pub(crate) const PREFIX: &str = ".asmpatch-";
pub(crate) const RANDOM_LEN: usize = 6;
/// The part between prefix and random characters in the name of a backup's folder, and of a demonstration's.
pub(crate) const BACKUP: &str = "backup-";
pub(crate) const DEMO: &str = "demo-";

/// Creates a locked file in a folder, and removes leftovers there. The umask applies, but the owner can always use it.
#[cfg_attr(not(unix), expect(unused_variables, reason = "other systems have no modes"))]
fn new_file(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    loop {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).rand_bytes(RANDOM_LEN);
        // tempfile creates files with mode 0600. The user wants an ordinary file, under their umask.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        let file = builder.tempfile_in(folder)?;
        file::owner_may(file.as_file(), 0o600)?;
        if lock_new(file.as_file()) {
            remove_in(folder, file.as_file());
            hand_over(file.as_file(), file.path());
            return Ok(file);
        }
    }
}

/// Locks a new file or folder. Returns `false` if another process removed it as a leftover before it was locked.
#[cfg(unix)]
pub(crate) fn lock_new(new: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    // On a file system without locks this fails. `try_lock` then fails, too, so nothing there counts as a leftover.
    let _ = new.lock();
    new.metadata().map_or(true, |metadata| metadata.nlink() > 0)
}

#[cfg(not(unix))]
pub(crate) fn lock_new(_new: &File) -> bool {
    true
}

/// The file that is written last into a folder of [`StagedFolder`](crate::staged::StagedFolder): one that has it is whole,
/// and may be somebody's who has it under such a name.
#[cfg(unix)]
const LAST: &str = "backup.toml";

/// Removes the leftovers of killed runs in a folder, if they belong to the owner of `own`. Keeps what can't be removed,
/// and a backup that is whole.
#[cfg(unix)]
pub(crate) fn remove_in(folder: &Path, own: &File) {
    use std::os::unix::fs::MetadataExt;

    let (Ok(own), Ok(entries)) = (own.metadata(), fs::read_dir(folder)) else { return };
    let mut options = File::options();
    file::careful(options.read(true), false);
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(wants_folder) = name.to_str().and_then(is_folder_of_ours) else { continue };
        let path = entry.path();
        let Ok(leftover) = options.open(&path) else { continue };
        let is_ours = leftover.metadata().is_ok_and(|found| {
            found.uid() == own.uid()
                && (if wants_folder { found.is_dir() } else { found.is_file() && found.nlink() == 1 })
        });
        if !is_ours || leftover.try_lock().is_err() {
            continue;
        }
        if !wants_folder {
            let _ = fs::remove_file(&path);
        } else if name.to_str().is_some_and(|name| name.starts_with(&format!("{PREFIX}{DEMO}"))) {
            // Among the system's temporary files, where nobody else can rename it.
            let _ = fs::remove_dir_all(&path);
        } else {
            remove_files(&leftover);
            // Only an empty folder is removed, whatever has the name now.
            let _ = fs::remove_dir(&path);
        }
    }
}

/// Removes the files in a folder of a killed run, through its handle; none if it is whole.
#[cfg(unix)]
fn remove_files(folder: &File) {
    use rustix::fs::{AtFlags, Dir, statat, unlinkat};

    let Ok(entries) = Dir::read_from(folder) else { return };
    if statat(folder, LAST, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return;
    }
    for entry in entries.flatten() {
        let _ = unlinkat(folder, entry.file_name(), AtFlags::empty());
    }
}

#[cfg(not(unix))]
pub(crate) fn remove_in(_folder: &Path, _own: &File) {}

/// Whether a file's name is one that an unfinished write leaves behind.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Whether a temporary name is that of a folder; `None` if asmpatch does not make such names.
#[cfg_attr(not(unix), expect(dead_code, reason = "nothing is removed there"))]
fn is_folder_of_ours(name: &str) -> Option<bool> {
    let rest = name.strip_prefix(PREFIX)?;
    let kind = rest.strip_prefix(BACKUP).or_else(|| rest.strip_prefix(DEMO));
    let random = kind.unwrap_or(rest);
    let is_random = random.len() == RANDOM_LEN && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_random { Some(kind.is_some()) } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_written_file_is_there_alone_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        write(&path, b"old").unwrap();
        write(&path, b"new bytes").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new bytes");
        assert_eq!(names(folder.path()), ["out.bin"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let missing = write(&folder.path().join("no/such/out.bin"), b"x").unwrap_err();
        assert!(missing.to_string().contains("out.bin"), "{missing}");
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write(&folder.path().join("taken"), b"x").is_err());
        let first = folder.path().join("first");
        assert!(write_all(&[(&first, b"x"), (&folder.path().join("taken"), b"x")]).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }

    #[test]
    fn a_file_that_already_exists_is_kept_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash.bin");
        create(&path, b"first").unwrap();
        create(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["flash.bin"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_a_pipe_and_a_device_are_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link, pipe) =
            (folder.path().join("target"), folder.path().join("link"), folder.path().join("pipe"));
        fs::write(&target, b"precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&link, &pipe, Path::new("/dev/null")] {
            let error = write(path, b"x").unwrap_err();
            assert_eq!(error.to_string(), format!("cannot write {}: only a regular file is replaced", path.display()));
        }
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }
}

#[cfg(unix)]
#[cfg(test)]
mod leftovers_tests {
    use super::*;
    use crate::staged::StagedFolder;

    #[test]
    fn backups_at_the_same_time_do_not_remove_each_others_folders() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let staged = StagedFolder::for_backup(parent.path()).unwrap();
                        staged.write("part-1.bin", b"kept").unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn leftovers_of_killed_runs_are_removed_and_files_in_use_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(".asmpatch-aB3dE6"), "left").unwrap();
        fs::create_dir(at(".asmpatch-backup-aB3dE6")).unwrap();
        fs::write(at(".asmpatch-backup-aB3dE6/part-1.bin"), "left").unwrap();
        // A backup that somebody has under such a name, or that a killed run has finished.
        fs::create_dir(at(".asmpatch-backup-wHoLe1")).unwrap();
        fs::write(at(".asmpatch-backup-wHoLe1/backup.toml"), "kept").unwrap();
        let mine = [".asmpatch-notes.txt", ".asmpatch-", "asmpatch-aB3dE6", ".asmpatch-backup-xy", "photo.jpg"];
        for name in mine {
            fs::write(at(name), "the user's").unwrap();
        }
        std::os::unix::fs::symlink(at("photo.jpg"), at(".asmpatch-linked")).unwrap();
        let running = new_file(folder.path(), EVERYBODY).unwrap();
        let backup = StagedFolder::for_backup(folder.path()).unwrap();
        let another = new_file(folder.path(), EVERYBODY).unwrap();
        assert!(!at(".asmpatch-aB3dE6").exists() && !at(".asmpatch-backup-aB3dE6").exists());
        assert!(running.path().exists() && backup.path().exists() && another.path().exists());
        assert!(mine.iter().all(|name| at(name).exists()) && at(".asmpatch-linked").is_symlink());
        drop((running, backup, another));
        assert!(at(".asmpatch-backup-wHoLe1/backup.toml").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), mine.len() + 2);
    }
}
