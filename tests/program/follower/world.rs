//! The files of a state, in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use asm2464::digest::Sha256Digest;

/// Folders and files below a root, with the time of each file's last change.
pub struct World {
    files: BTreeMap<PathBuf, Option<(Rc<[u8]>, SystemTime)>>,
    digest: String,
}

impl World {
    pub fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        visit(root, Path::new(""), &mut files);
        let mut all = Vec::new();
        for (path, content) in &files {
            all.extend(path.to_string_lossy().as_bytes());
            match content {
                Some((bytes, _)) => {
                    all.push(0);
                    all.extend(Sha256Digest::of(bytes).0);
                }
                None => all.push(1),
            }
        }
        let digest = Sha256Digest::of(&all).to_string();
        Self { files, digest }
    }

    /// Of names and contents.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Replaces what is below the root.
    pub fn write(&self, root: &Path) {
        for entry in fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        for (path, content) in &self.files {
            let path = root.join(path);
            match content {
                None => fs::create_dir(path).unwrap(),
                Some((bytes, time)) => {
                    fs::write(&path, bytes).unwrap();
                    File::options().write(true).open(&path).unwrap().set_modified(*time).unwrap();
                }
            }
        }
    }

    /// The unit that a command doesn't name and that has another flash `after` it.
    pub fn other_unit_changed(&self, after: &Self, line: &str) -> Option<String> {
        let units: Vec<&PathBuf> = self.files.keys().filter(|path| path.ends_with("flash.bin")).collect();
        let is_written = |path: &&&PathBuf| {
            let bytes = |world: &Self| world.files.get(**path).cloned().flatten().map(|(bytes, _)| bytes);
            bytes(self) != bytes(after)
        };
        let name = |path: &&PathBuf| {
            path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
        };
        let changed = units.iter().filter(is_written).map(name);
        let is_only = units.len() == 1;
        changed.into_iter().find(|name| !is_only && !line.contains(&format!("virtual:{name}")))
    }
}

fn visit(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Option<(Rc<[u8]>, SystemTime)>>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            files.insert(path.clone(), None);
            visit(root, &path, files);
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap().into();
            files.insert(path, Some((bytes, entry.metadata().unwrap().modified().unwrap())));
        }
    }
}
