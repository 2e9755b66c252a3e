//! The states in which the follower begins, and what a user types there.

use std::fs;
use std::path::Path;

use super::world::World;

/// A state: a folder with files and units, an environment, and what a user types in it.
#[derive(Default)]
pub struct State {
    pub name: String,
    /// Each unit's folder and its bridge.toml.
    pub units: Vec<(&'static str, String)>,
    /// Files beside stock.bin and open.bin.
    pub files: Vec<(String, Vec<u8>)>,
    pub env: &'static [(&'static str, &'static str)],
    /// What the shell does before each command.
    pub before: &'static str,
    /// Commands that make the state. Nobody follows what they print.
    pub setup: &'static [&'static str],
    /// What a user types.
    pub commands: Vec<String>,
}

impl State {
    /// Makes the folder `here`, and an empty home.
    pub fn make(&self, root: &Path) -> World {
        let here = root.join("here");
        fs::create_dir(&here).unwrap();
        fs::create_dir(root.join("home")).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = here.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        file("stock.bin", &super::files::stock());
        file("open.bin", &super::files::open());
        for (name, scenario) in &self.units {
            file(&format!("{name}/bridge.toml"), scenario.as_bytes());
        }
        for (name, bytes) in &self.files {
            file(name, bytes);
        }
        World::read(root, None)
    }
}

/// Makes the unit's flash.
const UNIT: &[&str] = &["asmpatch list --device virtual:dock"];
/// The same, and patched.bin.
const UNIT_AND_PATCHED: &[&str] = &["asmpatch list --device virtual:dock", "asmpatch patch stock.bin -o patched.bin"];

/// What looks at a unit, restarts it or measures it.
const LOOKS: &[&str] = &["list", "doctor", "pcie", "pcie reset", "reset", "bench"];
/// What reads and writes a unit.
const WRITES: &[&str] = &[
    "backup",
    "config get",
    "config set serial=DOCK0009",
    "flash stock.bin",
    "flash patched.bin",
    "flash open.bin",
    "flash ed4e39b",
    "restore nowhere",
    "verify patched.bin",
    "xdata read 0xB450",
];

fn on_dock(commands: &[&str]) -> Vec<String> {
    commands.iter().map(|command| format!("asmpatch {command} --device virtual:dock")).collect()
}

/// The unit `dock`, which is looked at, read and written.
fn unit(name: &str, scenario: &str) -> State {
    let commands = on_dock(&[LOOKS, WRITES].concat());
    State { setup: UNIT_AND_PATCHED, commands, ..looked_at(name, scenario) }
}

/// The unit `dock`, which is looked at: what is behind it doesn't change how it is written.
fn looked_at(name: &str, scenario: &str) -> State {
    let units = vec![("dock", format!("serial = 'DOCK0001'\n{scenario}"))];
    State { name: name.to_owned(), units, setup: UNIT, commands: on_dock(LOOKS), ..State::default() }
}

/// A unit on whose wire each command of one kind has a fault.
fn on_the_wire(kind: &str, opcode: &str, factory: &str, command: &str) -> State {
    let fault = format!("factory = '{factory}'\n[[fault]]\nkind = '{kind}'\nopcode = {opcode}\ntimes = 100000\n");
    State { commands: on_dock(&[command]), ..looked_at(&format!("{kind} of {opcode} on {factory}, {command}"), &fault) }
}

/// What a user types with a file; `FILE` stands for it.
const WITH_FILE: &[&str] = &[
    "info FILE",
    "verify FILE",
    "patch FILE -o p.bin",
    "unpatch FILE -o u.bin",
    "flash FILE --device virtual:dock",
    "restore FILE --device virtual:dock",
    "flash stock.bin --config-from FILE --device virtual:dock",
    "run FILE",
    "disasm FILE",
    "wrap FILE -o w.bin",
    "make-patch FILE --site b1:0xEF4F --image stock.bin",
    "download --from FILE -o d.bin",
    "doctor --from FILE",
    "bench --baseline FILE --path e4-255 --device virtual:dock",
];

fn with_file(name: &str, bytes: Vec<u8>) -> State {
    let commands = WITH_FILE.iter().map(|command| format!("asmpatch {}", command.replace("FILE", name))).collect();
    let files = vec![(name.to_owned(), bytes)];
    State { name: format!("file {name}"), files, commands, ..looked_at("", "") }
}

pub fn all() -> Vec<State> {
    let mut states = vec![
        unit("stock", ""),
        unit("open", "factory = 'open'"),
        unit("no image", "factory = 'no-image'"),
        unit("blank", "factory = 'erased'"),
        unit("dead pipes until a CPU reset", "factory = 'open'\nbulk-hangs = 'cpu-reset'"),
        unit("power loss", "power-loss-after = 70000"),
        looked_at("boot loader by its strap", "state = 'boot-loader'"),
        looked_at("absent", "state = 'absent'"),
        looked_at("no GPU", "behind = 'nothing'"),
        looked_at("no GPU, open", "factory = 'open'\nbehind = 'nothing'"),
        looked_at("SSD", "behind = { ssd = { bytes = 67108864 } }"),
        looked_at("SSD, open", "factory = 'open'\nbehind = { ssd = { bytes = 67108864 } }"),
        looked_at("480 Mbit/s", "speed = 'high'"),
        looked_at("480 Mbit/s, open", "factory = 'open'\nspeed = 'high'"),
        looked_at("480 Mbit/s until a reset", "speed = 'high'\nspeed-after-reset = 'super'"),
        looked_at("rails off", "factory = 'open'\npcie-starts-off = true"),
        looked_at("supply fault", "factory = 'open'\nsupply = { voltage-mv = 12000, current-ma = 1500, fault = true }"),
        looked_at(
            "no supply",
            "factory = 'open'\nbehind = 'nothing'\nsupply = { voltage-mv = 0, current-ma = 0, fault = false }",
        ),
        looked_at("dead pipes until strobes", "factory = 'open'\nbulk-hangs = 'strobes'"),
        looked_at("dead pipes until power", "factory = 'open'\nbulk-hangs = 'power'"),
        looked_at("dead pipes, port power", "factory = 'open'\nbulk-hangs = 'power'\nport-power = true"),
        looked_at("tiny-gpu", "behind = 'tiny-gpu'"),
        looked_at(
            "a device that is never ready",
            "behind = 'nothing'\n[[device]]\nat = '0'\nvendor = 0x1002\ndevice = 0x744C\nclass = 0x030000\nanswers = { retry = 1000000 }",
        ),
        looked_at(
            "a device that never answers",
            "behind = 'nothing'\n[[device]]\nat = '0'\nvendor = 0x1002\ndevice = 0x744C\nclass = 0x030000\nanswers = 'never'",
        ),
        looked_at("a link that goes down", "pcie-link-lost-after = 20"),
        looked_at("a link that goes down, open", "factory = 'open'\npcie-link-lost-after = 20"),
        State {
            commands: on_dock(&["flash stock.bin", "flash open.bin"]),
            ..looked_at("protected for good", "factory = 'open'\n[flash]\nprotection = 'for-good'")
        },
        State {
            commands: on_dock(&["flash stock.bin"]),
            ..looked_at("a stuck sector", "factory = 'open'\n[flash]\nstuck-sector = 0x3000")
        },
        State {
            commands: on_dock(&["flash stock.bin", "backup"]),
            ..looked_at("unstable reads", "factory = 'open'\n[flash]\nunstable-reads = 3")
        },
        State {
            commands: on_dock(&["backup --whole-flash", "doctor"]),
            ..looked_at("a flash that nobody knows", "factory = 'open'\n[flash]\njedec-id = 'AA BB CC'")
        },
        State {
            units: vec![("dock", "serial = 'DOCK0001'".to_owned()), ("b", "serial = 'DOCK0001'".to_owned())],
            setup: &["asmpatch list --device virtual:dock", "asmpatch list --device virtual:b"],
            commands: [
                "list --device virtual:dock --device virtual:b",
                "flash stock.bin --device virtual:dock --device virtual:b",
                "flash open.bin --all --device virtual:dock --device virtual:b",
                "flash open.bin --all --serials RACK9 --device virtual:dock --device virtual:b",
                "doctor --device virtual:dock",
                "doctor --device virtual:dock --device virtual:b",
                "doctor --report r.json --device virtual:dock --device virtual:b",
                "restore nowhere --device virtual:b",
            ]
            .map(|command| format!("asmpatch {command}"))
            .to_vec(),
            ..unit("two of one serial number", "")
        },
        State {
            // Another program has the unit.
            before: "if [ -e dock/flash.bin ]; then exec 9<dock/flash.bin; flock -n 9; fi; ",
            ..looked_at("in use", "")
        },
        State {
            env: &[("ASMPATCH_DEVICE", "virtual:dock")],
            setup: &["asmpatch list", "asmpatch doctor --report r.json", "asmpatch backup -o saved"],
            commands: [
                LOOKS,
                WRITES,
                &["backup --list", "doctor --from r.json", "verify stock.bin", "list --known", "restore saved"],
            ]
            .concat()
            .iter()
            .map(|command| format!("asmpatch {command}"))
            .collect(),
            ..unit("ASMPATCH_DEVICE is set", "")
        },
        State {
            commands: [
                "download",
                "download ed4e39b",
                "download 240417 --offline",
                "download ed4e39b --offline -o o.bin",
            ]
            .iter()
            .chain(&[
                "download --from http://127.0.0.1:9/fw.zip",
                "download 240418",
                "download --from stock.bin -o s.bin",
            ])
            .chain(&[
                "download --from http://127.0.0.1:9/fw.zip --offline",
                "patch 240417 -o p.bin",
                "verify ed4e39b",
                "info 240417",
                "help nothing",
            ])
            .map(|command| format!("asmpatch {command}"))
            .collect(),
            ..looked_at("no network", "")
        },
        State {
            before: "trap '' XFSZ; ulimit -f 100; ",
            commands: ["asmpatch patch stock.bin -o p.bin", "asmpatch unpatch stock.bin -o u.bin"]
                .map(str::to_owned)
                .to_vec(),
            ..looked_at("a full disk", "")
        },
        State {
            setup: &[
                "asmpatch list --device virtual:dock",
                "asmpatch patch stock.bin -o patched.bin",
                "asmpatch backup --device virtual:dock -o saved",
            ],
            commands: [
                "info saved",
                "info saved/backup.toml",
                "info patched.bin",
                "info patched.bin.toml",
                "verify patched.bin",
            ]
            .iter()
            .chain(&[
                "flash saved --device virtual:dock",
                "verify saved",
                "patch patched.bin -o again.bin",
                "unpatch patched.bin -o u.bin",
            ])
            .chain(&[
                "patch stock.bin -o patched.bin",
                "backup -o saved --device virtual:dock",
                "restore savd --device virtual:dock",
            ])
            .chain(&[
                "unpatch stock.bin -o u.bin",
                "backup --list",
                "restore saved --device virtual:dock",
                "patch stock.bin -o p.bin --patch nothing",
            ])
            .chain(&[
                "flash patched.bin --device virtual:dock",
                "patch open.bin -o p.bin",
                "virtual set power=1 --device virtual:dock",
            ])
            .chain(&["xdata write 0xC8A9 01 --device virtual:dock", "virtual replug --device virtual:dock"])
            .map(|command| format!("asmpatch {command}"))
            .collect(),
            ..looked_at("what asmpatch has made", "")
        },
        State {
            units: vec![("dock", "serial = 'DOCK0001'".to_owned()), ("b", "serial = 'OTHER002'".to_owned())],
            setup: &[
                "asmpatch list --device virtual:dock",
                "asmpatch backup --device virtual:dock -o own",
                "asmpatch backup --device virtual:b -o other",
            ],
            commands: on_dock(&[
                "restore other",
                "restore wrong.bin",
                "restore missing",
                "flash stock.bin --config-from other",
            ]),
            files: vec![("wrong.bin".to_owned(), b"what is this".to_vec())],
            ..looked_at("another unit's backup", "")
        },
    ];
    for (name, bytes) in super::files::kinds() {
        states.push(with_file(name, bytes));
    }
    for (kind, opcode, factory, command) in [
        ("stall", "0xE4", "stock", "list"),
        ("stall", "0xE2", "stock", "backup"),
        ("stall", "0xE3", "stock", "flash open.bin"),
        ("short-data", "0xE2", "stock", "backup"),
        ("bad-tag", "0xE3", "stock", "flash open.bin"),
        ("phase-error", "0xE3", "stock", "flash open.bin"),
        ("disconnect", "0xE3", "stock", "flash open.bin"),
        ("disconnect", "0xE2", "stock", "backup"),
        ("stall", "0xE4", "open", "list"),
        ("short-data", "0xE4", "open", "backup"),
        ("disconnect", "0xE4", "open", "backup"),
        ("disconnect", "0xE5", "open", "flash stock.bin"),
        ("stall", "0xF0", "open", "pcie"),
    ] {
        states.push(on_the_wire(kind, opcode, factory, command));
    }
    states
}
