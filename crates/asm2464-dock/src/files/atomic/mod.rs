//! Atomic file writes: a file appears complete or not at all.

mod leftovers;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asm2464::escape::Escape as _;
use tempfile::NamedTempFile;
use thiserror::Error;

pub use self::leftovers::StagedFolder;
use crate::files::file;

/// A file could not be written. An earlier file of that name is unchanged, unless only the sync of its folder failed.
#[derive(Debug, Error)]
#[error("cannot write {}: {doing}", path.shown())]
pub struct AtomicWriteError {
    /// The file.
    pub path: PathBuf,
    /// The step that failed.
    pub doing: &'static str,
    /// The system's error.
    pub source: io::Error,
}

asm2464::coded!(AtomicWriteError => System "asm2464::file::write");

/// Writes a file: writes a temporary file in the same folder, syncs it to disk, renames it, and syncs the folder.
///
/// After a crash at any point the name holds either the old bytes or all of the new ones. Replaces an existing file, so
/// the caller must check that it may. Never replaces a link, a device, a pipe or a folder. Also removes what killed
/// runs left in the folder.
/// # Errors
/// [`AtomicWriteError`], with the step that failed; the temporary file is removed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), AtomicWriteError> {
    write_all(&[(path, bytes)])
}

/// Writes files that belong together: no file gets its name before the bytes of all are on disk.
///
/// # Errors
/// As for [`write()`].
pub fn write_all(files: &[(&Path, &[u8])]) -> Result<(), AtomicWriteError> {
    let mut staged = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        staged.push((path, stage(path, bytes)?));
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
pub fn create(path: &Path, bytes: &[u8]) -> Result<(), AtomicWriteError> {
    let file = stage(path, bytes)?;
    file.as_file().sync_all().map_err(failed(path, "bringing the bytes to the disk"))?;
    match file.persist_noclobber(path) {
        Ok(_) => sync_folder(folder_of(path)).map_err(failed(path, "bringing the name to the disk")),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(path, NAMING)(error.error)),
    }
}

const NAMING: &str = "giving the file its name";

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> AtomicWriteError {
    move |source| AtomicWriteError { path: path.to_path_buf(), doing, source }
}

/// Creates a temporary file with these bytes, in the folder of its final path.
fn stage(path: &Path, bytes: &[u8]) -> Result<NamedTempFile, AtomicWriteError> {
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
    let mut file =
        leftovers::new_file(folder_of(path)).map_err(failed(path, "creating a temporary file in its folder"))?;
    file.write_all(bytes).map_err(failed(path, "writing the bytes"))?;
    Ok(file)
}

/// Returns a path's folder. An empty parent means the current folder, which the system does not open under an empty
/// name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
            assert_eq!(error.doing, "only a regular file is replaced", "{}", path.display());
        }
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }
}
