//! Users of the system, as owners of files, and the system's name.
//!
//! What root makes in somebody's folder becomes that person's, so that the person can use it without root. The folder
//! alone decides that: sudo's variables can say anything, and other ways to root set none.

use std::fmt;
use std::fs::File;
use std::path::Path;

#[cfg(unix)]
use crate::{folder_of, is_in};

/// A user of the system, by number. Windows has no such numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User(u32);

/// The system's list of its own users. A directory service's users are not in it.
#[cfg(unix)]
const USERS: &str = "/etc/passwd";

impl User {
    /// The user who owns what is at this path, a link itself; `None` if it can't be seen.
    #[cfg(unix)]
    pub fn owner_of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        path.symlink_metadata().ok().map(|metadata| Self(metadata.uid()))
    }

    /// The user with whose rights this process works.
    #[cfg(unix)]
    pub fn current() -> Option<Self> {
        Some(Self(rustix::process::geteuid().as_raw()))
    }

    /// Always `None`: the system has no such numbers.
    #[cfg(not(unix))]
    pub fn owner_of(_path: &Path) -> Option<Self> {
        None
    }

    /// Always `None`: the system has no such numbers.
    #[cfg(not(unix))]
    pub fn current() -> Option<Self> {
        None
    }

    /// Whether this is root.
    pub const fn is_root(self) -> bool {
        self.0 == 0
    }

    /// The name in the system's own list.
    #[cfg(unix)]
    fn name(self) -> Option<String> {
        let users = std::fs::read_to_string(USERS).ok()?;
        name_in(&users, self.0)
    }

    #[cfg(not(unix))]
    fn name(self) -> Option<String> {
        None
    }
}

/// The name of this host; empty if the system has none.
pub fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    name
}

/// The person who gets what root has made in that person's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heir {
    #[cfg(unix)]
    user: u32,
    #[cfg(unix)]
    group: u32,
}

impl Heir {
    /// The heir of what root has just made at `path`; `None` if the process is not root, or if the folder is root's.
    /// Nobody can mislead it by links or by moving folders: what `made` is has to be in the folder that it asks.
    #[cfg(unix)]
    pub(crate) fn of(made: &File, path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let root = User::current().filter(|user| user.is_root())?;
        let folder = File::open(folder_of(path)).ok()?;
        let owner = folder.metadata().ok()?;
        let is_roots = made.metadata().is_ok_and(|made| made.uid() == root.0);
        if owner.uid() == root.0 || !is_roots {
            return None;
        }
        is_in(&folder, path.file_name()?, made).then(|| Self { user: owner.uid(), group: owner.gid() })
    }

    /// Gives what root has made to the heir. If the system refuses that, it stays root's.
    #[cfg(unix)]
    pub(crate) fn give(self, made: &File) {
        let _ = std::os::unix::fs::fchown(made, Some(self.user), Some(self.group));
    }

    /// Always `None`: the system's folders say who may use what is made in them.
    #[cfg(not(unix))]
    pub(crate) fn of(_made: &File, _path: &Path) -> Option<Self> {
        None
    }

    /// Does nothing.
    #[cfg(not(unix))]
    pub(crate) fn give(self, _made: &File) {}
}

/// Gives what has just been made at `path` to its [heir](Heir::of), if it has one.
pub(crate) fn hand_over(made: &File, path: &Path) {
    if let Some(heir) = Heir::of(made, path) {
        heir.give(made);
    }
}

/// Finds a user's name in the lines of passwd(5).
fn name_in(users: &str, number: u32) -> Option<String> {
    let number = number.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, found) = (fields.next()?, fields.next()?, fields.next()?);
        (found == number).then(|| name.to_owned())
    })
}

/// Formats the name, or the number of a user without one.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(&name),
            None => write!(f, "user {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::{atomic, file};

    #[test]
    fn a_user_has_the_name_in_the_systems_list_and_otherwise_a_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!(name_in(users, 1000).as_deref(), Some("me"));
        assert_eq!(name_in(users, 100), None);
        assert_eq!(User(4_000_000_001).to_string(), "user 4000000001");
    }

    #[cfg(unix)]
    #[test]
    fn what_root_makes_in_somebodys_folder_is_that_persons_and_no_link_leads_elsewhere() {
        use std::os::unix::fs::{MetadataExt, chown, symlink};
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        if !User::current().unwrap().is_root() {
            assert_eq!(Heir::of(&File::create(at("mine")).unwrap(), &at("mine")), None);
            return;
        }
        for folder in ["theirs", "roots"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        // In a namespace of users, root may give files only to those that are in it.
        if chown(at("theirs"), Some(4_000_001), Some(4_000_002)).is_err() {
            return;
        }
        atomic::write(&at("theirs/file"), b"x").unwrap();
        file::make_folder(&at("theirs/new/newer")).unwrap();
        drop(file::open_own(&at("theirs/own")).unwrap());
        for path in ["theirs/file", "theirs/new", "theirs/new/newer", "theirs/own"] {
            let metadata = at(path).metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (4_000_001, 4_000_002), "{path}");
        }
        // What was there before stays its owner's.
        std::fs::write(at("theirs/roots"), "x").unwrap();
        drop(file::open_own(&at("theirs/roots")).unwrap());
        file::make_folder(&at("theirs")).unwrap();
        assert_eq!(User::owner_of(&at("theirs/roots")), Some(User(0)));
        // A file that is in another folder than the one that is asked.
        let made = File::create(at("roots/file")).unwrap();
        assert_eq!(Heir::of(&made, &at("roots/file")), None);
        std::fs::write(at("theirs/other"), "x").unwrap();
        symlink(at("roots/file"), at("theirs/link")).unwrap();
        assert_eq!(Heir::of(&made, &at("theirs/link")), None);
        assert_eq!(Heir::of(&made, &at("theirs/other")), None);
    }

    #[cfg(unix)]
    #[test]
    fn what_a_user_makes_is_that_users() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(User::owner_of(folder.path()), User::current());
        assert_eq!(User::owner_of(&folder.path().join("nothing")), None);
    }
}
