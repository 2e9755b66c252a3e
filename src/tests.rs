//! What the unit tests share.

use std::fs;
use std::path::{Path, PathBuf};

use asm2464::firmware::{BodyOffset, BridgeState, Image, UsbId};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_files::file;
use asm2464_host::bridge::{BusSpeed, UnitInfo};

/// Reads the TOML files of a folder in the repository: the name for messages, and the text of each.
pub(crate) fn repository(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = file::toml_files(&root.join(folder)).unwrap();
    let read = |path: &Path| {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        (name, fs::read_to_string(path).unwrap())
    };
    files.iter().map(|path| read(path)).collect()
}

/// A unit at this place that runs vendor firmware, with this serial number.
pub(crate) fn unit(place: &str, serial: &str) -> UnitInfo {
    UnitInfo {
        location: place.parse().unwrap(),
        id: UsbId::STOCK,
        state: BridgeState::Vendor,
        manufacturer: String::new(),
        product: String::new(),
        serial: Some(serial.to_owned()).filter(|serial| !serial.is_empty()),
        speed: BusSpeed::Super,
        driver: None,
    }
}

/// The port of a virtual unit in memory, with this `bridge.toml`.
pub(crate) fn virtual_port(scenario: &str) -> VirtualPort {
    let scenario = Scenario::parse(scenario).unwrap();
    VirtualPort::new("unit", VirtualUnit::in_memory(scenario, b"unit", None).unwrap())
}

/// The practice image's open sibling under the name of a build that may not be asked for F4.
pub(crate) fn unknown_open_build() -> Image {
    let (name, other) = (b"custom practice", b"custom unknown!");
    let mut image = practice::open_image();
    let at = image.body().windows(name.len()).position(|bytes| bytes == name).unwrap();
    assert!(image.replace(BodyOffset(at.try_into().unwrap()), other));
    image
}

/// The files of `src` that may import a crate of `model/`. model/README.md says what for.
const DOORS: [&str; 25] = [
    "cli/commands/demo.rs",
    "cli/commands/disasm.rs",
    "cli/commands/doctor/mod.rs",
    "cli/commands/help.rs",
    "cli/commands/patch.rs",
    "cli/commands/run/commands.rs",
    "cli/commands/run/mod.rs",
    "cli/commands/run/observers.rs",
    "cli/commands/run/report.rs",
    "cli/commands/verify.rs",
    "cli/commands/virtual_serve.rs",
    "cli/commands/virtual_unit.rs",
    "cli/commands/wrap.rs",
    "cli/commands/xdata.rs",
    "cli/given/context.rs",
    "cli/given/image_file.rs",
    "cli/given/named_image.rs",
    "cli/given/symbols.rs",
    "doctor/examine.rs",
    "file_kind/mod.rs",
    "image/firmware.rs",
    "image/mod.rs",
    "patch/elf.rs",
    "patch/on_image.rs",
    "unit/selection.rs",
];

/// Adds the files below a folder that have one of these paths outside their tests.
fn add_importers(folder: &Path, paths: &[&str], importers: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test")) {
            continue;
        }
        if path.is_dir() {
            add_importers(&path, paths, importers);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let end = ["mod samples {", "mod tests {"].iter().filter_map(|module| text.find(module)).min();
        let code = text[..end.unwrap_or(text.len())].lines().filter(|line| !line.trim_start().starts_with("//"));
        // An error's code may begin with a crate's name, too.
        let imports = |line: &str| {
            let line = line.replace("asmpatch::tiny_gpu::", "");
            paths.iter().any(|path| line.contains(path))
        };
        if code.into_iter().any(imports) {
            importers.push(path);
        }
    }
}

#[test]
fn the_model_is_imported_through_its_doors_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut importers = Vec::new();
    add_importers(&source, &["asm2464_chip::", "asm2464_dock::", "tiny_gpu::"], &mut importers);
    importers.sort();
    let found: Vec<&Path> = importers.iter().map(|path| path.strip_prefix(&source).unwrap()).collect();
    assert_eq!(found, DOORS.map(Path::new), "model/README.md names the doors");
}

#[test]
fn no_floor_of_the_command_line_reaches_up() {
    let floors = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
    let mut importers = Vec::new();
    add_importers(&floors.join("words"), &["cli::given", "cli::commands", "cli::command("], &mut importers);
    add_importers(&floors.join("given"), &["cli::commands", "cli::command("], &mut importers);
    assert_eq!(importers, [""; 0].map(PathBuf::from));
}
