//! What keeps others off a unit: a lock per unit, so that only one program that uses this library works on the unit.
//!
//! The kernel lets only one program claim a unit's interface. But a unit that restarts, as in a flash, has no interface
//! to claim for seconds, and programs open a unit several times. The lock covers that: it belongs to the port.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{env, io};

use tracing::{info, warn};

use super::error::UsbError;
use super::sysfs::Sysfs;
use crate::bridge::PortPath;

/// The locks that this process holds.
static HELD: Mutex<BTreeMap<PathBuf, Weak<File>>> = Mutex::new(BTreeMap::new());
/// The files that a warning has already named, because they are not locks.
static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Number of attempts if somebody removes the file just as it is locked.
const ATTEMPTS: u32 = 10;

/// The lock of the unit at a port. Other processes can't take it until the last clone is dropped, or this
/// process ends.
///
/// [`control`](super::control) and [`UsbPort`](super::UsbPort) take it, so a program needs it only to keep a unit that it
/// has closed. One process may hold it several times.
#[derive(Debug, Clone)]
pub struct UnitLock {
    /// The system holds the lock while the file is open. `None` if the lock could not be taken.
    file: Option<Arc<File>>,
}

impl UnitLock {
    /// Whether there is a lock: see [`UnitLock::take`].
    pub const fn is_held(&self) -> bool {
        self.file.is_some()
    }

    /// The lock's file: `asm2464-PORT.lock`, such as `/tmp/asm2464-3-1.2.lock`, in `/tmp` on Unix, and in the user's
    /// folder for temporary files elsewhere. The lock is flock(2)'s, exclusive; on Windows `LockFileEx`. The file is
    /// empty, and stays.
    pub fn path(port: &PortPath) -> PathBuf {
        path_in(&if cfg!(unix) { PathBuf::from("/tmp") } else { env::temp_dir() }, port)
    }

    /// Takes the lock, without waiting. If the file can't be made or opened, as in a system without a writable `/tmp`,
    /// there is no lock, and only the claim of the interface keeps others out. If something else is at the file's path,
    /// a warning names it.
    ///
    /// # Errors
    /// [`UsbError::Busy`] with the process that holds it, if the system reports that.
    pub fn take(port: &PortPath) -> Result<Self, UsbError> {
        Self::take_at(&Self::path(port), port)
    }

    fn take_at(path: &Path, port: &PortPath) -> Result<Self, UsbError> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = held.get(path).and_then(Weak::upgrade) {
            return Ok(Self { file: Some(file) });
        }
        match locked(path) {
            Ok(Taken::Ours(file)) => {
                let file = Arc::new(file);
                held.retain(|_, file| file.strong_count() > 0);
                held.insert(path.to_owned(), Arc::downgrade(&file));
                Ok(Self { file: Some(file) })
            }
            Ok(Taken::Theirs(file)) => {
                let (users, lock) = (Sysfs::system().lock_holders(&file), Some(path.to_owned()));
                Err(UsbError::Busy { port: port.clone(), users, lock })
            }
            Err(error) => {
                match in_the_way(path, &error) {
                    Some(what) if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) => {
                        warn!("{port}: nothing keeps other programs off the unit while it restarts: {what}");
                    }
                    _ => info!("{port}: no lock, because of {}: {error}", path.display()),
                }
                Ok(Self { file: None })
            }
        }
    }
}

/// Describes what is at the lock's path, if that prevents the lock. `None` if the folder does.
fn in_the_way(path: &Path, error: &io::Error) -> Option<String> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    let path = path.display();
    Some(match kind {
        kind if kind.is_symlink() => format!("{path} is a symbolic link"),
        kind if kind.is_file() => format!("{path} can't be opened: {error}"),
        _ => format!("{path} is no regular file"),
    })
}

enum Taken {
    Ours(File),
    Theirs(File),
}

/// Opens and locks the file.
fn locked(path: &Path) -> io::Result<Taken> {
    for _ in 0..ATTEMPTS {
        if let Some(taken) = locked_at(opened(path)?, path)? {
            return Ok(taken);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Locks an open file. `None` if it was removed meanwhile: a lock on a file without a name keeps nobody out.
fn locked_at(file: File, path: &Path) -> io::Result<Option<Taken>> {
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => Ok(Some(Taken::Ours(file))),
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(Taken::Theirs(file))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens the file, and makes it if there is none: everybody may read and write it, because programs of several users
/// share a unit.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    careful(&mut options);
    match options.open(path) {
        // Don't open an existing file for creation: Linux refuses that for another user's file in /tmp
        // (protected_regular, proc_sys_fs(5)).
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = options.write(true).create_new(true).open(path)?;
            open_to_all(&made)?;
            Ok(made)
        }
        opened => opened,
    }
}

/// Doesn't follow a link, and doesn't wait for the other end of a pipe.
#[cfg(unix)]
fn careful(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o666).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
}

#[cfg(not(unix))]
const fn careful(_: &mut OpenOptions) {}

/// Undoes the umask.
#[cfg(unix)]
fn open_to_all(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn open_to_all(_: &File) -> io::Result<()> {
    Ok(())
}

/// Whether the path still names the file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|ours| fs::symlink_metadata(path).is_ok_and(|there| id(ours) == id(there)))
}

/// Windows keeps the name of an open file.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn path_in(folder: &Path, port: &PortPath) -> PathBuf {
    folder.join(format!("asm2464-{port}.lock"))
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;

    use super::*;

    fn port() -> PortPath {
        "3-1.2".parse().unwrap()
    }

    /// Waits until a lock is free: a process that another test starts has this one's files until it runs its program.
    fn until(is_free: impl Fn() -> bool) {
        let dropped = std::time::Instant::now();
        while !is_free() {
            assert!(dropped.elapsed().as_secs() < 10);
        }
    }

    #[test]
    fn the_lock_lies_in_a_place_that_every_program_finds() {
        assert!(!cfg!(unix) || UnitLock::path(&port()) == Path::new("/tmp/asm2464-3-1.2.lock"));
    }

    #[test]
    fn a_process_holds_a_units_lock_as_often_as_it_likes_and_others_only_after_its_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path(), &port());
        let first = UnitLock::take_at(&path, &port()).unwrap();
        let second = UnitLock::take_at(&path, &port()).unwrap();
        // To the system, another handle is like another process.
        let other = File::open(&path).unwrap();
        drop(first);
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(second);
        until(|| other.try_lock().is_ok());
        let error = UnitLock::take_at(&path, &port()).unwrap_err();
        assert_eq!(error.code(), "asm2464::usb::busy");
        assert!(error.to_string().ends_with(&format!(" (its lock: {})", path.display())), "{error}");
        #[cfg(target_os = "linux")]
        assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
        drop(other);
        until(|| UnitLock::take_at(&path, &port()).is_ok_and(|lock| lock.is_held()));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_a_pipe_and_a_folder_that_cant_be_written_are_no_lock_and_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path(), &port());
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(!UnitLock::take_at(&path, &port()).unwrap().is_held());
        assert!(!folder.path().join("elsewhere").exists());
        // Nor does a link to a file of somebody's lead to a lock on it.
        File::create(folder.path().join("elsewhere")).unwrap();
        assert!(!UnitLock::take_at(&path, &port()).unwrap().is_held());
        assert!(opened(&path).is_err());
        let nowhere = path_in(&folder.path().join("missing"), &port());
        assert!(!UnitLock::take_at(&nowhere, &port()).unwrap().is_held());
        let refused = io::ErrorKind::PermissionDenied.into();
        let obstacle = |path: &Path| in_the_way(path, &refused);
        assert!(obstacle(&path).unwrap().ends_with("asm2464-3-1.2.lock is a symbolic link"));
        assert_eq!(obstacle(&nowhere), None);
        // A pipe that nobody writes to.
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        let pipe = path.clone();
        std::thread::spawn(move || tell.send(opened(&pipe).is_ok()));
        assert!(told.recv_timeout(std::time::Duration::from_secs(20)).is_ok(), "it waits for the other end");
        // Another user's, which only that user may open.
        fs::remove_file(&path).unwrap();
        File::create(&path).unwrap();
        assert!(obstacle(&path).unwrap().ends_with("asm2464-3-1.2.lock can't be opened: permission denied"));
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_whose_file_is_removed_while_it_is_taken_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path(), &port());
        let removed = opened(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(locked_at(removed, &path).unwrap().is_none(), "no file has the name");
        let replaced = opened(&path).unwrap();
        fs::remove_file(&path).unwrap();
        File::create(&path).unwrap();
        assert!(locked_at(replaced, &path).unwrap().is_none(), "another file has it");
        let Ok(Taken::Ours(_held)) = locked(&path) else { panic!("nobody else has it") };
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    }

    #[cfg(unix)]
    #[test]
    fn every_user_may_open_the_file_and_a_removed_one_is_made_again() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path(), &port());
        drop(UnitLock::take_at(&path, &port()).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        let file = opened(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path));
        assert!(UnitLock::take_at(&path, &port()).unwrap().is_held() && path.exists());
    }
}
