//! What the commands say about a unit agrees: each command is asked about each unit of a table, and what it says is
//! held against the table.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use asm2464::firmware::{BodyOffset, BridgeState, Image, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{Behind, Port as _, Storage};
use asmpatch::doctor::{DoctorOptions, Wanted, diagnose, examine};
use asmpatch::flash::access::Access;
use asmpatch::flash::observe::{Observation, ObservedFirmware};
use asmpatch::restart::{Level, RestartOptions, restart};
use asmpatch::unit::{Purpose, spare_ssd};
use serde_json::Value;

use crate::chip_images::{new_open, open, patched, path, vendor, vendor_231204};
use crate::unit::rig::unit;

/// What a unit is. A fact that is `None` can't be known, so no command may claim it.
#[derive(Debug, Clone, Copy)]
struct Truth {
    state: &'static str,
    /// Whether an SSD is behind it.
    ssd: Option<bool>,
    /// Whether its PCIe link is up once PCIe is switched on.
    link: Option<bool>,
    /// Whether its firmware leaves PCIe off until a runtime switches it on (F3).
    waits_for_f3: bool,
    /// Whether its bulk pipes move data.
    pipes: Option<bool>,
    /// Whether a GPU that a runtime drives is where the runtime looks.
    gpu: Option<bool>,
    /// Whether its USB link is slower than 5 Gbit/s.
    slow: bool,
    can_start: bool,
    /// Whether a bench measures every path that its firmware has.
    measurable: bool,
}

/// The IDs of open images.
const RUNTIMES_IDS: [UsbId; 2] = [UsbId::PATCHED, UsbId { vendor: 0x3801, product: 0x0001 }];

/// A unit with open firmware and a GPU, at which nothing is wrong.
const GOOD: Truth = Truth {
    state: "open-firmware",
    ssd: None,
    link: Some(true),
    waits_for_f3: false,
    pipes: Some(true),
    gpu: Some(true),
    slow: false,
    can_start: true,
    measurable: true,
};
/// A unit with the vendor's firmware, which no runtime drives, and which never answers a WRITE(16) over UAS with
/// streams.
const VENDOR: Truth = Truth { state: "vendor", ssd: Some(false), can_start: false, measurable: false, ..GOOD };
const WITH_SSD: Truth = Truth { ssd: Some(true), link: None, gpu: Some(false), measurable: false, ..VENDOR };
const BOOT_LOADER: Truth = Truth {
    state: "boot-loader",
    ssd: None,
    link: None,
    waits_for_f3: false,
    pipes: None,
    gpu: None,
    slow: false,
    can_start: false,
    measurable: false,
};

/// The firmware of a unit in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flashed {
    /// What the scenario's `factory` says.
    Factory,
    /// The image that this variable names.
    Image(&'static str),
    /// 240417 with the default patches, as a runtime looks for it.
    Patched,
    /// The open image that this variable names, without the call that switches PCIe on at its start.
    WaitsForF3(&'static str),
    /// The open image that this variable names, under ADD1:0002.
    OtherId(&'static str),
    /// The practice image that stands in for open firmware, under ADD1:0002.
    PracticeOtherId,
}

/// The call of ed4e39b that switches PCIe on at its start. Builds that wait for F3, such as quiet1, leave it out.
const SWITCHES_PCIE_ON: BodyOffset = BodyOffset(0x205A);

/// A row of the table: a name, the firmware, the lines of the scenario, and what is true.
type Unit = (&'static str, Flashed, &'static [&'static str], Truth);

const SSD: &str = "behind = { ssd = { bytes = 67108864 } }";
const NO_CARD: &str = "behind = 'nothing'";
const SLOW: &str = "speed = 'high'";
const OPEN: Flashed = Flashed::Image("ASMPATCH_OPEN_NEW_IMAGE");
const STOCK: Flashed = Flashed::Image("ASMPATCH_VENDOR_IMAGE");
const LATE: Flashed = Flashed::WaitsForF3("ASMPATCH_OPEN_NEW_IMAGE");

/// A GPU on bus 4, behind two switches, as on real cards.
macro_rules! card {
    ($id:literal) => {
        concat!(
            "[[device]]\nat = '0'\nvendor = 0x1B21\ndevice = 0x2461\n",
            "[[device]]\nat = '0/0'\nvendor = 0x1002\ndevice = 0x1478\n",
            "[[device]]\nat = '0/0/0'\nvendor = 0x1002\ndevice = 0x1479\n",
            "[[device]]\nat = '0/0/0/0'\n",
            $id,
            "\nclass = 0x030000\nbar = [{ bytes = 0x10000000, is-64 = true, prefetchable = true }]\n"
        )
    };
}
const RDNA4: &str = card!("vendor = 0x1002\ndevice = 0x7590");
const RDNA2: &str = card!("vendor = 0x1002\ndevice = 0x73FF");
const NVIDIA: &str = card!("vendor = 0x10DE\ndevice = 0x2204");
/// A GPU right behind the root port.
const ON_BUS_1: &str = "[[device]]\nat = '0'\nvendor = 0x1002\ndevice = 0x7590\nclass = 0x030000\n\
                        bar = [{ bytes = 0x10000000, is-64 = true, prefetchable = true }]\n";

/// A unit whose pipes hang until a cure.
const HANGING: Truth = Truth { pipes: Some(false), can_start: false, measurable: false, ..GOOD };
/// A unit with open firmware on which no runtime can start, and one without a GPU that a runtime drives.
const STUCK: Truth = Truth { can_start: false, ..GOOD };
const NO_GPU: Truth = Truth { gpu: Some(false), ..STUCK };
const VENDOR_HANGING: Truth =
    Truth { ssd: None, link: None, pipes: Some(false), gpu: None, measurable: false, ..VENDOR };

/// Units of asmpatch's own images.
const PRACTICE: &[Unit] = &[
    ("practice, SSD", Flashed::Factory, &[SSD], WITH_SSD),
    ("practice, GPU on bus 4", Flashed::Factory, &[RDNA4], VENDOR),
    ("practice open, GPU on bus 4", Flashed::Factory, &["factory = 'open'", RDNA4], GOOD),
    ("practice open, GPU on bus 1", Flashed::Factory, &["factory = 'open'", ON_BUS_1], NO_GPU),
    ("practice open, another ID", Flashed::PracticeOtherId, &[RDNA4], STUCK),
    ("practice, slow", Flashed::Factory, &[SLOW, RDNA4], Truth { slow: true, measurable: true, ..VENDOR }),
    ("practice, no card", Flashed::Factory, &[NO_CARD], Truth { link: Some(false), gpu: Some(false), ..VENDOR }),
    ("boot loader", Flashed::Factory, &["factory = 'no-image'"], BOOT_LOADER),
    ("practice, template serial", Flashed::Factory, &["serial = 'AAAABBBB0004'", RDNA4], VENDOR),
    ("practice, dead pipes", Flashed::Factory, &["bulk-hangs = 'power'", RDNA4], VENDOR_HANGING),
];

/// Units of the vendor's image and the open one.
const IMAGES: &[Unit] = &[
    ("240417, SSD", STOCK, &[SSD], WITH_SSD),
    ("240417, GPU on bus 4", STOCK, &[RDNA4], VENDOR),
    ("patched, GPU on bus 4", Flashed::Patched, &[RDNA4], Truth { can_start: true, measurable: true, ..VENDOR }),
    ("patched, SSD", Flashed::Patched, &[SSD], WITH_SSD),
    ("open, GPU on bus 4", OPEN, &[RDNA4], GOOD),
    ("open, GPU on bus 1", OPEN, &[ON_BUS_1], NO_GPU),
    ("open, NVIDIA", OPEN, &[NVIDIA], NO_GPU),
    ("open, RDNA 2", OPEN, &[RDNA2], NO_GPU),
    ("open, no card", OPEN, &[NO_CARD], Truth { link: Some(false), ..NO_GPU }),
    ("open, pipes hang until power", OPEN, &["bulk-hangs = 'power'", RDNA4], HANGING),
    ("open, pipes hang until the CPU reset", OPEN, &["bulk-hangs = 'cpu-reset'", RDNA4], HANGING),
    ("open, pipes hang until strobes", OPEN, &["bulk-hangs = 'strobes'", RDNA4], HANGING),
    ("open, slow", OPEN, &[SLOW, RDNA4], Truth { slow: true, ..STUCK }),
    ("open, supply off", OPEN, &["supply = { voltage-mv = 300, current-ma = 0 }", RDNA4], STUCK),
    ("open, waits for F3", LATE, &[RDNA4], Truth { waits_for_f3: true, ..GOOD }),
    ("open, waits for F3, no card", LATE, &[NO_CARD], Truth { waits_for_f3: true, link: Some(false), ..NO_GPU }),
    ("open, another ID", Flashed::OtherId("ASMPATCH_OPEN_NEW_IMAGE"), &[RDNA4], STUCK),
];

/// A fact that a command says, under its name.
type Facts = BTreeMap<&'static str, String>;

fn say(facts: &mut Facts, fact: &'static str, value: impl Debug) {
    let value = format!("{value:?}");
    facts
        .entry(fact)
        .and_modify(|before| {
            if *before != value {
                *before = format!("{before} and {value}");
            }
        })
        .or_insert(value.clone());
}

/// What the table says of a unit.
fn expected(truth: &Truth) -> Facts {
    let known = [
        ("SSD", truth.ssd),
        ("link", truth.link.map(|is_up| is_up && !truth.waits_for_f3)),
        ("link with PCIe on", truth.link),
        ("pipes", truth.pipes),
        ("GPU", truth.gpu),
        ("slow", Some(truth.slow)),
        ("can start", Some(truth.can_start)),
        ("measurable", Some(truth.measurable)),
    ];
    let mut facts = Facts::new();
    say(&mut facts, "state", truth.state);
    for (fact, value) in known {
        if let Some(value) = value {
            say(&mut facts, fact, value);
        }
    }
    facts
}

/// What one key of a command's JSON says.
type Says = fn(&mut Facts, &Value);

/// Which key of which command says something about a unit, and what: a command, a JSON pointer, and a reader.
const SAID: &[(&str, &str, Says)] = &[
    ("list", "/units/0/state", state),
    ("list", "/units/0/speed", speed),
    ("list", "/units/0/behind", behind),
    ("doctor", "/state", state),
    ("doctor", "/speed", speed),
    ("doctor", "/runtime", |facts, runtime| say(facts, "can start", !runtime.is_null())),
    // One of the lines decides, and it is named.
    ("doctor", "/because", |facts, because| say(facts, "can start", *because == Value::Array(Vec::new()))),
    ("doctor", "/lines", lines),
    ("bench", "/unit/state", state),
    ("bench", "/unit/behind", behind),
    ("bench", "/unit/behind", behind_with_pcie_on),
    ("bench", "/rows", rows),
    ("flash --dry-run", "/0/before/state", state),
    ("flash --dry-run", "/0/before/speed", speed),
    ("flash --dry-run", "/0/behind", behind),
    ("pcie", "/link/is_up", |facts, is_up| {
        if let Some(is_up) = is_up.as_bool() {
            say(facts, "link", is_up);
            say(facts, "SSD", false);
        }
    }),
    // A link that is down may only need F3: the error names what sends that.
    ("pcie", "/error", |_, error| {
        let is_down = error["code"] == "asmpatch::pcie::link_down";
        assert!(!is_down || error["help"].as_str().unwrap().contains("    asmpatch pcie on"), "{error}");
    }),
    ("reset", "/before/state", state),
    ("reset", "/before/speed", speed),
    ("reset", "/before/faults", faults),
    ("reset", "", |facts, page| {
        if has_link_down(&page["before"]) {
            say(facts, "link with PCIe on", !has_link_down(&page["after"]));
        }
    }),
];

/// What each command says, from its JSON and its status.
fn said(command: &str, page: &Value, status: i32) -> Facts {
    let mut facts = Facts::new();
    let code = page["error"]["code"].as_str().unwrap_or_default();
    if code.ends_with("::ssd") {
        say(&mut facts, "SSD", true);
    }
    if code.ends_with("::link_down") || code.ends_with("::stays_down") {
        say(&mut facts, "link", false);
    }
    match command {
        "doctor" => say(&mut facts, "can start", status == 0),
        "bench" => say(&mut facts, "measurable", status == 0),
        "xdata write" if status == 0 => say(&mut facts, "SSD", false),
        _ => {}
    }
    for (_, key, says) in SAID.iter().filter(|(who, _, _)| *who == command) {
        if let Some(value) = page.pointer(key) {
            says(&mut facts, value);
        }
    }
    facts
}

fn state(facts: &mut Facts, state: &Value) {
    if let Some(state) = state.as_str() {
        say(facts, "state", state);
    }
}

fn speed(facts: &mut Facts, speed: &Value) {
    if let Some(speed) = speed.as_str() {
        say(facts, "slow", !speed.starts_with("super"));
    }
}

/// An SSD, as [`Behind`] words it.
fn behind(facts: &mut Facts, behind: &Value) {
    let Some(words) = behind.as_str() else { return };
    if words.starts_with("SSD") && !words.contains("can't tell") {
        say(facts, "SSD", true);
    } else if words.starts_with("no SSD") {
        say(facts, "SSD", false);
    }
}

/// The bench has switched PCIe on.
fn behind_with_pcie_on(facts: &mut Facts, behind: &Value) {
    let Some(words) = behind.as_str() else { return };
    if words.contains("the PCIe link is down") {
        say(facts, "link with PCIe on", false);
    } else if words.contains(" at 04:00.0") {
        say(facts, "link with PCIe on", true);
    }
}

/// The bench's rows.
fn rows(facts: &mut Facts, rows: &Value) {
    let f2 = rows.as_array().into_iter().flatten().find(|row| row["path"] == "f2-out");
    match f2.and_then(|row| row["outcome"].as_str()) {
        Some("measured") => say(facts, "pipes", true),
        Some("no-answer") => say(facts, "pipes", false),
        _ => {}
    }
}

/// The lines of `doctor`.
fn lines(facts: &mut Facts, lines: &Value) {
    let lines = lines.as_array().unwrap();
    say(facts, "can start", !lines.iter().any(|line| line["verdict"] == "bad"));
    for line in lines {
        let found = line["found"].as_str().unwrap();
        let is_initialised = found.contains("a GPU runtime has initialised");
        if is_initialised || found.contains("an SSD") {
            say(facts, "SSD", !is_initialised);
        }
        let is_good = match line["verdict"].as_str().unwrap() {
            "good" => true,
            "bad" => false,
            _ => continue,
        };
        match line["topic"].as_str().unwrap() {
            "PCIe link" => {
                say(facts, "link", is_good && !found.contains("before, it was down"));
                say(facts, "link with PCIe on", is_good);
            }
            "bulk pipes" => say(facts, "pipes", is_good),
            "GPU" => say(facts, "GPU", is_good),
            "USB" => say(facts, "slow", !is_good),
            _ => {}
        }
    }
}

/// The faults that `reset` found.
fn faults(facts: &mut Facts, faults: &Value) {
    for kind in faults.as_array().into_iter().flatten().filter_map(|fault| fault["kind"].as_str()) {
        match kind {
            "bulk" | "silent" => say(facts, "pipes", false),
            "pcie-link" => say(facts, "link", false),
            "slow" => say(facts, "slow", true),
            _ => {}
        }
    }
}

fn has_link_down(condition: &Value) -> bool {
    condition["faults"].as_array().into_iter().flatten().any(|fault| fault["kind"] == "pcie-link")
}

fn run(home: &Path, words: &[&str]) -> (Value, i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
    command.current_dir(home).env("ASMPATCH_CONFIG", "").env("ASMPATCH_BACKUP_DIR", "backups");
    command.env("XDG_DATA_HOME", home.join("data")).args(words);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    (serde_json::from_slice(&output.stdout).unwrap_or_default(), output.status.code().unwrap_or(-1), text)
}

/// The commands that say something about a unit. The one that restarts it comes last.
const COMMANDS: &[(&str, &str)] = &[
    ("list", "list --json"),
    ("doctor", "doctor --json"),
    ("bench", "bench --json --seconds 0.01 --repetitions 1 --timeout 0.5"),
    ("flash --dry-run", "flash other.bin --dry-run --json"),
    ("pcie", "pcie --json"),
    ("xdata write", "xdata write 0x5ff0 5a --json"),
    ("reset", "reset --json"),
];

/// Flashes a unit and asks every command about it. Returns each contradiction, in words.
fn contradictions((name, flashed, scenario, truth): &Unit) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("unit")).unwrap();
    let file = home.path().join("image.bin");
    match flashed {
        Flashed::Factory => {}
        Flashed::Image(variable) => drop(fs::copy(path(variable), &file).unwrap()),
        Flashed::Patched => {
            let (_, status, text) = run(home.path(), &["patch", &path("ASMPATCH_VENDOR_IMAGE"), "-o", "image.bin"]);
            assert_eq!(status, 0, "{text}");
        }
        Flashed::WaitsForF3(variable) => {
            let mut image = Image::parse(&fs::read(path(variable)).unwrap()).unwrap();
            assert_eq!(image.body()[SWITCHES_PCIE_ON.0 as usize..][..3], [0x12, 0x16, 0x38]);
            assert!(image.replace(SWITCHES_PCIE_ON, &[0; 3]));
            fs::write(&file, image.to_file()).unwrap();
        }
        Flashed::OtherId(variable) => {
            let image = Image::parse(&fs::read(path(variable)).unwrap()).unwrap();
            fs::write(&file, other_id(image).to_file()).unwrap();
        }
        Flashed::PracticeOtherId => fs::write(&file, other_id(practice::open_image()).to_file()).unwrap(),
    }
    fs::write(home.path().join("other.bin"), practice::image().to_file()).unwrap();
    if *flashed != Flashed::Factory {
        let words = ["flash", "image.bin", "--device", "virtual:unit", "--yes", "--no-backup", "--force"];
        let (_, status, text) = run(home.path(), &words);
        assert_eq!(status, 0, "{name}: {text}");
    }
    fs::write(home.path().join("unit/bridge.toml"), scenario.join("\n")).unwrap();
    let expected = expected(truth);
    let mut found = Vec::new();
    for (command, words) in COMMANDS {
        let words: Vec<&str> = words.split(' ').chain(["--device", "virtual:unit"]).collect();
        let (page, status, text) = run(home.path(), &words);
        for (fact, says) in said(command, &page, status) {
            if expected.get(fact).is_some_and(|expected| *expected != says) {
                found.push(format!("{name}: {command} says {fact} {says}, and {} is right\n{text}", expected[fact]));
            }
        }
    }
    found
}

/// Gives open firmware the ID ADD1:0002, in its device descriptors.
fn other_id(mut image: Image) -> Image {
    let body = image.body().to_vec();
    let at = |id: UsbId| {
        let bytes = [id.vendor.to_le_bytes(), id.product.to_le_bytes()].concat();
        let places = (0..body.len()).filter(|at| body[*at..].starts_with(&bytes));
        places.map(|at| BodyOffset(at.try_into().unwrap())).collect::<Vec<BodyOffset>>()
    };
    for at in RUNTIMES_IDS.into_iter().flat_map(at) {
        assert!(image.replace(at, &[0xD1, 0xAD, 0x02, 0x00]));
    }
    image
}

fn assert_agreement(units: &[Unit]) {
    let found: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = units.iter().map(|unit| scope.spawn(|| contradictions(unit))).collect();
        running.into_iter().flat_map(|unit| unit.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_two_commands_contradict_each_other_about_a_unit() {
    assert_agreement(PRACTICE);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_OPEN_NEW_IMAGE"]
fn no_two_commands_contradict_each_other_about_a_unit_of_the_vendors_and_the_open_image() {
    assert_agreement(IMAGES);
}

/// Whether an SSD is seen behind a unit; `None` if the one who asks doesn't say.
type Asks = fn(&mut VirtualPort) -> Option<bool>;

/// Those who ask a unit with the vendor's firmware, and may leave it changed: commands of asmpatch, and a kernel's
/// driver that was bound before.
const ASKERS: &[(&str, Asks)] = &[
    ("list", |port| {
        Some(is_ssd(&ObservedFirmware::of(&mut Access::open(port).unwrap(), BridgeState::Vendor).unwrap().behind()))
    }),
    ("doctor", |port| {
        let (info, images) = (port.attached().unwrap(), asmpatch::embedded::patches().unwrap().into());
        let seen = examine(port, info, DoctorOptions::default(), &images, Interrupt::never()).unwrap();
        let sees_ssd = seen.storage.as_ref().map(|storage| is_ssd(&storage.behind()));
        assert_eq!(seen.link.is_not_asked(), sees_ssd == Some(true), "{seen:#?}");
        sees_ssd
    }),
    ("flash", |port| Some(is_ssd(&Observation::of(port, Interrupt::never()).unwrap().behind()))),
    ("bench", |port| Some(refuses(port, Purpose::Bench))),
    ("pcie", |port| Some(refuses(port, Purpose::Pcie))),
    ("xdata", |port| Some(refuses(port, Purpose::Xdata))),
    ("INQUIRY", |port| port.open().unwrap().inquiry().map(|_| None).unwrap()),
    ("READ CAPACITY", |port| port.open().unwrap().read_capacity(asm2464::scsi::Lun::ZERO).ok().and(None)),
    ("READ", |port| port.open().unwrap().read16(0, &mut [0; 512]).ok().and(None)),
];

const fn is_ssd(behind: &Behind) -> bool {
    matches!(behind, Behind::Ssd(_))
}

fn refuses(port: &mut VirtualPort, purpose: Purpose) -> bool {
    let behind = Storage::ask(&mut port.open().unwrap()).unwrap().behind();
    spare_ssd(&behind, "unit", purpose).is_err()
}

/// A unit keeps what each of them has done to it. All pairs of askers come first, in one order and the other.
fn assert_same_ssd(image: Option<&Image>, scenario: &str, has_ssd: bool) {
    for (first, asks) in ASKERS {
        let mut port = unit(scenario, image);
        asks(&mut port);
        for (asker, asks) in ASKERS {
            let seen = asks(&mut port);
            assert!(seen.is_none_or(|seen| seen == has_ssd), "{scenario}: {asker}, after {first}: {seen:?}");
        }
    }
}

#[test]
fn an_ssd_is_seen_whoever_has_asked_the_practice_image_before() {
    assert_same_ssd(None, SSD, true);
    assert_same_ssd(None, RDNA4, false);
}

/// An SSD that 240417 has found, by an INQUIRY, looks much as if a GPU runtime had initialised the unit.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn an_ssd_is_seen_whoever_has_asked_the_vendors_image_before() {
    for image in [vendor(), patched(), vendor_231204()] {
        assert_same_ssd(Some(&image), SSD, true);
        assert_same_ssd(Some(&image), "behind = 'gpu'", false);
        assert_same_ssd(Some(&image), RDNA4, false);
        assert_same_ssd(Some(&image), NEVER_READY, true);
    }
}

/// A drive that never gets ready, behind a switch's port.
const NEVER_READY: &str = "[[device]]\nat = '0'\nvendor = 0x1B21\ndevice = 0x2461\n\
                           [[device]]\nat = '0/0'\nvendor = 0x1234\ndevice = 0x4E56\nclass = 0x010802\n\
                           engine = { nvme = { blocks = 2048, never-ready = true } }\n";

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn a_units_initialisation_by_a_runtime_is_told_from_an_ssd_and_nothing_goes_to_pcie_over_one() {
    for image in [patched(), vendor_231204()] {
        for (scenario, has_ssd) in [(SSD, true), (NEVER_READY, true), (RDNA4, false), ("behind = 'gpu'", false)] {
            let mut port = unit(scenario, Some(&image));
            port.open().unwrap().inquiry().unwrap();
            port.open().unwrap().initialise().unwrap();
            for _ in 0..2 {
                let behind = Storage::ask(&mut port.open().unwrap()).unwrap().behind();
                assert_eq!(
                    (matches!(behind, Behind::Initialised(_)), matches!(behind, Behind::Ssd(_))),
                    (!has_ssd, has_ssd),
                    "{behind}"
                );
                for (purpose, is_refused) in
                    [(Purpose::Pcie, has_ssd), (Purpose::Xdata, has_ssd), (Purpose::Bench, true)]
                {
                    assert_eq!(spare_ssd(&behind, "unit", purpose).is_err(), is_refused, "{scenario}: {purpose:?}");
                }
            }
        }
    }
}

/// A unit whose PCIe is off until a runtime switches it on, as with builds that wait for F3: a runtime can start on it.
fn with_rails_off(image: &Image, scenario: &str) -> VirtualPort {
    let mut port = unit(scenario, Some(image));
    let mut bridge = port.open_control().unwrap();
    bridge.pcie_power(false).unwrap();
    assert!(!bridge.link().unwrap().is_up);
    drop(bridge);
    port
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE and ASMPATCH_OPEN_NEW_IMAGE"]
fn rails_that_are_off_are_switched_on_by_doctor_and_by_reset_and_no_cpu_is_reset_for_them() {
    let (gpus, runtime) = (asmpatch::embedded::gpus().unwrap(), asmpatch::embedded::runtime().unwrap());
    let wanted = Wanted { gpus: &gpus, runtime: &runtime, expected: None };
    for image in [open(), new_open()] {
        let examined = |port: &mut VirtualPort, no_write| {
            let (info, images) = (port.attached().unwrap(), asmpatch::embedded::patches().unwrap().into());
            let options = DoctorOptions { no_write, compare: false };
            examine(port, info, options, &images, Interrupt::never()).unwrap()
        };
        let mut port = with_rails_off(&image, RDNA4);
        // It may not switch anything on, and says what it doesn't know.
        let page = diagnose(&examined(&mut port, true), wanted);
        assert!(page.runtime.is_none() && !page.is_bad() && page.because.contains(&"PCIe link"), "{page:#?}");
        let seen = examined(&mut port, false);
        assert!(seen.link_before.is_some_and(|link| !link.is_up), "{seen:#?}");
        assert!(seen.link.answer().is_some_and(|link| link.is_up), "{seen:#?}");
        let page = diagnose(&seen, wanted);
        assert!(page.runtime.is_some(), "{page:#?}");
        // The link is up now.
        assert_eq!(examined(&mut port, false).link_before, None);

        let mut port = with_rails_off(&image, RDNA4);
        let options = RestartOptions { only: None, come_back: Duration::from_secs(3), replug: Duration::ZERO };
        let report = restart(&mut port, options, &mut || (), Interrupt::never()).unwrap();
        assert_eq!(report.helped(), Some(Level::PciePower), "{report:?}");
        assert!(report.tried.len() == 1 && report.tried[0].result.contains("it was off"), "{report:?}");

        // Without a card both say that the link is down.
        let mut port = with_rails_off(&image, "behind = 'nothing'");
        let page = diagnose(&examined(&mut port, false), wanted);
        assert_eq!((page.runtime, &page.because[..]), (None, &["PCIe link"][..]), "{page:#?}");
    }
}
