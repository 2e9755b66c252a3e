//! The `asmpatch list` command: lists every unit on the system.

use std::env;
use std::sync::Arc;

use crate::advice::Advice;
use crate::devices::Devices;
use crate::doctor::{BESIDE_USB4, is_beside_usb4};
use crate::flash::access::Access;
use crate::flash::identity::shared_serials;
use crate::flash::observe::ObservedFirmware;
use crate::image::Images;
use crate::pcap::Capture;
use crate::restart::retrains;
use crate::runtimes::open_build_lacks;
use crate::shell;
use crate::unit::{self, NoUnit, Selector};
use asm2464::AnyFailure;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, open_build};
use asm2464_host::bridge::{Behind, Location, UnitInfo};
use asm2464_host::usb::sysfs::{BayDisk, DevicePort, Sysfs, TunnelledDevice, TunnelledDock, Tunnels};
use asm2464_host::usb::{KnownDevice, OtherChip};
use serde::Serialize;

use crate::cli::commands::doctor::Recovery;
use crate::cli::commands::flash::SSD_LOST;
use crate::cli::commands::virtual_unit;
use crate::cli::given::arguments::{PatchDirs, PcapArgs, UNIT, UnitArgs};
use crate::cli::given::context::Context;
use crate::cli::words::errors::{self, Exit};
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::{StepCommand, WordedStep, lines};
use crate::cli::words::{advice, print, table};

/// List every unit on the system: firmware, maker, link, and what is behind it.
///
/// Disturbs nothing that is in use. Asks a unit what it runs, and what is behind it, only if no kernel driver holds it
/// or, with --probe, if nothing uses its disk. Neither lists nor opens a device with an unknown USB ID: --usb-id adds
/// one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch list\n  asmpatch list --probe --json\n  asmpatch list --known")]
pub struct Args {
    /// Take units from their kernel driver for a moment to read their firmware.
    #[arg(long)]
    probe: bool,

    /// List the known USB IDs of ASM2464PD units instead, and what is known of each.
    #[arg(long, conflicts_with_all = ["probe", "pcap"])]
    known: bool,

    /// Show only this unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder, which is
    /// listed only if you name it. May be given more than once.
    #[arg(long, value_name = UNIT, env = "ASMPATCH_DEVICE")]
    device: Vec<Selector>,

    #[command(flatten)]
    ids: UnitArgs,

    #[command(flatten)]
    pcap: PcapArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One unit of the list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ListedUnit {
    #[serde(flatten)]
    unit: UnitInfo,
    /// What is sold under its USB ID; nothing if only the user has named the ID.
    known_as: Option<KnownDevice>,
    /// Whether the user has named its ID.
    #[serde(skip)]
    is_named: bool,
    /// The version that it reports, if it could be asked.
    version: Option<String>,
    /// The build that open firmware reports.
    open_build: Option<String>,
    /// The firmware that it runs, as far as asmpatch can tell: the identity says nothing about it.
    firmware: String,
    /// What is behind the bridge, if the unit could be asked.
    behind: Option<String>,
    /// The system's disks that are the unit's logical units: a dock with several bays has one for each.
    disks: Vec<BayDisk>,
    /// The keys of a virtual unit's bridge.toml that set it apart from a sound dock with a card; missing if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set: Vec<&'static str>,
    /// The command that takes these keys out; missing if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unset: Option<StepCommand>,
    /// Why the firmware and what is behind the bridge could not be read.
    unread: Option<String>,
    /// What the user should know, and what to do.
    notes: Vec<String>,
    /// The steps among the notes, in the order in which to try them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<WordedStep>,
}

impl ListedUnit {
    /// A unit that was not asked anything.
    fn unasked(unit: UnitInfo, known_as: Option<KnownDevice>, disks: Vec<BayDisk>) -> Self {
        let set = unit::set_keys(&unit.location);
        Self {
            known_as,
            is_named: false,
            version: None,
            open_build: None,
            firmware: unit.state.to_string(),
            behind: None,
            disks,
            unset: virtual_unit::unset_at(&set, &unit.location),
            set,
            unread: None,
            notes: Vec::new(),
            steps: Vec::new(),
            unit,
        }
    }

    /// Notes a link that is slow, or a tunnel that the host could have instead.
    fn note_link(&mut self, is_beside_usb4: bool, invocation: &Invocation) {
        if self.unit.speed.is_slow() {
            self.notes.push(format!("the link is at {}; 5 Gbit/s and more are usual", self.unit.speed));
            self.advise(advice::steps(&Advice::RetrainLink { restarts: retrains(&self.unit) }, invocation));
        }
        if is_beside_usb4 {
            self.notes.push(BESIDE_USB4.to_owned());
            self.advise(advice::steps(&Advice::MissingTunnel, invocation));
        }
    }

    /// Notes which build of the open firmware runs. The descriptors tell everything that such a unit could be asked.
    fn note_build(&mut self, invocation: &Invocation) {
        if let Some(lacks) = open_build_lacks(&self.unit.product) {
            self.advise(advice::steps(&Advice::NewerBuild(lacks), invocation));
        }
        if let Some(build) = open_build(&self.unit.product)
            && !build.is_empty()
        {
            self.firmware += &format!(", build {build}");
            self.open_build = Some(build.to_owned());
        }
    }

    /// Asks the vendor's firmware what it is, and what is behind it.
    fn ask(&mut self, known: &Arc<Devices>, images: &Images, capture: Option<&Capture>, invocation: &Invocation) {
        let running = match running(&self.unit, known, capture) {
            Ok(running) => running,
            Err(error) => {
                self.unread = Some(error.to_string());
                self.notes.extend(errors::steps(error.coded(), invocation).iter().map(WordedStep::note));
                return;
            }
        };
        let (runs, behind) = (running.running_firmware(images), running.behind());
        match behind {
            Behind::Ssd(_) if runs.answers_writes() => self.notes.push(format!("the SSD {SSD_LOST}")),
            Behind::Initialised(_) => {
                self.notes.push(INITIALISED.to_owned());
                self.advise(advice::steps(&Advice::EndRuntimeAndRestart, invocation));
            }
            _ => {}
        }
        self.version = running.runs.version.map(|version| version.to_string());
        self.behind = Some(behind.to_string());
        self.firmware = runs.to_string();
    }

    /// Adds steps, each as a note, too.
    fn advise(&mut self, steps: Vec<WordedStep>) {
        self.notes.extend(steps.iter().map(WordedStep::note));
        self.steps.extend(steps);
    }
}

/// The list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ListJson<'a> {
    /// The units.
    units: &'a [ListedUnit],
    /// The devices that are connected over USB4 or Thunderbolt, one of which may be a dock that shows no USB device;
    /// none if --device names units.
    tunnelled: &'a [TunnelledDevice],
    /// The docks that the host sees on PCIe, over USB4, where they show no USB device; none if --device names units.
    tunnelled_docks: &'a [TunnelledDock],
    /// If no unit is connected: the USB-C ports that are the device, where no dock can appear. Missing otherwise.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    device_ports: &'a [DevicePort],
    /// If no unit is connected: what to do, in the order in which to try it. Missing otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<WordedStep>,
}

impl print::Document for ListJson<'_> {
    const VERSION: u32 = 4;
}

impl print::Document for &KnownDevice {
    const VERSION: u32 = 2;
}

/// What a unit that a GPU runtime has initialised does to this host.
const INITIALISED: &str = "the kernel's driver now sees a disk, and Linux waits 30 s for its first block; \
                           `asmpatch help recovery` says how to keep the driver off";

/// Runs the subcommand.
///
/// # Errors
/// Fails if USB can't be used, a named unit is not found, or a device file is wrong.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.known {
        show_known(&*args.ids.load()?, args.json);
        return Ok(Exit::Done);
    }
    let rows = rows(args, &context.invocation)?;
    let none = rows.is_empty().then(NoUnit::now);
    let tunnels = match &none {
        Some(none) => none.tunnels.clone(),
        None if args.device.is_empty() => Sysfs::system().tunnels(),
        None => Tunnels::default(),
    };
    if args.json {
        print::json(&ListJson {
            units: &rows,
            tunnelled: &tunnels.devices,
            tunnelled_docks: &tunnels.docks,
            device_ports: none.as_ref().map(|none| none.device_ports.as_slice()).unwrap_or_default(),
            steps: none.as_ref().map(|none| next_steps(none, &context.invocation)).unwrap_or_default(),
        });
    } else if let Some(error) = none {
        outln!("{error}");
        next_lines(&error, &context.invocation).iter().for_each(|line| outln!("  {line}"));
        hidden_docks(env::consts::OS).iter().for_each(|note| outln!("  note: {note}"));
    } else {
        rows.iter().for_each(show);
        print::out(tunnelled_note(tunnels, &context.invocation));
    }
    Ok(Exit::Done)
}

fn rows(args: &Args, invocation: &Invocation) -> Result<Vec<ListedUnit>, AnyFailure> {
    let known = args.ids.load()?;
    let recording = args.pcap.start()?;
    let units = if args.device.is_empty() { unit::list(&known)? } else { unit::named(&known, &args.device)? };
    let images = Images::from(PatchDirs::default().load()?);
    // With the handler installed, a unit that is being asked for its version is released before Ctrl-C ends the
    // command.
    let interrupt = interrupt::install();
    let mut connected = units.clone();
    if !args.device.is_empty() {
        connected.extend(unit::list(&known).unwrap_or_default());
    }
    let sysfs = Sysfs::system();
    let has_usb4 = sysfs.has_usb4();
    let mut rows = Vec::new();
    for unit in units {
        interrupt.check()?;
        let (disks, is_beside_usb4) = match &unit.location {
            Location::Port(port) => (sysfs.bays(port), is_beside_usb4(&unit, has_usb4)),
            Location::Virtual(_) => (Vec::new(), false),
        };
        let known_as = known.get(unit.id).cloned();
        let is_named = known.named().any(|id| id == unit.id);
        let invocation = invocation.at(&unit.location);
        let mut row = ListedUnit { is_named, ..ListedUnit::unasked(unit, known_as, disks) };
        if let Some(chip) = OtherChip::with(row.unit.id) {
            row.firmware = format!("not asked: {}", chip.refusal());
            row.notes.push("nothing is sent to it, whatever options are given".to_owned());
            rows.push(row);
            continue;
        }
        row.note_link(is_beside_usb4, &invocation);
        match row.unit.state {
            BridgeState::OpenFirmware => row.note_build(&invocation),
            BridgeState::BootLoader => {
                let Recovery { from_backups, otherwise } = Recovery::of(&row.unit, &connected, &images, &invocation);
                row.advise(from_backups);
                row.advise(otherwise);
            }
            BridgeState::Vendor => match &row.unit.driver {
                Some(driver) if !args.probe => {
                    let why = format!("the kernel's {driver} driver has the unit; --probe takes it for a moment");
                    row.unread = Some(why);
                }
                _ => row.ask(&known, &images, recording.capture(), &invocation),
            },
        }
        rows.push(row);
    }
    note_shared_serials(&mut rows);
    Ok(rows)
}

/// Asks over Bulk-Only: a unit speaks it in every state, and a few commands need no further setup.
fn running(unit: &UnitInfo, known: &Arc<Devices>, capture: Option<&Capture>) -> Result<ObservedFirmware, AnyFailure> {
    let mut port = unit::port(known, Some(&Selector::from(&unit.location)), capture)?;
    let mut access = Access::open(&mut *port)?;
    Ok(ObservedFirmware::of(&mut access, unit.state)?)
}

/// Adds a note to units that share a serial number, which can't tell them apart.
fn note_shared_serials(rows: &mut [ListedUnit]) {
    let serials: Vec<(String, String)> =
        rows.iter().map(|row| (row.unit.location.to_string(), row.unit.serial.clone().unwrap_or_default())).collect();
    let shared = shared_serials(serials.iter().map(|(device, serial)| (device.as_str(), serial.as_str())));
    for (serial, devices) in shared {
        for row in rows.iter_mut().filter(|row| row.unit.serial.as_deref() == Some(serial)) {
            let others: Vec<&str> =
                devices.iter().copied().filter(|device| *device != row.unit.location.to_string()).collect();
            let device = shell::word(row.unit.location.to_string());
            let remedy = match row.unit.state {
                // Its serial number is not that of the configuration block.
                BridgeState::OpenFirmware => format!("open firmware has its own: name it by its port, {device}"),
                _ => "`config set serial=TEXT` gives this unit its own".to_owned(),
            };
            row.notes.push(format!("{} has the serial number {serial} too: {remedy}", others.join(", ")));
        }
    }
}

/// Returns the note, after the units, on what is connected over USB4 or Thunderbolt: it may be another dock.
fn tunnelled_note(tunnels: Tunnels, invocation: &Invocation) -> Vec<String> {
    let names = tunnels.to_string();
    let error = NoUnit { tunnels, ..NoUnit::default() };
    if names.is_empty() {
        return Vec::new();
    }
    let mut note = vec![format!("also connected, over USB4 or Thunderbolt: {names}")];
    note.extend(next_lines(&error, invocation).iter().map(|line| format!("  {line}")));
    note
}

fn next_steps(error: &NoUnit, invocation: &Invocation) -> Vec<WordedStep> {
    errors::steps(error, &invocation.none_here())
}

/// Returns the lines that say what to do next.
fn next_lines(error: &NoUnit, invocation: &Invocation) -> Vec<String> {
    let steps = lines(&next_steps(error, invocation));
    table::under("next:", steps).map(|(label, line)| format!("{label:<5} {line}")).collect()
}

/// Returns the note on docks that this operating system hides from asmpatch.
fn hidden_docks(os: &str) -> Option<&'static str> {
    if os != "macos" {
        return None;
    }
    Some(
        "on a Mac's USB4 or Thunderbolt port, a dock with stock firmware is no USB device, and asmpatch can't see it; \
         the GPU runtime's own app is the GPU's driver there. Connect the dock through a USB 3 cable or hub to flash it",
    )
}

/// Prints a unit in a few lines: a table with everything would be wider than a terminal.
fn show(row: &ListedUnit) {
    let unit = &row.unit;
    let known_as = match &row.known_as {
        Some(KnownDevice { product, maker, .. }) => format!("{maker} {product}"),
        None if row.is_named => "named by --usb-id".to_owned(),
        // A virtual unit is listed whatever its firmware's ID.
        None => "(an ID that asmpatch doesn't know)".to_owned(),
    };
    outln!("{}: {} {}", unit.location.to_string().shown(), unit.id, known_as.shown());
    let mut lines = Vec::new();
    let version = row.version.as_ref().filter(|version| !row.firmware.contains(*version));
    let firmware = || row.firmware.clone();
    lines.push(("runs", version.map_or_else(firmware, |version| format!("{}, version {version}", row.firmware))));
    lines.extend(row.unread.clone().map(|reason| ("unread", reason)));
    lines.extend(row.behind.clone().map(|behind| ("behind", behind)));
    if !row.disks.is_empty() {
        lines.push(("disks", row.disks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
    }
    let strings = format!("{} {}", unit.manufacturer, unit.product);
    let serial = unit.serial.as_ref().map(|serial| format!(", serial {serial}")).unwrap_or_default();
    lines.push(("strings", format!("{}{serial}", strings.trim())));
    let driver = unit.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    lines.push(("link", format!("{}{driver}", unit.speed)));
    lines.extend(row.notes.iter().map(|note| ("note", note.clone())));
    table::print_labelled(2, lines.iter().map(|(label, text)| (label, text.shown())));
}

/// Prints the known USB IDs, and those that the user has named.
fn show_known(known: &Devices, json: bool) {
    let named = known.named().map(|id| KnownDevice {
        id,
        product: "".into(),
        maker: "".into(),
        notes: "".into(),
        source: "named by the user".into(),
    });
    let named: Vec<KnownDevice> = named.collect();
    let all = known.iter().chain(&named);
    if json {
        return print::json_each(&all.collect::<Vec<_>>());
    }
    for device in all {
        let what = format!("{} {}", device.maker.shown(), device.product.shown());
        outln!("{}  {}", device.id, if what.trim().is_empty() { "named by --usb-id" } else { &what });
        let is_named = device.product.is_empty();
        let texts = [("", &device.notes), ("source: ", &device.source)];
        for (label, text) in texts.into_iter().filter(|(_, text)| !text.is_empty() && !is_named) {
            outln!("           {label}{}", text.shown());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(folder: &str, serial: &str) -> ListedUnit {
        ListedUnit::unasked(crate::tests::unit(&format!("virtual:{folder}"), serial), None, Vec::new())
    }

    #[test]
    fn docks_that_tunnel_are_named_beside_units_with_the_ways_out() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(root.path(), "/nowhere", "/nowhere");
        assert!(tunnelled_note(sysfs.tunnels(), &Invocation::default()).is_empty());
        let device = root.path().join("bus/thunderbolt/devices/0-1");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor_name"), "ASMedia\n").unwrap();
        std::fs::write(device.join("device_name"), "UT3G\n").unwrap();
        let note = tunnelled_note(sysfs.tunnels(), &Invocation::default()).join("\n");
        assert!(note.contains("0-1 (ASMedia UT3G)"), "{note}");
        assert!(note.contains("USB 3 port, cable or hub") && note.contains("    asmpatch help recovery The"), "{note}");
    }

    #[test]
    fn a_device_that_waits_for_authorisation_comes_with_what_the_host_says_and_the_command() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str, files: &[(&str, &str)]| {
            let folder = root.path().join("bus/thunderbolt/devices").join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(file, text)| std::fs::write(folder.join(file), text).unwrap());
        };
        let names = [("vendor_name", "ASMedia\n"), ("device_name", "UT3G\n"), ("authorized", "0\n")];
        put("0-1", &names);
        put("0-1", &[("unique_id", "d1030000-0072-640e-8364-0d0b1c92c320\n")]);
        put("0-0", &[("nvm_version", "28.0\n")]);
        put("domain0", &[("security", "user\n")]);
        let sysfs = Sysfs::at(root.path(), "/nowhere", "/nowhere");
        let note = tunnelled_note(sysfs.tunnels(), &Invocation::default()).join("\n");
        let waits = "0-1 (ASMedia UT3G, which the host has not authorised: security level user, the host's NVM version \
                     28.0, UUID d1030000-0072-640e-8364-0d0b1c92c320)";
        assert!(note.contains(waits), "{note}");
        assert!(
            note.contains("\n            boltctl enroll --policy=auto d1030000-0072-640e-8364-0d0b1c92c320\n")
                && !note.contains("its own power"),
            "{note}"
        );
        // Once it is authorised, the dock's PCIe counts.
        put("0-1", &[("authorized", "1\n")]);
        let note = tunnelled_note(sysfs.tunnels(), &Invocation::default()).join("\n");
        assert!(note.contains("0-1 (ASMedia UT3G)") && !note.contains("boltctl"), "{note}");
    }

    #[test]
    fn a_dock_that_only_pcie_shows_is_named_beside_units() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("bus/pci/devices/0000:03:00.0");
        std::fs::create_dir_all(&device).unwrap();
        for (file, text) in [("vendor", "0x1b21\n"), ("device", "0x2463\n"), ("class", "0x060400\n")] {
            std::fs::write(device.join(file), text).unwrap();
        }
        let tunnels = Sysfs::at(root.path(), "/nowhere", "/nowhere").tunnels();
        let note = tunnelled_note(tunnels, &Invocation::default()).join("\n");
        assert!(note.contains("0000:03:00.0 (a dock's PCIe switch 1B21:2463, no GPU behind it)"), "{note}");
        assert!(note.contains("its own power"), "{note}");
    }

    #[test]
    fn a_mac_is_told_that_a_dock_on_usb4_is_no_usb_device() {
        let note = hidden_docks("macos").unwrap();
        assert!(note.contains("no USB device") && note.contains("USB 3 cable or hub"), "{note}");
        assert_eq!(hidden_docks("linux"), None);
    }

    #[test]
    fn units_that_share_a_serial_number_are_reported_with_the_cure() {
        let mut rows = [row("a", "AAAABBBB0060"), row("b", "MINE"), row("c", "AAAABBBB0060")];
        note_shared_serials(&mut rows);
        let [a, b, c] = rows.map(|row| row.notes.concat());
        assert!(
            a.starts_with("virtual:c has the serial number AAAABBBB0060 too")
                && a.contains("`config set serial=TEXT` gives this unit its own"),
            "{a}"
        );
        assert!(c.starts_with("virtual:a has"), "{c}");
        assert_eq!(b, "");
    }
}
