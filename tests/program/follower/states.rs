//! The states in which the follower begins, and what a user types there.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::world::World;

/// A state: a folder with files and units, an environment, and what a user types in it.
#[derive(Default)]
pub struct State {
    pub name: String,
    /// What the state is about, in a word.
    pub kind: &'static str,
    /// Each unit's folder and its bridge.toml.
    pub units: Vec<(&'static str, String)>,
    /// Files beside stock.bin and open.bin.
    pub files: Vec<(String, Vec<u8>)>,
    pub env: &'static [(&'static str, &'static str)],
    /// What the shell does before each command, once the unit `dock` has its flash.
    pub before: &'static str,
    /// Commands that make the state, behind the one that makes the unit's flash. Nobody follows what they print.
    pub setup: Vec<&'static str>,
    /// What a user types.
    pub commands: Vec<String>,
}

impl State {
    /// A state with the unit `dock`, in which nothing is typed yet.
    pub fn new(name: &str, scenario: &str) -> Self {
        let units = vec![("dock", format!("serial = 'DOCK0001'\n{scenario}"))];
        Self {
            name: name.to_owned(),
            kind: "dock",
            units,
            setup: vec!["asmpatch list --device virtual:dock"],
            ..Self::default()
        }
    }

    pub fn setup(mut self, commands: &[&'static str]) -> Self {
        self.setup.extend(commands);
        self
    }

    pub fn unit(mut self, name: &'static str, serial: &str) -> Self {
        self.units.push((name, format!("serial = '{serial}'")));
        self
    }

    /// A second unit with open firmware.
    pub fn opened(mut self, name: &'static str, serial: &str) -> Self {
        self.units.push((name, format!("serial = '{serial}'\nfactory = 'open'")));
        self
    }

    /// A second unit that isn't on the bus.
    pub fn away(mut self, name: &'static str) -> Self {
        self.units.push((name, "state = 'absent'".to_owned()));
        self
    }

    pub fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), bytes.into()));
        self
    }

    /// What a user types, each behind `asmpatch`.
    pub fn typed(mut self, commands: &[&str]) -> Self {
        self.commands.extend(commands.iter().map(|command| format!("asmpatch {command}")));
        self
    }

    /// The same for the unit.
    pub fn on_dock(self, commands: &[&str]) -> Self {
        self.on("dock", commands)
    }

    /// The same for another unit.
    pub fn on(mut self, unit: &str, commands: &[&str]) -> Self {
        self.commands.extend(commands.iter().map(|command| format!("asmpatch {command} --device virtual:{unit}")));
        self
    }

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

/// Changes a byte of the image in the unit's flash, so that the boot loader starts.
pub const LOSE_IMAGE: &str = "printf '\\001' | dd of=dock/flash.bin bs=1 seek=700 conv=notrunc 2>/dev/null";

/// What looks at a unit, restarts it or measures it.
pub const LOOKS: &[&str] = &["list", "doctor", "pcie", "pcie reset", "reset", "bench"];
/// What reads and writes a unit.
pub const WRITES: &[&str] = &[
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

/// The unit `dock`, which is looked at, read and written.
fn unit(name: &str, scenario: &str) -> State {
    State::new(name, scenario).setup(&["asmpatch patch stock.bin -o patched.bin"]).on_dock(LOOKS).on_dock(WRITES)
}

/// The unit `dock`, which is looked at: what is behind it doesn't change how it is written.
fn looked_at(name: &str, scenario: &str) -> State {
    State { kind: "look", ..State::new(name, scenario) }.on_dock(LOOKS)
}

/// A unit on whose wire each command of one kind has a fault.
fn on_the_wire(kind: &str, opcode: &str, factory: &str, command: &str) -> State {
    let fault = format!("factory = '{factory}'\n[[fault]]\nkind = '{kind}'\nopcode = {opcode}\ntimes = 100000\n");
    let name = format!("{kind} of {opcode} on {factory}, {command}");
    State { kind: "wire", ..State::new(&name, &fault) }.on_dock(&[command])
}

/// A unit with a device that isn't what a GPU is.
fn behind(name: &str, answers: &str) -> State {
    let device = "behind = 'nothing'\n[[device]]\nat = '0'\nvendor = 0x1002\ndevice = 0x744C\nclass = 0x030000";
    looked_at(name, &format!("{device}\nanswers = {answers}"))
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
    let commands: Vec<String> = WITH_FILE.iter().map(|command| command.replace("FILE", name)).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    State { kind: "file", ..State::new(&format!("file {name}"), "") }.file(name, bytes).typed(&commands)
}

/// A manifest of the practice image with the version that ends so, and with these files of the mirror.
fn manifest(id: &str, last: u8, mirror: &str, files: &[&str]) -> Vec<u8> {
    let bytes = super::files::other_version(last);
    let (size, digest) = (bytes.len(), asm2464::digest::Sha256Digest::of(&bytes));
    let mut text = format!("id = '{id}'\nversion = '250717.84.00.{last:02}'\nchip = 'ASM2464PD'\n");
    let _ = write!(text, "size = {size}\nsha256 = '{digest}'\n");
    for file in files {
        let _ = write!(text, "[[mirrors]]\nurl = '{mirror}/{file}'\n");
    }
    text.into_bytes()
}

/// A mirror on this machine, at this address: files that are as the manifests say, and others.
fn mirrored(name: &str, mirror: &str) -> State {
    let mut state = State::new(name, "");
    let gone = ["none.zip", "page.html", "other.bin"];
    for (last, (id, files)) in (0..).zip([("mine", &["image.bin"][..]), ("gone", &gone), ("built", &[])]) {
        state = state.file(&format!("manifests/{id}.toml"), manifest(id, last, mirror, files));
    }
    State { kind: "network", env: &[("NO_PROXY", "127.0.0.1")], ..state }
}

pub fn all(mirror: &str) -> Vec<State> {
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
        behind("a device that is never ready", "{ retry = 1000000 }"),
        behind("a device that never answers", "'never'"),
        looked_at("a link that goes down", "pcie-link-lost-after = 20"),
        looked_at("a link that goes down, open", "factory = 'open'\npcie-link-lost-after = 20"),
        State::new("protected for good", "factory = 'open'\n[flash]\nprotection = 'for-good'")
            .on_dock(&["flash stock.bin", "flash open.bin"]),
        State::new("a stuck sector", "factory = 'open'\n[flash]\nstuck-sector = 0x3000").on_dock(&["flash stock.bin"]),
        State::new("unstable reads", "factory = 'open'\n[flash]\nunstable-reads = 3")
            .on_dock(&["flash stock.bin", "backup"]),
        State::new("a flash that nobody knows", "factory = 'open'\n[flash]\njedec-id = 'AA BB CC'")
            .on_dock(&["backup --whole-flash", "doctor"]),
        State::new("two of one serial number", "")
            .unit("b", "DOCK0001")
            .setup(&["asmpatch list --device virtual:b"])
            .typed(&[
                "list --device virtual:dock --device virtual:b",
                "flash stock.bin --device virtual:dock --device virtual:b",
                "flash open.bin --all --device virtual:dock --device virtual:b",
                "flash open.bin --all --serials RACK9 --device virtual:dock --device virtual:b",
                "doctor --device virtual:dock",
                "doctor --device virtual:dock --device virtual:b",
                "doctor --report r.json --device virtual:dock --device virtual:b",
                "restore nowhere --device virtual:b",
            ]),
        // Another program has the unit.
        State { before: "exec 9<dock/flash.bin; flock -n 9; ", ..looked_at("in use", "") },
        // A virtual machine has it.
        State {
            before: "asmpatch virtual serve --listen unix:s --device virtual:dock >/dev/null 2>&1 & \
                     trap 'kill $!; rm -f s' EXIT; while [ ! -S s ]; do sleep 0.02; done; ",
            ..looked_at("served", "").on_dock(&["virtual replug", "virtual set speed=high"])
        },
        State {
            env: &[("ASMPATCH_DEVICE", "virtual:dock")],
            ..unit("ASMPATCH_DEVICE is set", "")
                .setup(&["asmpatch doctor --report r.json", "asmpatch backup -o saved"])
                .typed(LOOKS)
                .typed(&["backup", "config get", "flash stock.bin", "flash ed4e39b", "xdata read 0xB450"])
                .typed(&["backup --list", "doctor --from r.json", "verify stock.bin", "list --known", "restore saved"])
        },
        // As for a service whose user has no folder.
        State { env: &[("HOME", "/dev/null")], ..State::new("no home", "") }
            .on_dock(&["list", "doctor", "backup", "restore", "flash open.bin", "config set serial=DOCK0009"])
            .typed(&["backup --list", "download", "download --from stock.bin -o s.bin", "patch 240417 -o p.bin"]),
        State::new("no network", "").typed(&[
            "download",
            "download ed4e39b",
            "download 240417 --offline",
            "download ed4e39b --offline -o o.bin",
            "download --from http://127.0.0.1:9/fw.zip",
            "download 240418",
            "download --from stock.bin -o s.bin",
            "download --from http://127.0.0.1:9/fw.zip --offline",
            "patch 240417 -o p.bin",
            "verify ed4e39b",
            "info 240417",
            "help nothing",
        ]),
        mirrored("a mirror", mirror)
            .file("odd/odd.toml", "id = 'odd'\nversion = 'x'\n")
            .file("hidden/odd.toml", manifest(".odd", 0, mirror, &[]))
            .typed(&[
                "download mine --manifest-dir manifests -o m.bin",
                "download gone --manifest-dir manifests",
                "download built --manifest-dir manifests",
                "download mine --manifest-dir manifests --offline",
                "download --manifest-dir odd",
                "download --manifest-dir hidden",
                "download mine --manifest-dir nowhere",
            ])
            .typed(
                &["page.html", "other.bin", "half.bin", "none.zip"]
                    .map(|file| format!("download --from {mirror}/{file}"))
                    .each_ref()
                    .map(String::as_str),
            ),
        mirrored("cached images", mirror).setup(&["asmpatch download mine --manifest-dir manifests"]).typed(&[
            "download mine --manifest-dir manifests --offline -o m.bin",
            "download mine --manifest-dir manifests -o stock.bin",
            "download ed4e39b --offline",
        ]),
        State { before: "trap '' XFSZ; ulimit -f 150; ", ..State::new("a full disk", "") }
            .typed(&["patch stock.bin -o p.bin", "unpatch stock.bin -o u.bin", "download --from stock.bin -o s.bin"])
            .on_dock(&["backup", "backup -o mine", "flash open.bin", "config set serial=DOCK0009"]),
        State::new("what asmpatch has made", "")
            .setup(&["asmpatch patch stock.bin -o patched.bin", "asmpatch backup --device virtual:dock -o saved"])
            .typed(&[
                "info saved",
                "info saved/backup.toml",
                "info patched.bin",
                "info patched.bin.toml",
                "verify patched.bin",
                "verify saved",
                "patch patched.bin -o again.bin",
                "unpatch patched.bin -o u.bin",
                "patch stock.bin -o patched.bin",
                "unpatch stock.bin -o u.bin",
                "backup --list",
                "patch stock.bin -o p.bin --patch nothing",
                "patch open.bin -o p.bin",
            ])
            .on_dock(&[
                "flash saved",
                "backup -o saved",
                "restore savd",
                "restore saved",
                "flash patched.bin",
                "virtual set power=1",
                "xdata write 0xC8A9 01",
                "virtual replug",
            ]),
        State::new("another unit's backup", "")
            .unit("b", "OTHER002")
            .setup(&["asmpatch backup --device virtual:dock -o own", "asmpatch backup --device virtual:b -o other"])
            .file("wrong.bin", "what is this")
            .on_dock(&[
                "restore other",
                "restore wrong.bin",
                "restore missing",
                "restore",
                "flash stock.bin --config-from other",
            ]),
        State::new("another unit's backup for a lost image", "")
            .unit("b", "OTHER002")
            .setup(&["asmpatch backup --device virtual:b -o other", LOSE_IMAGE])
            .on_dock(&["restore other --no-backup", "flash stock.bin --config-from other --no-backup"]),
        State::new("folders that are no backups", "")
            .setup(&[
                "asmpatch backup --device virtual:dock -o damaged; echo x >>damaged/backup.toml",
                "printf 'format = 1' >half/backup.toml",
            ])
            .file("taken/note.txt", "somebody's")
            .file("half/note.txt", "")
            .on_dock(&["restore damaged", "restore half", "restore taken", "backup -o taken"]),
        State::new("a damaged block", "")
            .setup(&["printf '\\001' | dd of=dock/flash.bin bs=1 seek=20 conv=notrunc 2>/dev/null"])
            .on_dock(&["config get", "config set serial=DOCK0009", "flash open.bin", "backup -o kept", "doctor"]),
        State::new("a damaged image", "factory = 'open'").setup(&[LOSE_IMAGE]).on_dock(&[
            "list",
            "config set serial=DOCK0009",
            "flash stock.bin",
            "doctor",
        ]),
        State::new("a version that nobody knows", "")
            .file("version.bin", super::files::other_version(0))
            .setup(&["asmpatch flash version.bin --unproven --other-line --no-backup --yes --device virtual:dock"])
            .on_dock(LOOKS),
        State::new("what stock firmware can't do", "")
            .file("blank.bin", [vec![0xFF; 0x80], super::files::whole_flash()[0x80..].to_vec()].concat())
            .on_dock(&["backup --whole-flash", "restore blank.bin", "pcie write 0x900000000 00", "pcie off"]),
        State::new("limits of a bench", "")
            .setup(&[
                "asmpatch patch stock.bin -o patched.bin",
                "asmpatch flash patched.bin --yes --device virtual:dock",
            ])
            .on_dock(&["bench --path e4-255 --min-mb-s e4-255=100000"]),
        State::new("patches of one's own", "")
            .file("own/empty.toml", "id = 'empty'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = true\n")
            .file("torn/torn.toml", "id = ")
            .file(
                "others/other.toml",
                format!(
                    "id = 'other'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = false\n[[images]]\n\
                     sha256 = '{}'\nname = 'other'\n[[images.hunks]]\nat = 'file:0x2A12'\nexpect = '04'\nnew = '05'\n",
                    "0".repeat(64)
                ),
            )
            .file("late.hex", ":0101000022DC\n:00000001FF\n")
            .typed(&[
                "patch stock.bin -o p.bin --patch-dir own",
                "patch stock.bin -o p.bin --patch-dir torn",
                "patch stock.bin -o p.bin --patch-dir others --patch other",
                "patch open.bin -o p.bin --patch e4-length-16",
                "wrap late.hex -o w.bin",
                "make-patch late.hex --site b1:0xEF4F",
                "verify stock.bin --image 240418",
            ]),
    ];
    states.extend(super::histories::all());
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
        ("disconnect", "0xE8", "stock", "reset"),
        ("disconnect", "0xE8", "stock", "flash open.bin"),
        ("stall", "0xE8", "stock", "reset"),
        ("short-data", "0xF0", "open", "pcie"),
        ("timeout", "0xF0", "open", "pcie"),
        ("timeout", "0xF2", "open", "bench"),
        ("disconnect", "0xF0", "open", "pcie"),
    ] {
        states.push(on_the_wire(kind, opcode, factory, command));
    }
    states
}
