//! Files that appear whole or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use thiserror::Error;

use crate::failure::{Exit, Failure};

/// Why a file could not be written. Whatever had its name before is still there, unchanged.
#[derive(Debug, Error, Diagnostic)]
#[error("cannot write {}: {doing}", path.display())]
#[diagnostic(
    code(asmpatch::file::write),
    help(
        "nothing half-written is left; check that the folder exists, that you may write to it, and that the disk has room"
    )
)]
pub struct AtomicWriteError {
    /// The file.
    pub path: PathBuf,
    /// The step that failed.
    pub doing: &'static str,
    /// Why.
    pub source: io::Error,
}

impl Failure for AtomicWriteError {
    fn exit(&self) -> Exit {
        Exit::BadInput
    }
}

/// Writes a file: a temporary file in the same folder, its bytes on the disk, then the name, then the folder.
///
/// After a crash at any point the name holds either the old bytes or all of the new ones. An existing file is
/// replaced: whether it may be is the caller's question.
///
/// # Errors
/// [`AtomicWriteError`], with the step that failed; the temporary file is removed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), AtomicWriteError> {
    write_all(&[(path, bytes)])
}

/// Writes files that belong together: none gets its name before the bytes of all are on the disk.
///
/// # Errors
/// As for [`write()`].
pub fn write_all(files: &[(&Path, &[u8])]) -> Result<(), AtomicWriteError> {
    let mut staged = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let failed = |doing| move |source| AtomicWriteError { path: path.to_path_buf(), doing, source };
        if path.is_dir() {
            return Err(failed("there is a folder of this name")(io::ErrorKind::IsADirectory.into()));
        }
        let mut file = new_file(folder_of(path)).map_err(failed("creating a temporary file in its folder"))?;
        file.write_all(bytes).map_err(failed("writing the bytes"))?;
        staged.push((path, file));
    }
    // Synchronised only when all are written: a journalling file system then commits them together.
    for (path, file) in &staged {
        file.as_file().sync_all().map_err(|source| AtomicWriteError {
            path: path.to_path_buf(),
            doing: "bringing the bytes to the disk",
            source,
        })?;
    }
    for (path, file) in staged {
        let failed = |doing| move |source| AtomicWriteError { path: path.to_path_buf(), doing, source };
        file.persist(path).map_err(|error| failed("giving the file its name")(error.error))?;
    }
    let mut synced: Vec<&Path> = Vec::new();
    for (path, _) in files {
        let folder = folder_of(path);
        if !synced.contains(&folder) {
            sync_folder(folder).map_err(|source| AtomicWriteError {
                path: path.to_path_buf(),
                doing: "bringing the name to the disk",
                source,
            })?;
            synced.push(folder);
        }
    }
    Ok(())
}

/// An empty parent is the current folder, which the system does not open under an empty name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    // tempfile's own default is 0600; what the user asked for is an ordinary file, under their umask.
    tempfile::Builder::new()
        .prefix(".asmpatch-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
}

#[cfg(not(unix))]
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".asmpatch-").tempfile_in(folder)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

// Elsewhere a folder can't be opened as a file, and the rename is as durable as the system makes it.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
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
}
