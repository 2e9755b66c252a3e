//! States of units with a history: other tools, other hosts, several backups, changed serial numbers.

use super::files;
use super::states::{LOOKS, State, WRITES};

/// The kind of states in which a unit may lose its identity.
pub const KIND: &str = "history";

/// Another tool erases a part of the first slot, so that the boot loader starts and shows the unit's serial number.
const CUT: &str =
    "head -c 65536 /dev/zero | tr '\\0' '\\377' | dd of=dock/flash.bin bs=4096 seek=8 conv=notrunc 2>/dev/null";
/// Loses all that is in the flash.
const ERASE: &str = "head -c 524288 /dev/zero | tr '\\0' '\\377' >dock/flash.bin";
/// Loses all backups.
const FORGET: &str = "rm -r ../home/.local";
const PATCH: &str = "asmpatch patch stock.bin -o patched.bin";
const CHANGE_USB4_ID: &str = "asmpatch config set usb4-unique-id=1122334455 --yes --device virtual:dock";
const BACK_UP: &str = "asmpatch backup --device virtual:dock";
/// What a user types at a unit whose boot loader has started.
const REPAIRS: &[&str] =
    &["list", "doctor", "restore", "flash patched.bin", "flash stock.bin", "flash open.bin", "config get", "reset"];

/// A unit with the patched image at hand.
fn unit(name: &str, scenario: &str) -> State {
    State::new(name, scenario).setup(&[PATCH])
}

/// A backup that the unit's owner has no right to read.
const CLOSED: &str = "roots=../home/.local/share/asmpatch/backups/roots; \
                      if [ -d $roots ]; then trap 'chmod 700 $roots' EXIT; chmod 0 $roots; fi; ";
const BACK_UP_AS_ROOT: &str = "asmpatch backup --device virtual:dock -o ../home/.local/share/asmpatch/backups/roots";

fn closed(name: &str, setup: &[&'static str]) -> State {
    State { before: CLOSED, ..unit(name, "").setup(setup) }
}

pub fn all() -> Vec<State> {
    let identities = identities().into_iter().map(|state| State { kind: KIND, ..state });
    let names = files_and_folders().into_iter().map(|state| State { kind: "names", ..state });
    identities.chain(names).collect()
}

/// What a write may take from a unit.
fn identities() -> Vec<State> {
    vec![
        unit("cut by another tool, no backup", "").setup(&[CHANGE_USB4_ID, FORGET, CUT]).on_dock(REPAIRS),
        unit("cut by another tool, a backup", "").setup(&[CHANGE_USB4_ID, BACK_UP, CUT]).on_dock(REPAIRS),
        unit("cut by another tool, a backup in a folder of one's own", "")
            .setup(&[CHANGE_USB4_ID, FORGET, "asmpatch backup -o bk1 --device virtual:dock", CUT])
            .on_dock(REPAIRS)
            .typed(&["backup --list"]),
        unit("erased, a backup in a folder of one's own", "")
            .setup(&["asmpatch backup -o bk1 --device virtual:dock", ERASE])
            .on_dock(REPAIRS),
        unit("erased, a backup in another backup folder", "")
            .setup(&["asmpatch backup --backup-dir store --device virtual:dock", ERASE])
            .on_dock(REPAIRS)
            .on_dock(&["restore --backup-dir store", "flash patched.bin --backup-dir store"]),
        unit("erased, at another port", "")
            .setup(&["asmpatch flash open.bin --yes --device virtual:dock", ERASE, "mv dock moved"])
            .typed(&["backup --list"])
            .on("moved", REPAIRS),
        unit("erased, at another port, with backups of two docks", "")
            .unit("b", "OTHER002")
            .setup(&[BACK_UP, "asmpatch backup --device virtual:b", ERASE, "mv dock moved"])
            .on("moved", &["doctor", "restore", "flash patched.bin"])
            .typed(&["backup --list"]),
        unit("a serial number in the boot loader", "state = 'boot-loader'")
            .setup(&["asmpatch virtual set state= --device virtual:dock", CHANGE_USB4_ID, FORGET])
            .setup(&["asmpatch virtual set state=boot-loader --device virtual:dock"])
            .on_dock(REPAIRS)
            .on_dock(&["flash patched.bin --dry-run --no-backup", "flash stock.bin --dry-run --no-backup"]),
        unit("a boot loader by its strap, a backup", "")
            .setup(&[BACK_UP, "asmpatch virtual set state=boot-loader --device virtual:dock"])
            .on_dock(REPAIRS),
        closed("a backup that can't be read, cut", &[BACK_UP_AS_ROOT, CUT]).on_dock(REPAIRS),
        closed("a backup that can't be read, erased", &[BACK_UP_AS_ROOT, ERASE])
            .on_dock(REPAIRS)
            .on_dock(&["flash patched.bin --no-backup"])
            .typed(&["backup --list"]),
        closed(
            "a backup that can't be read, and one that can",
            &[BACK_UP_AS_ROOT, "asmpatch flash open.bin --yes --device virtual:dock", ERASE],
        )
        .on_dock(REPAIRS),
        unit("a damaged backup, erased", "")
            .setup(&[BACK_UP_AS_ROOT, "echo x >>../home/.local/share/asmpatch/backups/roots/firmware.bin", ERASE])
            .on_dock(REPAIRS)
            .typed(&["backup --list"]),
        unit("a changed serial number", "")
            .setup(&["asmpatch config set serial=LAB-07 --yes --device virtual:dock"])
            .on_dock(&["list", "doctor", "restore", "flash open.bin", "config set serial=LAB-08"]),
        unit("a serial number that was not quite changed", "")
            .setup(&[
                "asmpatch virtual set power-loss-after=100 --device virtual:dock",
                "asmpatch config set serial=LAB-07 --yes --device virtual:dock",
                "asmpatch virtual set power-loss-after= --device virtual:dock",
            ])
            .on_dock(REPAIRS),
        unit("several backups", "")
            .setup(&[
                "asmpatch flash open.bin --yes --device virtual:dock",
                "asmpatch flash patched.bin --yes --device virtual:dock",
                "asmpatch flash stock.bin --yes --device virtual:dock",
                "asmpatch flash open.bin --yes --device virtual:dock",
                "asmpatch flash patched.bin --yes --device virtual:dock",
            ])
            .on_dock(&["restore", "doctor"])
            .typed(&["backup --list"]),
        unit("two docks, two backups", "")
            .unit("b", "OTHER002")
            .setup(&[BACK_UP, "asmpatch backup --device virtual:b", CUT])
            .on_dock(REPAIRS)
            .typed(&["flash open.bin --device virtual:dock --device virtual:b"]),
        State::new("another dock's copy of its flash", "")
            .opened("b", "OTHER002")
            .setup(&["asmpatch backup --whole-flash --device virtual:b -o whole", "cp whole/flash-whole.bin dump.bin"])
            .on_dock(&["restore dump.bin", "flash dump.bin", "flash stock.bin --config-from dump.bin"]),
        State::new("its own copy of its flash, erased", "").setup(&["cp dock/flash.bin dump.bin", ERASE]).on_dock(&[
            "restore dump.bin",
            "flash dump.bin",
            "flash stock.bin --config-from dump.bin",
        ]),
        unit("a read that times out", "[[fault]]\nkind = 'timeout'\nopcode = 0xE2\nnth = 2")
            .on_dock(&["flash patched.bin", "backup"]),
        unit("a reset that takes the unit away", "[[fault]]\nkind = 'disconnect'\nopcode = 0xE8")
            .on_dock(&["flash patched.bin", "flash open.bin"]),
        unit("permissions without need", "").on_dock(&[
            "flash patched.bin --unproven --clone-identity --other-line --no-backup",
            "flash open.bin --unproven --clone-identity --other-line",
            "flash open.bin --no-backup",
        ]),
        unit("permissions without need, power loss", "power-loss-after = 70000")
            .on_dock(&["flash patched.bin --unproven --clone-identity --other-line --no-backup"]),
        unit("an SSD, then open firmware", "behind = { ssd = { bytes = 67108864 } }")
            .setup(&["asmpatch flash open.bin --yes --device virtual:dock"])
            .on_dock(LOOKS)
            .on_dock(&["flash patched.bin", "flash stock.bin"]),
        unit("an SSD, then the patched image", "behind = { ssd = { bytes = 67108864 } }")
            .setup(&["asmpatch flash patched.bin --yes --device virtual:dock"])
            .on_dock(LOOKS)
            .on_dock(&["flash open.bin", "flash stock.bin"]),
        unit("protected for good, and another", "factory = 'open'\n[flash]\nprotection = 'for-good'")
            .unit("b", "OTHER002")
            .typed(&["flash stock.bin --all-or-none --device virtual:dock --device virtual:b"]),
    ]
}

/// What a user's folders and names are.
fn files_and_folders() -> Vec<State> {
    let patch = format!(
        "id = 'mine'\ntitle = 'Mine'\npurpose = 'A test.'\nsource = 'Nobody.'\ndefault = true\n[[images]]\n\
         sha256 = '{}'\nname = 'practice'\n[[images.hunks]]\nat = 'file:0x{:X}'\nexpect = '{:02X}'\nnew = '77'\n",
        asm2464::digest::Sha256Digest::of(&files::stock()),
        0x1_0004,
        files::stock()[0x1_0004],
    );
    vec![
        unit("a folder that has files and backups", "")
            .setup(&[
                "asmpatch patch stock.bin --patch e4-length-16 -o p.bin",
                "asmpatch backup -o saved --device virtual:dock",
            ])
            .setup(&["cp p.bin o.bin; cp p.bin m.bin; cp p.bin u.bin; cp p.bin ed4e39b.bin; cp p.bin 240417.bin"])
            .setup(&["cp -r saved nowhere; echo '{}' >r.json; echo '{}' >report.json; mkdir backups"])
            .on_dock(LOOKS)
            .on_dock(WRITES)
            .on_dock(&["backup -o saved", "doctor --report r.json"])
            .typed(&["patch stock.bin -o patched.bin", "download --from stock.bin -o m.bin", "unpatch p.bin -o u.bin"]),
        State { env: &[("ASMPATCH_CACHE_DIR", "/dev/null/cache")], ..State::new("a cache that can't be made", "") }
            .typed(&["patch 240417 -o p.bin", "verify ed4e39b", "download ed4e39b", "info ed4e39b"])
            .on_dock(&["flash ed4e39b"]),
        State::new("a placeholder", "")
            .unit("b", "DOCK0001")
            .setup(&["asmpatch list --device virtual:b"])
            .typed(&["doctor --device virtual:dock --device virtual:b"])
            .on_dock(&["config set serial=TEXT", "flash IMAGE", "restore DIR"]),
        State::new("a patch of one's own for this image", "")
            .file("mine/mine.toml", patch)
            .typed(&["patch stock.bin -o m.bin --patch-dir mine", "verify m.bin", "verify m.bin --patch-dir mine"])
            .on_dock(&["flash m.bin"]),
        State::new("options that a command doesn't have", "")
            .on_dock(&["config set --serial X", "flash --from stock.bin", "xdata read --length 4 0xB450"])
            .typed(&["patch stock.bin --output p.bin", "info --device virtual:dock"]),
        State::new("set where nothing takes it", "")
            .on_dock(&["virtual set serial=NEW", "virtual set speed=high", "virtual set state=absent"])
            .on_dock(&["virtual set behind=nothing", "virtual set power-loss-after=0", "virtual set bulk-hangs=true"]),
        State::new("one unit of two is away", "")
            .away("b")
            .typed(&[
                "doctor --device virtual:dock --device virtual:b",
                "list --device virtual:dock --device virtual:b",
            ])
            .typed(&["flash open.bin --device virtual:dock --device virtual:b"])
            .typed(&["flash open.bin --all --device virtual:dock --device virtual:b"]),
        State::new("names that a user tries", "")
            .setup(&["asmpatch backup -o saved --device virtual:dock"])
            .typed(&["info ed4e39b", "run practice", "disasm ed4e39b", "unpatch 240417 -o u.bin", "verify practice"])
            .typed(&["info saved", "patch saved -o p.bin", "restore saved/firmware.bin --device virtual:dock"])
            .on_dock(&["flash saved", "flash saved/firmware.bin", "flash practice", "flash -", "restore -"])
            .on_dock(&["flash http://127.0.0.1:9/fw.bin", "restore stock.bin"]),
    ]
}
