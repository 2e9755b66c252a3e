//! A folder that is filled under a temporary name, then renamed. What is made in it and removed from it goes through
//! handles that stay open, never through a path: somebody with rights in the folder above can put a link, or another
//! folder, where the temporary name was.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::atomic::{BACKUP, DEMO, PREFIX, RANDOM_LEN, lock_new, remove_in};
use crate::file;
use crate::user::Heir;

/// A locked folder, for its owner alone, that is filled under a temporary name. Dropping it removes what was made.
#[derive(Debug)]
pub struct StagedFolder {
    path: PathBuf,
    /// The folder itself, which is also its lock, and the folder above; `None` where the system can't open folders.
    handles: Option<Handles>,
    /// Who gets each new file in the folder, and then the folder, if root makes them for somebody else.
    heir: Option<Heir>,
    /// The names of what was made in it.
    made: Mutex<Vec<String>>,
    /// Whether everything in it goes when it is dropped, whoever made it.
    is_for_demo: bool,
    /// Whether it has its final name.
    is_named: bool,
}

#[derive(Debug)]
struct Handles {
    folder: File,
    parent: File,
}

impl StagedFolder {
    /// Creates a folder for a backup in `parent`, and removes leftovers there.
    ///
    /// # Errors
    /// The system's error.
    pub fn for_backup(parent: &Path) -> io::Result<Self> {
        Self::new(parent, BACKUP, false)
    }

    /// Creates a folder for a demonstration among the system's temporary files, where nobody else can rename it.
    ///
    /// # Errors
    /// The system's error.
    pub fn for_demo() -> io::Result<Self> {
        Self::new(&std::env::temp_dir(), DEMO, true)
    }

    fn new(parent: &Path, kind: &str, is_for_demo: bool) -> io::Result<Self> {
        loop {
            let prefix = format!("{PREFIX}{kind}");
            let mut builder = tempfile::Builder::new();
            builder.prefix(&prefix).rand_bytes(RANDOM_LEN);
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
            // Its own removal would follow the path.
            let path = builder.tempdir_in(parent)?.keep();
            let handles = match file::owner_may_use(&path).and_then(|()| Handles::open(parent, &path)) {
                // Another process removed it as a leftover before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(error);
                }
                Ok(handles) => handles,
            };
            if handles.as_ref().is_none_or(|handles| lock_new(&handles.folder)) {
                if let Some(Handles { folder, .. }) = &handles {
                    remove_in(parent, folder);
                }
                let heir = handles.as_ref().and_then(|handles| Heir::of(&handles.folder, &path));
                return Ok(Self { path, handles, heir, made: Mutex::default(), is_for_demo, is_named: false });
            }
        }
    }

    /// Returns the temporary path. Who has no rights in the folder above can't change what it leads to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file in it, for its owner or heir alone, to the disk.
    ///
    /// # Errors
    /// The system's error, also if there is a file of this name.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = match &self.handles {
            Some(handles) => handles.create(name)?,
            None => {
                let mut options = File::options();
                file::private(options.write(true).create_new(true));
                options.open(self.path.join(name))?
            }
        };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        file::owner_may(&file, 0o600)?;
        file.write_all(bytes)?;
        if let Some(heir) = self.heir {
            heir.give(&file);
        }
        file.sync_all()
    }

    /// Brings the names in it to the disk, where the system lets a program do that.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> io::Result<()> {
        self.handles.as_ref().map_or(Ok(()), |handles| handles.folder.sync_all())
    }

    /// Renames the folder to its final name, beside its temporary one, and gives it to its heir before.
    ///
    /// # Errors
    /// The system's error, and if another folder was put in its place. What was made in it is then removed.
    pub fn persist(mut self, name: &Path) -> io::Result<()> {
        if let (Some(heir), Some(handles)) = (self.heir, &self.handles) {
            heir.give(&handles.folder);
        }
        match &self.handles {
            Some(handles) => handles.rename(&self.path, name)?,
            None => fs::rename(&self.path, name)?,
        }
        self.is_named = true;
        Ok(())
    }
}

/// Removes what was made, even if the process may open no more files.
impl Drop for StagedFolder {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        if self.is_for_demo {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        let made = std::mem::take(self.made.get_mut().unwrap_or_else(PoisonError::into_inner));
        match &self.handles {
            Some(handles) => handles.remove(&self.path, &made),
            None => {
                made.iter().for_each(|name| drop(fs::remove_file(self.path.join(name))));
                let _ = fs::remove_dir(&self.path);
            }
        }
    }
}

#[cfg(not(unix))]
impl Handles {
    // Folders can't be opened there.
    fn open(_parent: &Path, _path: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }

    fn create(&self, _name: &str) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, path: &Path, name: &Path) -> io::Result<()> {
        fs::rename(path, name)
    }

    fn remove(&self, _path: &Path, _made: &[String]) {}
}

#[cfg(unix)]
impl Handles {
    /// Opens a folder that was just made, and the one above.
    fn open(parent: &Path, path: &Path) -> io::Result<Option<Self>> {
        use rustix::fs::{Dir, Mode, OFlags, openat};
        let parent = File::open(parent)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = File::from(openat(&parent, name_in(path)?, flags, Mode::empty())?);
        for entry in Dir::read_from(&folder)? {
            if ![&b"."[..], b".."].contains(&entry?.file_name().to_bytes()) {
                return Err(moved());
            }
        }
        Ok(Some(Self { folder, parent }))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, openat};
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Whether this folder has this name in the folder above.
    fn is_at(&self, name: &std::ffi::OsStr) -> bool {
        crate::is_in(&self.parent, name, &self.folder)
    }

    fn rename(&self, path: &Path, name: &Path) -> io::Result<()> {
        let (old, new) = (name_in(path)?, name_in(name)?);
        if !self.is_at(old) {
            return Err(moved());
        }
        rustix::fs::renameat(&self.parent, old, &self.parent, new)?;
        if self.is_at(new) { Ok(()) } else { Err(moved()) }
    }

    /// Removes these files in the folder, and then the folder, if it is empty and has its name still.
    fn remove(&self, path: &Path, made: &[String]) {
        use rustix::fs::{AtFlags, unlinkat};
        for name in made {
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
        if let Ok(name) = name_in(path)
            && self.is_at(name)
        {
            let _ = unlinkat(&self.parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// A path's last name.
#[cfg(unix)]
fn name_in(path: &Path) -> io::Result<&std::ffi::OsStr> {
    path.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(unix)]
fn moved() -> io::Error {
    io::Error::other("another program has put something else in the place of asmpatch's own folder")
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    /// A folder above, and a backup of somebody's in it.
    fn parent() -> tempfile::TempDir {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("precious")).unwrap();
        fs::write(parent.path().join("precious/backup.toml"), "kept").unwrap();
        parent
    }

    fn is_kept(parent: &Path) -> bool {
        fs::read_to_string(parent.join("precious/backup.toml")).is_ok_and(|text| text == "kept")
    }

    #[test]
    fn a_folder_that_is_swapped_for_a_link_is_not_followed_and_nothing_of_another_is_removed() {
        let parent = parent();
        let at = |name: &str| parent.path().join(name);
        let staged = StagedFolder::for_backup(parent.path()).unwrap();
        staged.write("backup.toml", b"new").unwrap();
        fs::rename(staged.path(), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("precious"), staged.path()).unwrap();
        staged.write("part-1.bin", b"new").unwrap();
        assert!(at("moved/part-1.bin").exists() && !at("precious/part-1.bin").exists());
        assert!(staged.persist(&at("b")).is_err());
        assert!(is_kept(parent.path()) && !at("b").exists());
        // What it made is gone, wherever it was moved.
        assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_swapped_for_another_is_neither_renamed_nor_removed() {
        let parent = parent();
        let at = |name: &str| parent.path().join(name);
        let staged = StagedFolder::for_backup(parent.path()).unwrap();
        let path = staged.path().to_owned();
        staged.write("backup.toml", b"new").unwrap();
        fs::rename(&path, at("moved")).unwrap();
        fs::rename(at("precious"), &path).unwrap();
        drop(staged);
        assert!(path.join("backup.toml").exists());
    }

    #[test]
    fn a_staged_folder_gets_its_name_or_goes_with_all_that_was_made_in_it() {
        let parent = parent();
        let named = StagedFolder::for_backup(parent.path()).unwrap();
        named.write("a", b"1").unwrap();
        assert_eq!(named.write("a", b"2").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        named.sync().unwrap();
        named.persist(&parent.path().join("b")).unwrap();
        assert_eq!(fs::read(parent.path().join("b/a")).unwrap(), b"1");
        let dropped = StagedFolder::for_backup(parent.path()).unwrap();
        dropped.write("a", b"1").unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2, "b, and the other one");
    }
}
