//! Files that the user names. What is read is read whole, up to a limit; and what is written replaces other contents only
//! with `--force`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use asm2464::escape::Escape as _;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::{AnyFailure, Failure, Kind, Named, text};
use asm2464_files::{atomic, file};

use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::errors::Advised;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::WordedStep;
use crate::fetch::{Manifest, Md5Digest};
use crate::file_kind::{MAX_TEXT, Pointer, PointerDigest, PointerTool};
use crate::patch::Receipt;
use crate::shell;

/// Reads a file of at most `max` bytes. A larger file is refused before it is read. Ctrl-C ends the wait for a pipe.
///
/// # Errors
/// Fails if the file can't be read or is too large, and on Ctrl-C.
pub fn read(path: &Path, max: usize) -> Result<Vec<u8>, AnyFailure> {
    file::read(path, max, || waits_for(path), Interrupt::of_process()).map_err(|cause| unread(path, max, cause))
}

/// Says that a pipe or a device keeps the command waiting.
pub(super) fn waits_for(path: &Path) {
    errln!("waiting for {}, which is no regular file: Ctrl-C ends that", path.shown());
}

/// The error of a file that could not be read.
pub(super) fn unread(path: &Path, max: usize, cause: io::Error) -> AnyFailure {
    let shown = path.display();
    let failure = match cause.kind() {
        io::ErrorKind::Interrupted => return Interrupted.into(),
        io::ErrorKind::IsADirectory => {
            let label = Kind::BadInput.code("asmpatch::file::folder");
            Failure::new(label, format!("{shown} is a folder, expected a file"))
        }
        io::ErrorKind::FileTooLarge => {
            let found = fs::metadata(path).ok().map(|metadata| metadata.len()).filter(|len| *len > max as u64);
            let found = found.map_or_else(|| "too many bytes".to_owned(), |found| format!("{found} bytes"));
            let label = Kind::BadInput.code("asmpatch::file::oversized");
            Failure::new(label, format!("{shown} has {found}, expected at most {max} bytes"))
        }
        absent if is_absent(absent) => {
            // git-annex links a file to its content, which may be elsewhere.
            let target = fs::read_link(path).unwrap_or_default();
            if let Some(pointer) = target.to_str().and_then(Pointer::of_link) {
                let label = Kind::BadInput.code("asmpatch::image::is_pointer");
                let message = format!("{shown} is a link of {} to content that is not there", pointer.tool);
                return Advised::with(Failure::new(label, message), against_pointer(&pointer, path));
            }
            let label = Kind::BadInput.code("asmpatch::file::not_found");
            Failure::new(label, format!("cannot read {shown}")).because(cause)
        }
        // A pipe or a device in a folder of patches.
        io::ErrorKind::InvalidInput => {
            let label = Kind::BadInput.code("asmpatch::file::not_regular");
            Failure::new(label, format!("{shown} is not a regular file"))
        }
        io::ErrorKind::InvalidData => {
            let label = Kind::BadInput.code("asmpatch::file::not_text");
            Failure::new(label, format!("{shown} is {cause}"))
        }
        _ => {
            let label = Kind::System.code("asmpatch::file::read");
            Failure::new(label, format!("cannot read {shown}")).because(cause)
        }
    };
    failure.into()
}

/// Whether an error says that no file has this name. No file system has one of 300 characters.
pub(in crate::cli) fn is_absent(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}

/// Reads a text file, such as a receipt, of at most 1 MiB.
///
/// # Errors
/// As for [`read`], and if the file is not [text](text::decode).
pub fn read_text(path: &Path) -> Result<String, AnyFailure> {
    text_in(path, &read(path, MAX_TEXT)?)
}

/// Decodes a text file that was read.
///
/// # Errors
/// As for [`read_text`].
pub fn text_in(path: &Path, file: &[u8]) -> Result<String, AnyFailure> {
    if file.len() > MAX_TEXT {
        return Err(unread(path, MAX_TEXT, io::ErrorKind::FileTooLarge.into()));
    }
    let text = text::decode(file).map_err(|why| {
        let label = Kind::BadInput.code("asmpatch::file::not_text");
        Failure::new(label, format!("{} is {why}", path.display()))
    })?;
    Ok(text.into_owned())
}

/// Reads the receipt of an image: `named`, or else `FILE.toml` beside it, if there is one. Such a file must be a
/// receipt, so that the commands that check an image agree with those that write it.
///
/// # Errors
/// As for [`read_text`] and [`Receipt::parse`].
pub fn receipt_of(image: &Path, named: Option<&Path>) -> Result<Option<Receipt>, AnyFailure> {
    let beside = receipt_path(image);
    let path = match named {
        Some(named) => named,
        None if beside.symlink_metadata().is_err_and(|error| is_absent(error.kind())) => {
            return Ok(None);
        }
        None => &beside,
    };
    Ok(Some(Receipt::parse(&path.display().to_string(), &read_text(path)?)?))
}

/// Reads every `.toml` file in these folders, sorted by name in each, with its path. Each must be a regular file of at
/// most 1 MiB.
///
/// # Errors
/// Fails if a folder or a file can't be read.
pub fn read_toml_files(folders: &[PathBuf]) -> Result<Vec<(String, String)>, AnyFailure> {
    let mut files = Vec::new();
    for folder in folders {
        for path in file::toml_files(folder).map_err(|cause| unread(folder, MAX_TEXT, cause))? {
            files.push((path.display().to_string(), read_own_text(&path)?));
        }
    }
    Ok(files)
}

/// Reads a text file that must be a regular file of at most 1 MiB.
///
/// # Errors
/// As for [`read`].
pub fn read_own_text(path: &Path) -> Result<String, AnyFailure> {
    file::read_regular_text(path, MAX_TEXT).map_err(|cause| unread(path, MAX_TEXT, cause))
}

/// Date and time in words, in UTC.
pub fn time(time: SystemTime) -> String {
    let words = humantime::format_rfc3339_seconds(time).to_string();
    words.replace('T', " ").replace('Z', " UTC")
}

/// Returns how to get what a pointer stands for: with its tool, and with `download` if it is a known image.
pub(super) fn against_pointer(pointer: &Pointer, path: &Path) -> Vec<AdvicePart> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let git = folder.map_or_else(|| "git".to_owned(), |folder| format!("git -C {}", shell::path(folder)));
    let fetch = match pointer.tool {
        PointerTool::GitLfs => {
            WordedStep::run("fetch its content, as `git lfs pull` does in its folder", git + " lfs pull")
        }
        PointerTool::GitAnnex => {
            let name = shell::word(path.file_name().unwrap_or_default());
            WordedStep::run(
                "fetch its content, as `git annex get` does in its folder",
                format!("{git} annex get {name}"),
            )
        }
    };
    let known = crate::embedded::manifests(&[]).ok();
    let is_it = |manifest: &&Manifest| match pointer.digest {
        Some(PointerDigest::Sha256(digest)) => manifest.sha256 == digest,
        Some(PointerDigest::Md5(digest)) => manifest.md5 == Some(Md5Digest(digest)),
        None => false,
    };
    let download = known.as_ref().and_then(|known| known.iter().find(is_it)).map(|Manifest { id, .. }| {
        AdvicePart::Command(
            "or fetch the known image that it stands for".into(),
            PrintedCommand::named("download").operand(id),
        )
    });
    [AdvicePart::Step(fetch)].into_iter().chain(download).collect()
}

/// Checks that the file system has such names: none has one of 300 characters.
///
/// # Errors
/// Fails if it has not.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            let label = Kind::BadInput.code("asmpatch::file::name");
            Err(Failure::new(label, format!("no file can be named {}", path.display())).because(error))
        }
        _ => Ok(()),
    }
}

/// Checks that `path` names a regular file or nothing.
///
/// # Errors
/// Fails if it names something else, or if no file can have the name.
pub fn refuse_irregular(path: &Path) -> Result<(), Failure> {
    check_name(path)?;
    match file::irregular(path) {
        Some(kind) => {
            let label = Kind::Refused.code("asmpatch::file::irregular");
            let message = format!("{} is {kind}, expected a regular file or nothing", path.display());
            Err(Failure::new(label, message))
        }
        None => Ok(()),
    }
}

/// Checks that `path` may be written: it is a regular file or nothing, is not the input if there is one, and exists only
/// with `force`.
///
/// # Errors
/// Fails if it may not.
pub fn check_output(path: &Path, input: Option<&Path>, force: bool) -> Result<(), Failure> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if file::irregular(path).is_none() && input.is_some_and(|input| same(path, input)) {
        let label = Kind::Refused.code("asmpatch::file::input_is_output");
        return Err(Failure::new(label, format!("{} is the input itself", path.display())));
    }
    refuse_irregular(path)?;
    if force || path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Failure::new(Kind::Refused.code("asmpatch::file::exists"), format!("{} already exists", path.display())))
}

/// Writes files that belong together. The same command twice succeeds: files that already have these contents stay as
/// they are. `input` is the file that they are made from.
///
/// # Errors
/// Fails if one is the input, exists with other contents and without `force`, or can't be written.
pub fn write(files: &[(&Path, &[u8])], input: Option<&Path>, force: bool) -> Result<(), AnyFailure> {
    let mut is_there = true;
    for (path, bytes) in files {
        refuse_irregular(path)?;
        // Read only after that: a pipe would wait for its writer.
        if file::read_regular(path, bytes.len()).is_ok_and(|there| there == *bytes) {
            continue;
        }
        is_there = false;
        check_output(path, input, force).map_err(|failure| match free_name(files[0].0).to_str() {
            Some(free) => failure.naming(Named::File(free.to_owned())),
            None => failure,
        })?;
    }
    if !is_there {
        atomic::write_all(files)?;
    }
    Ok(())
}

/// Returns a name for a new image with its receipt beside it: this one, or the first of `NAME-2.bin` and so on that
/// neither has.
pub fn free_name(named: &Path) -> PathBuf {
    let is_free = |path: &Path| path.symlink_metadata().is_err() && receipt_path(path).symlink_metadata().is_err();
    let stem = named.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = (2..=999).map(|number| named.with_file_name(format!("{stem}-{number}.bin")));
    std::iter::once(named.to_owned()).chain(numbered).find(|path| is_free(path)).unwrap_or(named.to_owned())
}

/// Returns the name of the receipt beside an image: `OUT.toml`.
pub fn receipt_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_not_read_to_its_end() {
        if cfg!(unix) {
            let error = read(Path::new("/dev/zero"), 1000).unwrap_err();
            assert_eq!(error.to_string(), "/dev/zero has too many bytes, expected at most 1000 bytes");
        }
    }

    #[test]
    fn a_file_may_have_exactly_as_many_bytes_as_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, [b'a'; 10]).unwrap();
        assert_eq!(read(&path, 10).unwrap().len(), 10);
        assert!(read(&path, 9).unwrap_err().to_string().ends_with("has 10 bytes, expected at most 9 bytes"));
        fs::write(&path, b"ab\xFFc").unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("the byte at offset 0x2 starts"));
        assert_eq!(read(folder.path(), 10).unwrap_err().code(), "asmpatch::file::folder");
    }
}
