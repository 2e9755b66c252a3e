//! What the unit tests share.

use std::fs;
use std::path::Path;

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
