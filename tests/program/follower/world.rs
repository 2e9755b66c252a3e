//! The files of a state, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, known_blocks};
use asm2464::flash::DUMP_LEN;

/// What a unit alone has: a field, and its value as text or in hexadecimal.
pub type Mark = (ConfigField, String);
/// The fields that a unit alone has.
const OWN: [ConfigField; 2] = [ConfigField::Serial, ConfigField::Usb4UniqueId];

/// A file's content, and when it last changed.
#[derive(Clone)]
struct Content {
    bytes: Rc<[u8]>,
    digest: Sha256Digest,
    time: SystemTime,
}

/// Folders and files below a root.
pub struct World {
    files: BTreeMap<PathBuf, Option<Content>>,
    digest: String,
}

impl World {
    /// Reads what is below the root. A file with the length and the time that it has in `last` is taken from there.
    pub fn read(root: &Path, last: Option<&Self>) -> Self {
        let mut files = BTreeMap::new();
        visit(root, Path::new(""), last, &mut files);
        let mut all = Vec::new();
        for (path, content) in &files {
            all.extend(path.to_string_lossy().as_bytes());
            match content {
                Some(content) => {
                    all.push(0);
                    all.extend(content.digest.0);
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

    /// Makes this world of `now`, which is below the root.
    pub fn write(&self, root: &Path, now: &Self) {
        let stays = |path: &Path| match (self.files.get(path), now.files.get(path)) {
            (Some(Some(then)), Some(Some(now))) => then.digest == now.digest && then.time == now.time,
            (Some(None), Some(None)) => true,
            _ => false,
        };
        for (path, content) in now.files.iter().rev().filter(|(path, _)| !stays(path)) {
            let path = root.join(path);
            if content.is_some() { fs::remove_file(path).unwrap() } else { fs::remove_dir(path).unwrap() }
        }
        for (path, content) in self.files.iter().filter(|(path, _)| !stays(path)) {
            let path = root.join(path);
            match content {
                None => fs::create_dir(path).unwrap(),
                Some(Content { bytes, time, .. }) => {
                    fs::write(&path, bytes).unwrap();
                    File::options().write(true).open(&path).unwrap().set_modified(*time).unwrap();
                }
            }
        }
    }

    /// Each unit's folder, with the marks in its flash. A unit whose blocks are damaged has none.
    pub fn units(&self) -> BTreeMap<PathBuf, BTreeSet<Mark>> {
        let flashes = self.files.iter().filter(|(path, _)| path.ends_with("flash.bin"));
        let marked = flashes.filter_map(|(path, content)| Some((path.parent()?, marks_in(&content.as_ref()?.bytes))));
        marked.map(|(folder, marks)| (folder.to_owned(), marks)).collect()
    }

    /// The serial number that a unit shows, if its configuration block 0 is valid.
    pub fn serial(&self, unit: &Path) -> Option<String> {
        let flash = self.bytes(&unit.join("flash.bin"))?;
        block(BlockIndex::Zero, flash.get(..CONFIG_BLOCK_LEN)?).map(|block| block.text(ConfigField::Serial))
    }

    /// The marks in backups that are as their manifests say, and in copies of whole flashes.
    pub fn marks_in_backups(&self) -> BTreeSet<Mark> {
        let mut marks = BTreeSet::new();
        for (path, content) in &self.files {
            let Some(Content { bytes, .. }) = content else { continue };
            if path.ends_with("backup.toml") {
                let manifest = String::from_utf8_lossy(bytes);
                let listed = ["config-0.bin", "config-1.bin"].map(|name| {
                    let file = self.files.get(&path.with_file_name(name)).cloned().flatten()?;
                    manifest.contains(&file.digest.to_string()).then_some(file.bytes)
                });
                if let [Some(zero), Some(one)] = listed {
                    marks.extend(marks_in(&[zero, one].concat()));
                }
            } else if bytes.len() >= DUMP_LEN && !path.ends_with("flash.bin") {
                marks.extend(marks_in(bytes));
            }
        }
        marks
    }

    /// What a unit's flash holds.
    pub fn flash(&self, unit: &str) -> Option<&[u8]> {
        self.bytes(&Path::new("here").join(unit).join("flash.bin"))
    }

    fn bytes(&self, path: &Path) -> Option<&[u8]> {
        Some(&self.files.get(path)?.as_ref()?.bytes)
    }

    /// The unit whose flash is another one in `after`, and which the command doesn't name.
    pub fn other_unit_changed(&self, after: &Self, line: &str) -> Option<String> {
        let digest = |world: &Self, path: &Path| world.files.get(path).cloned().flatten().map(|content| content.digest);
        let units: Vec<&PathBuf> = self.files.keys().filter(|path| path.ends_with("flash.bin")).collect();
        if units.len() < 2 {
            return None;
        }
        for unit in units.into_iter().filter(|path| digest(self, path.as_path()) != digest(after, path.as_path())) {
            let name = unit.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            if !line.contains(&format!("virtual:{name}")) {
                return Some(name.into_owned());
            }
        }
        None
    }
}

fn block(index: BlockIndex, bytes: &[u8]) -> Option<ConfigBlock> {
    ConfigBlock::parse(index, bytes).ok()
}

/// The marks in the two blocks at the beginning. The known blocks have none: every unit may have them.
fn marks_in(flash: &[u8]) -> BTreeSet<Mark> {
    let blocks = flash.get(..2 * CONFIG_BLOCK_LEN).unwrap_or_default().chunks(CONFIG_BLOCK_LEN);
    let blocks = [BlockIndex::Zero, BlockIndex::One].into_iter().zip(blocks);
    let mut marks = BTreeSet::new();
    for block in blocks.filter_map(|(index, bytes)| block(index, bytes)) {
        let known = known_blocks();
        for field in OWN.into_iter().filter(|field| field.block() == block.index()) {
            if field.block().of(&known).field(field) == block.field(field) {
                continue;
            }
            let value = match field {
                ConfigField::Serial => block.text(field),
                _ => block.field(field).iter().map(|byte| format!("{byte:02X}")).collect(),
            };
            marks.insert((field, value));
        }
    }
    marks
}

fn visit(root: &Path, below: &Path, last: Option<&World>, files: &mut BTreeMap<PathBuf, Option<Content>>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            files.insert(path.clone(), None);
            visit(root, &path, last, files);
        } else if kind.is_file() {
            let metadata = entry.metadata().unwrap();
            let time = metadata.modified().unwrap();
            let known = last.and_then(|last| last.files.get(&path).cloned().flatten());
            let known = known.filter(|known| known.time == time && known.bytes.len() as u64 == metadata.len());
            let content = known.unwrap_or_else(|| {
                let bytes: Rc<[u8]> = fs::read(entry.path()).unwrap().into();
                Content { digest: Sha256Digest::of(&bytes), bytes, time }
            });
            files.insert(path, Some(content));
        }
    }
}
