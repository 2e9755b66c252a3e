//! The states in which the follower begins, and what a user types there.

use std::fs;
use std::path::Path;

use asm2464_chip::practice;

use super::world::World;

/// A state: a folder with files and units, an environment, and what a user types in it.
#[derive(Default)]
pub struct State {
    pub name: &'static str,
    /// Each unit's folder and its bridge.toml.
    pub units: &'static [(&'static str, &'static str)],
    /// Further files.
    pub files: Vec<(&'static str, Vec<u8>)>,
    pub env: &'static [(&'static str, &'static str)],
    /// What the shell does first.
    pub before: &'static str,
    /// Commands that make the state. Their output isn't followed.
    pub setup: &'static [&'static str],
    pub commands: &'static [&'static str],
}

impl State {
    /// Makes the folder `here`, and an empty home.
    pub fn make(&self, root: &Path) -> World {
        let here = root.join("here");
        fs::create_dir(&here).unwrap();
        fs::create_dir(root.join("home")).unwrap();
        fs::write(here.join("stock.bin"), practice::image().to_file()).unwrap();
        fs::write(here.join("open.bin"), practice::open_image().to_file()).unwrap();
        for (name, scenario) in self.units {
            fs::create_dir(here.join(name)).unwrap();
            fs::write(here.join(name).join("bridge.toml"), scenario).unwrap();
        }
        for (name, bytes) in &self.files {
            fs::write(here.join(name), bytes).unwrap();
        }
        World::read(root)
    }
}

/// What a user types on a unit.
const ON_UNIT: &[&str] = &[
    "asmpatch list --device virtual:dock",
    "asmpatch doctor --device virtual:dock",
    "asmpatch pcie --device virtual:dock",
    "asmpatch pcie reset --device virtual:dock",
    "asmpatch reset --device virtual:dock",
    "asmpatch bench --device virtual:dock",
    "asmpatch backup --device virtual:dock",
    "asmpatch config get --device virtual:dock",
    "asmpatch config set serial=DOCK0009 --device virtual:dock",
    "asmpatch flash stock.bin --device virtual:dock",
    "asmpatch flash patched.bin --device virtual:dock",
    "asmpatch flash open.bin --device virtual:dock",
    "asmpatch flash ed4e39b --device virtual:dock",
    "asmpatch restore --device virtual:dock",
    "asmpatch verify patched.bin --device virtual:dock",
];

/// Makes patched.bin and the unit's flash.
const PATCH: &[&str] = &["asmpatch patch stock.bin -o patched.bin", "asmpatch list --device virtual:dock"];

/// A unit called `dock` with this scenario.
fn unit(name: &'static str, units: &'static [(&'static str, &'static str)]) -> State {
    State { name, units, setup: PATCH, commands: ON_UNIT, ..State::default() }
}

pub fn all() -> Vec<State> {
    vec![
        unit("stock", &[("dock", "serial = 'DOCK0001'")]),
        unit("open", &[("dock", "serial = 'DOCK0001'\nfactory = 'open'")]),
        unit("boot loader", &[("dock", "serial = 'DOCK0001'\nfactory = 'no-image'")]),
        unit("blank", &[("dock", "factory = 'erased'")]),
        unit("no GPU", &[("dock", "serial = 'DOCK0001'\nbehind = 'nothing'\nfactory = 'open'")]),
        unit("SSD", &[("dock", "serial = 'DOCK0001'\nbehind = { ssd = { bytes = 67108864 } }\nfactory = 'open'")]),
        unit("480 Mbit/s", &[("dock", "serial = 'DOCK0001'\nspeed = 'high'\nfactory = 'open'")]),
        unit("rails off", &[("dock", "serial = 'DOCK0001'\npcie-starts-off = true\nfactory = 'open'")]),
        unit("dead pipes", &[("dock", "serial = 'DOCK0001'\nfactory = 'open'\nbulk-hangs = 'cpu-reset'")]),
        unit("power loss", &[("dock", "serial = 'DOCK0001'\npower-loss-after = 70000")]),
        State {
            setup: &[
                "asmpatch patch stock.bin -o patched.bin",
                "asmpatch list --device virtual:dock",
                "asmpatch list --device virtual:b",
            ],
            ..unit("two of one serial", &[("dock", "serial = 'DOCK0001'"), ("b", "serial = 'DOCK0001'")])
        },
    ]
}
