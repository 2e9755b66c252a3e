//! Reads files up to a size limit, and opens asmpatch's own files for writing, never through a link. Ctrl-C ends a wait
//! for a pipe or for a file that another process holds.

use std::fs::{self, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::text;

use crate::user::hand_over;

/// How often to check for Ctrl-C while waiting for a pipe or a held file.
const TICK: Duration = Duration::from_millis(50);
/// How long a wait for a held file may last before somebody is told.
const SILENCE: Duration = Duration::from_secs(1);

/// Reads a file that the user named, of at most `max` bytes. Also reads a pipe or a device: calls `waits` once if that
/// takes more than a second, and Ctrl-C ends the wait.
///
/// # Errors
/// The system's error; [`io::ErrorKind::FileTooLarge`]; [`io::ErrorKind::Interrupted`] on Ctrl-C.
pub fn read(path: &Path, max: usize, waits: impl FnOnce(), interrupt: Interrupt<'_>) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() {
        return take(File::open(path)?, max);
    }
    // Opening a pipe waits for its writer, and a signal interrupts neither that nor a read. Another thread does both.
    let (sender, done) = mpsc::channel();
    let path = path.to_owned();
    thread::Builder::new().spawn(move || sender.send(File::open(path).and_then(|file| take(file, max))))?;
    let (began, mut waits) = (Instant::now(), Some(waits));
    loop {
        match done.recv_timeout(TICK) {
            Ok(read) => return read,
            Err(RecvTimeoutError::Timeout) if interrupt.is_requested() => return Err(io::ErrorKind::Interrupted.into()),
            Err(RecvTimeoutError::Timeout) => {
                if began.elapsed() >= SILENCE
                    && let Some(waits) = waits.take()
                {
                    waits();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the reading thread ended")),
        }
    }
}

/// Reads a file of at most `max` bytes that is part of asmpatch's own data, such as a backup or a patch. Follows links.
///
/// # Errors
/// The system's error; [`io::ErrorKind::FileTooLarge`]; [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn read_regular(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    take(open_regular(path, true)?, max)
}

/// As [`read_regular`], but follows no link.
///
/// # Errors
/// As for [`read_regular`]; [`io::ErrorKind::InvalidInput`] also for a link.
pub fn read_unlinked(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    // Not every system can open a file without following a link.
    if let Some(kind) = irregular(path) {
        return Err(not_regular(kind));
    }
    take(open_regular(path, false)?, max)
}

/// Reads at most the first `most` bytes of a regular file.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn read_start(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, true)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_regular(path: &Path, follows: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    careful(&mut options, follows);
    let file = options.open(path)?;
    refuse_irregular(&file)?;
    Ok(file)
}

/// Reads a file like [`read_regular`] and returns its text.
///
/// # Errors
/// As for [`read_regular`]; [`io::ErrorKind::InvalidData`] if it is not [text](text::decode).
pub fn read_regular_text(path: &Path, max: usize) -> io::Result<String> {
    let file = read_regular(path, max)?;
    let text = text::decode(&file).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok(text.into_owned())
}

fn take(file: File, max: usize) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let too_large =
        |has: &str| io::Error::new(io::ErrorKind::FileTooLarge, format!("{has}, expected at most {max} bytes"));
    if len > max as u64 {
        return Err(too_large(&format!("it has {len} bytes")));
    }
    let mut bytes = Vec::with_capacity(len as usize + 1);
    // Devices and pipes have no length to check in advance, and a file may grow.
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max { Err(too_large("it is longer")) } else { Ok(bytes) }
}

/// Opens one of asmpatch's own files for reading and writing, and creates it if it is missing: for its owner alone, who
/// can read and write it whatever the umask. Does not truncate it.
///
/// # Errors
/// The system's error; also fails if it is a link, a device, a pipe or a folder.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    private(&mut options);
    own(path, options, |options, path| options.open(path))
}

/// Opens a file like [`open_own`] and holds it like [`hold`]. Others may read a new one if the umask allows it.
///
/// # Errors
/// As for both.
pub fn hold_own(path: &Path) -> io::Result<File> {
    own(path, OpenOptions::new(), hold)
}

/// Opens and holds a file like [`hold_own`], and waits while somebody else holds it. Calls `waits` once after a second.
///
/// # Errors
/// The system's error; [`io::ErrorKind::Interrupted`] on Ctrl-C.
pub fn await_own(path: &Path, waits: impl FnOnce(), interrupt: Interrupt<'_>) -> io::Result<File> {
    let (began, mut waits) = (Instant::now(), Some(waits));
    loop {
        match hold_own(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if interrupt.is_requested() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                if began.elapsed() >= SILENCE
                    && let Some(waits) = waits.take()
                {
                    waits();
                }
                thread::sleep(TICK);
            }
            settled => return settled,
        }
    }
}

fn own(path: &Path, mut options: OpenOptions, open: fn(&OpenOptions, &Path) -> io::Result<File>) -> io::Result<File> {
    options.read(true).write(true);
    let made = open(options.clone().create_new(true), path);
    let file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Check the kind first for a message that names it. If a link appears after that, opening does not follow
            // it.
            if let Some(kind) = irregular(path) {
                return Err(not_regular(kind));
            }
            careful(&mut options, false);
            open(&options, path)?
        }
        made => {
            let file = made?;
            owner_may(&file, 0o600)?;
            hand_over(&file, path);
            file
        }
    };
    refuse_irregular(&file)?;
    Ok(file)
}

/// Opens a file and holds it while it is open: no other process, and no other handle of this process, can hold it, too.
/// Everybody may still read it.
///
/// # Errors
/// The system's error; [`io::ErrorKind::WouldBlock`] if somebody else holds the file.
#[cfg(not(windows))]
pub fn hold(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.open(path)?;
    file.try_lock()?;
    Ok(file)
}

/// Opens a file and holds it while it is open: no other process, and no other handle of this process, can hold it, too.
/// Everybody may still read it.
///
/// # Errors
/// The system's error; [`io::ErrorKind::WouldBlock`] if somebody else holds the file.
#[cfg(windows)]
pub fn hold(options: &OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_SHARE_READ: u32 = 1;
    const FILE_SHARE_DELETE: u32 = 4;
    const ERROR_SHARING_VIOLATION: i32 = 32;
    // A Windows lock would keep readers out. A share mode does not.
    options.clone().share_mode(FILE_SHARE_READ | FILE_SHARE_DELETE).open(path).map_err(|error| {
        if error.raw_os_error() == Some(ERROR_SHARING_VIOLATION) { io::ErrorKind::WouldBlock.into() } else { error }
    })
}

/// Creates a folder and its missing parents. The owner can use each new folder, whatever the umask.
///
/// # Errors
/// The system's error.
pub fn make_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => {
            owner_may_use(path)?;
            hand_over_folder(path);
            Ok(())
        }
        // Another process has just created it.
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives a new folder to the owner of the folder that it is in.
#[cfg(unix)]
fn hand_over_folder(path: &Path) {
    let mut options = OpenOptions::new();
    options.read(true);
    careful(&mut options, false);
    if let Ok(folder) = options.open(path)
        && folder.metadata().is_ok_and(|metadata| metadata.is_dir())
    {
        hand_over(&folder, path);
    }
}

/// Does nothing: the system's folders say who may use what is made in them.
#[cfg(not(unix))]
fn hand_over_folder(_path: &Path) {}

/// Describes what exists at `path` if it is not a regular file: a link, a device, a pipe, a folder. `None` for a
/// regular file or nothing.
pub fn irregular(path: &Path) -> Option<&'static str> {
    let kind = path.symlink_metadata().ok()?.file_type();
    if kind.is_file() { None } else { Some(name(kind)) }
}

fn refuse_irregular(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(()) } else { Err(not_regular(name(kind))) }
}

fn not_regular(kind: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}, expected a regular file"))
}

fn name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        } else if kind.is_socket() {
            return "a socket";
        }
    }
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a folder"
    } else {
        "a device"
    }
}

/// Makes opening a pipe or a device return without waiting for the other side. Follows links only if `follows` is set.
#[cfg(unix)]
pub fn careful(options: &mut OpenOptions, follows: bool) {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK | if follows { 0 } else { libc::O_NOFOLLOW });
}

/// Does nothing: on other systems, a caller that must not follow a link checks the file's type before it opens the file.
#[cfg(not(unix))]
pub fn careful(_options: &mut OpenOptions, _follows: bool) {}

/// Lets only its owner use a new file, because it may contain a unit's serial number.
#[cfg(unix)]
pub fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

/// Does nothing: on other systems a new file inherits the access rights of its folder.
#[cfg(not(unix))]
pub fn private(_options: &mut OpenOptions) {}

/// Adds these bits to the mode of a new file.
pub(crate) fn owner_may(file: &File, bits: u32) -> io::Result<()> {
    match with_bits(&file.metadata()?, bits) {
        Some(permissions) => file.set_permissions(permissions),
        None => Ok(()),
    }
}

/// Lets the owner of a new folder use it.
///
/// # Errors
/// The system's error.
pub fn owner_may_use(folder: &Path) -> io::Result<()> {
    match with_bits(&fs::metadata(folder)?, 0o700) {
        Some(permissions) => fs::set_permissions(folder, permissions),
        None => Ok(()),
    }
}

/// Returns the permissions with these bits added; `None` if it has them all.
#[cfg(unix)]
fn with_bits(metadata: &Metadata, bits: u32) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode();
    if mode & bits == bits { None } else { Some(Permissions::from_mode(mode & 0o7777 | bits)) }
}

// On other systems no umask takes the owner's rights.
#[cfg(not(unix))]
fn with_bits(_metadata: &Metadata, _bits: u32) -> Option<Permissions> {
    None
}

/// Lists the `.toml` files in a folder, sorted by name, so that an error about two files with the same id does
/// not depend on the system's order.
///
/// # Errors
/// The system's error.
pub fn toml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod holding {
    use super::*;

    #[test]
    fn a_held_file_can_be_read_and_not_held_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("held");
        let held = hold_own(&path).unwrap();
        io::Write::write_all(&mut &held, b"kept").unwrap();
        for again in [hold_own(&path), hold(File::options().read(true), &path)] {
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        drop(held);
        // A process that another test starts has this one's files until it runs its program.
        let freed = std::time::Instant::now();
        let again = loop {
            match hold_own(&path) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && freed.elapsed().as_secs() < 10 => {}
                result => break result.unwrap(),
            }
        };
        assert_eq!(take(again, 4).unwrap(), b"kept");
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn fifo(folder: &Path) -> PathBuf {
        let path = folder.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn reading_a_file_without_an_end_stops_at_the_limit() {
        let zero = Path::new("/dev/zero");
        let error = read(zero, 1000, || (), Interrupt::never()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("manifest.toml");
        symlink(zero, &link).unwrap();
        let error = read_regular(&link, 1000).unwrap_err();
        assert_eq!(error.to_string(), "it is a device, expected a regular file");
    }

    #[test]
    fn ctrl_c_ends_the_wait_for_a_pipe_and_files_of_ours_are_never_pipes() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        let stop = AtomicBool::new(true);
        let error = read(&path, 1000, || (), Interrupt::watching(&stop)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(read_regular(&path, 1000).unwrap_err().to_string(), "it is a pipe, expected a regular file");
        assert_eq!(open_own(&path).unwrap_err().to_string(), "it is a pipe, expected a regular file");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_a_writer_who_is_late_is_waited_for_aloud() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        for delay in [Duration::ZERO, SILENCE + 4 * TICK] {
            let writer = thread::spawn({
                let path = path.clone();
                move || {
                    thread::sleep(delay);
                    fs::write(path, b"abc").unwrap();
                }
            });
            let mut told = 0;
            assert_eq!(read(&path, 3, || told += 1, Interrupt::never()).unwrap(), b"abc");
            assert_eq!(told, i32::from(delay > SILENCE));
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_file_of_ours_is_new_or_regular_and_keeps_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        drop(open_own(&own).unwrap());
        fs::write(&own, b"kept").unwrap();
        drop(open_own(&own).unwrap());
        assert_eq!(fs::read(&own).unwrap(), b"kept");
        let link = folder.path().join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(open_own(&link).unwrap_err().to_string(), "it is a symbolic link, expected a regular file");
        assert!(open_own(Path::new("/dev/null")).is_err());
        assert_eq!((irregular(&own), irregular(&link)), (None, Some("a symbolic link")));
    }
}
