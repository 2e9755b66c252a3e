//! Diagnosis from an examination, line by line, with advice. Pure.

use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, UsbId};
use asm2464::tlp::ltssm_name;
use asm2464_host::bridge::open::{Supply, SupplyMeasurement};
use asm2464_host::bridge::{Behind, BusSpeed, Storage, UnitInfo};
use asm2464_host::pcie::{Function, Survey, class_name, is_gpu, is_ssd, vendor_name};
use asm2464_host::usb::OtherChip;
use derive_more::Display;
use serde::Serialize;

use self::Verdict::{Bad, Good, Note, Unknown};
use crate::advice::Advice;
use crate::gpus::{GpuSupport, Gpus, PciId};
use crate::restart::retrains;
use crate::runtimes::{Drives, OPEN_RUNTIME, PATCHED_RUNTIME, Runtime, open_build_lacks};
use crate::unit::facts::{
    Asked, Contents, Facts, FlashChip, PipeState, Problem, RequestTimes, RunningFirmware, SLOW_GOVERNOR,
};

/// The runtime of a device that the user expects and that asmpatch does not know.
const OWN_RUNTIME: &str = "your own, for the device that you expect";

/// Verdict on one topic, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In order.
    #[display("ok")]
    Good,
    /// A runtime can start anyway.
    #[display("note")]
    Note,
    /// Not known.
    #[display("?")]
    Unknown,
    /// A runtime can't start.
    #[display("BAD")]
    Bad,
}

/// One line of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Line"))]
pub struct TopicLine {
    /// The topic.
    pub topic: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// What helps.
    #[serde(skip)]
    pub advice: Option<Advice>,
}

/// A diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The lines.
    pub lines: Vec<TopicLine>,
    /// The runtime that can start; `None` if none can, if that is not known, or if nothing shows that there is a dock.
    pub runtime: Option<&'static str>,
    /// The topics that keep a runtime from starting: those that are bad or, if none is, those that are not known.
    pub because: Vec<&'static str>,
}

impl Diagnosis {
    /// Whether something is bad. If nothing is and no runtime is named, it is not known whether one can start.
    pub fn is_bad(&self) -> bool {
        self.lines.iter().any(|line| line.verdict == Bad)
    }
}

/// Why a GPU runtime may be at work on a unit, which a restart would cut off; `None` if nothing shows one.
pub fn at_work(facts: &Facts) -> Option<String> {
    if let Some(held) = facts.host.lock_holder() {
        return Some(held);
    }
    if matches!(facts.pipes, Asked::Is(PipeState::Busy(_))) {
        return Some("a runtime may be at work: the SRAM's DMA waits for data".to_owned());
    }
    match facts.storage.as_ref()?.behind() {
        Behind::Initialised(_) => Some("a GPU runtime has initialised the unit, and may be at work".to_owned()),
        _ => None,
    }
}

const LINK: &str = "PCIe link";
const GPU: &str = "GPU";
const PIPES: &str = "bulk pipes";

/// Diagnoses a unit.
pub fn diagnose(facts: &Facts, wanted: Wanted<'_>) -> Diagnosis {
    let (firmware, runtime) = firmware(facts, wanted.runtime);
    let mut lines = Vec::new();
    add(&mut lines, "USB", [usb(facts)]);
    add(&mut lines, "USB", beside_usb4(facts));
    add(&mut lines, "suspend", suspend(facts));
    add(&mut lines, "CPU", governor(facts));
    add(&mut lines, "lock", locks(facts));
    add(&mut lines, "access", [access(facts)]);
    add(&mut lines, "disks", disks(facts));
    add(&mut lines, "firmware", [firmware]);
    add(&mut lines, "part", part(facts));
    add(&mut lines, "flash", flash(facts));
    add(&mut lines, PIPES, pipes(facts));
    add(&mut lines, LINK, link(facts));
    add(&mut lines, "12 V", supply(facts));
    let there = facts.tree.answer().into_iter().flat_map(|tree| &tree.functions);
    let classes = there.map(|function| (Some(PciId::of(function)), function.class));
    let device = device_topic(wanted.gpus, wanted.expected, classes);
    add(&mut lines, device, gpu(facts, wanted));
    add(&mut lines, "bench", bench(facts));
    let because = because(&lines, device);
    let runtime = match (&facts.tree, runtime) {
        _ if !because.is_empty() => None,
        (Asked::Is(tree), Some(_)) if !wanted.is_known(tree) => Some(OWN_RUNTIME),
        (_, runtime) => runtime,
    };
    Diagnosis { lines, runtime, because }
}

/// Adds the findings of a topic.
pub(super) fn add(lines: &mut Vec<TopicLine>, topic: &'static str, findings: impl IntoIterator<Item = Finding>) {
    for (verdict, found, advice) in findings {
        lines.push(TopicLine { topic, verdict, found, advice });
    }
}

/// The topics that are bad, each once.
pub(super) fn bad(lines: &[TopicLine]) -> Vec<&'static str> {
    let mut bad: Vec<&'static str> = lines.iter().filter(|line| line.verdict == Bad).map(|line| line.topic).collect();
    bad.dedup();
    bad
}

/// The topic of the device that a runtime drives: the GPU, or `device` if the user expects one that is none. `there` are
/// the devices that are there, with their classes.
pub(super) fn device_topic(
    gpus: &Gpus,
    expected: Option<PciId>,
    there: impl IntoIterator<Item = (Option<PciId>, u32)>,
) -> &'static str {
    let Some(expected) = expected else { return GPU };
    let support = gpus.support(expected, None);
    let class = there.into_iter().find(|(id, _)| *id == Some(expected)).map(|(_, class)| class);
    let is_one = match class {
        Some(class) => is_gpu(class) || matches!(support, GpuSupport::Driven { .. }),
        // Nearly all of these vendors' IDs are those of GPUs.
        None => support != GpuSupport::NoVendor,
    };
    if is_one { GPU } else { "device" }
}

/// The topics that must be in order before a runtime can start, besides that of the device that it drives.
const MUST_BE_KNOWN: [&str; 4] = ["access", "firmware", PIPES, LINK];

/// Returns the topics that keep a runtime from starting: those that are bad or, if none is, those that must be in order
/// and of which that is not known. A topic's verdict is that of its first line.
fn because(lines: &[TopicLine], device: &'static str) -> Vec<&'static str> {
    let bad = bad(lines);
    if !bad.is_empty() {
        return bad;
    }
    let verdict = |topic: &str| lines.iter().find(|line| line.topic == topic).map(|line| line.verdict);
    let is_known = |topic: &str| matches!(verdict(topic), Some(Good | Note));
    MUST_BE_KNOWN.into_iter().chain([device]).filter(|topic| !is_known(topic)).collect()
}

/// A verdict, what was found, and advice.
pub(super) type Finding = (Verdict, String, Option<Advice>);

fn line(verdict: Verdict, found: impl Into<String>) -> Finding {
    (verdict, found.into(), None)
}

fn advise(verdict: Verdict, found: impl Into<String>, advice: Advice) -> Finding {
    (verdict, found.into(), Some(advice))
}

fn problem(verdict: Verdict, problem: &Problem) -> Finding {
    let Problem { code, message, named } = problem.clone();
    advise(verdict, message.shown().to_string(), Advice::AgainstError { code, named })
}

fn usb(facts: &Facts) -> Finding {
    let speed = facts.unit.speed;
    if speed.is_slow() {
        let found = format!("{speed}: a GPU runtime needs 5 Gbit/s or more");
        return advise(Bad, found, Advice::RetrainLink { restarts: retrains(&facts.unit) });
    }
    match speed {
        BusSpeed::Unknown { at_least: None } => line(Unknown, "the system doesn't say the speed"),
        BusSpeed::Unknown { at_least: Some(_) } => {
            line(if speed.is_super() { Good } else { Unknown }, format!("{speed}, by its descriptors"))
        }
        _ => line(Good, speed.to_string()),
    }
}

/// Stock firmware over USB 3, though the host has USB4. Sources: Dasharo/dasharo-issues 1638, October 2025;
/// FrameworkComputer/SoftwareFirmwareIssueTracker 260, September 2026.
fn beside_usb4(facts: &Facts) -> Option<Finding> {
    let runs = facts.contents.answer().map(Contents::running_firmware);
    let is_stock = matches!(runs, None | Some(RunningFirmware::Vendor(_)));
    if !is_stock || !is_beside_usb4(&facts.unit, facts.host.has_usb4) {
        return None;
    }
    Some(advise(Note, BESIDE_USB4, Advice::MissingTunnel))
}

/// Whether this is a unit with the vendor's firmware, which tunnels PCIe over USB4, and came up over USB 3 on a host that
/// has USB4. Patched firmware is for USB 3.
pub fn is_beside_usb4(unit: &UnitInfo, has_usb4: bool) -> bool {
    has_usb4 && unit.state == BridgeState::Vendor && unit.id != UsbId::PATCHED && unit.speed.is_super()
}

/// What such a unit lacks.
pub const BESIDE_USB4: &str = "this host has USB4, and the dock came up over USB 3: with stock firmware the host's own driver \
                               gets the GPU over USB4's tunnel alone. Behind a hub of USB 3, and on a port without USB4, it \
                               is as it should be";

/// Whether the system may suspend the unit. Source: commaai/agnos-kernel-sdm845, pull request 132, July 2026.
fn suspend(facts: &Facts) -> Option<Finding> {
    let sleepers = facts.host.may_sleep.as_ref()?.join(", ");
    if !facts.host.may_suspend(&facts.unit.location) {
        let found = if sleepers.is_empty() {
            "the system keeps the unit and its hubs awake".to_owned()
        } else {
            format!("the system keeps the unit awake, and so its hubs ({sleepers} may sleep without it)")
        };
        return Some(line(Good, found));
    }
    let risk = match (facts.unit.state, open_build_lacks(&facts.unit.product)) {
        (BridgeState::OpenFirmware, None) => "it matters for builds of the open firmware from before August 2026",
        (BridgeState::OpenFirmware, Some(_)) => {
            "builds like this one don't answer GET_STATUS, and on one rack F2 right after a restart then failed 50 of 50 \
             times, and never with `on`"
        }
        _ => "it matters for the open firmware from before August 2026",
    };
    let found = format!("the system may suspend it (`auto` at {sleepers}): {risk}");
    Some(advise(Note, found, Advice::KeepAwake(facts.unit.location.clone())))
}

fn governor(facts: &Facts) -> Option<Finding> {
    let is_slow = facts.host.governors.iter().any(|governor| governor == SLOW_GOVERNOR);
    if !is_slow {
        return None;
    }
    let found = format!("the governor is {SLOW_GOVERNOR}: round trips took an owner 800 us with it");
    Some(advise(Note, found, Advice::OtherGovernor))
}

fn locks(facts: &Facts) -> Vec<Finding> {
    let mut held = Vec::new();
    for (file, holder) in &facts.host.locks {
        let found = format!("{holder} holds {}: a runtime that begins now fails at once", file.shown());
        held.push(advise(Note, found, Advice::EndLockHolder));
    }
    held
}

fn access(facts: &Facts) -> Finding {
    match (&facts.opened, &facts.unit.driver) {
        (Asked::Failed(trouble), _) => problem(Bad, trouble),
        (Asked::NotAsked, _) => line(Unknown, "not opened"),
        (Asked::Is(()), Some(driver)) => {
            line(Note, format!("opened; a GPU runtime takes it from the kernel's {} driver", driver.shown()))
        }
        (Asked::Is(()), None) => line(Good, "opened; no kernel driver has it"),
    }
}

/// The system's disk of each bay.
fn disks(facts: &Facts) -> Option<Finding> {
    let disks: Vec<String> = facts.host.disks.iter().map(ToString::to_string).collect();
    if disks.is_empty() { None } else { Some(line(Note, disks.join(", "))) }
}

/// Returns the finding about the firmware, and the runtime that drives it.
fn firmware(facts: &Facts, runtime: &Runtime) -> (Finding, Option<&'static str>) {
    let id = facts.unit.id;
    if let Some(chip) = OtherChip::with(id) {
        return (line(Bad, chip.refusal()), None);
    }
    if let Asked::Failed(trouble) = &facts.contents {
        return (problem(Bad, trouble), None);
    }
    let runs = facts.contents.answer().map(Contents::running_firmware);
    let (what, drives) = match (&runs, facts.unit.state) {
        // The advice depends on the unit's backups, and is added elsewhere.
        (_, BridgeState::BootLoader) => return (line(Bad, format!("the boot loader in ROM, under {id}")), None),
        (_, BridgeState::OpenFirmware) => {
            let product = &facts.unit.product;
            (format!("open firmware {}", product.shown()), runtime.drives_open(product, Some(id)))
        }
        (Some(RunningFirmware::Flashed(firmware)), _) => (firmware.to_string(), runtime.drives(firmware, Some(id))),
        (Some(runs @ RunningFirmware::Vendor(_)), _) => (runs.to_string(), Drives::Vendor),
        (Some(runs), _) => return (advise(Bad, runs.to_string(), Advice::StartFlashed), None),
        (None, state) => return (line(Unknown, format!("{state}, under {id}; asmpatch couldn't ask it")), None),
    };
    let found = format!("{what}, under {id}: {}", runtime.words(drives));
    match drives {
        Drives::Open(None) => (line(Good, found), Some(OPEN_RUNTIME)),
        Drives::Open(Some(lacks)) => (advise(Good, found, Advice::NewerBuild(lacks)), Some(OPEN_RUNTIME)),
        Drives::Patched => (advise(Good, found, Advice::FlashForLater), Some(PATCHED_RUNTIME)),
        Drives::OpenUnderOtherId => (advise(Bad, found, Advice::FlashOtherId), None),
        Drives::OtherName => (advise(Bad, found, Advice::FlashCustom), None),
        Drives::PatchedUnderOtherId => (advise(Bad, found, Advice::PatchIdentity), None),
        Drives::OtherVariables => (advise(Bad, found, Advice::FlashInitialised), None),
        Drives::UnknownVariables => (advise(Unknown, found, Advice::FlashInitialised), None),
        Drives::Vendor => (advise(Bad, found, Advice::FlashForRuntime), None),
    }
}

fn part(facts: &Facts) -> Option<Finding> {
    match &facts.part_revision {
        Asked::NotAsked => None,
        Asked::Is(revision) => Some(line(Good, format!("revision {revision:#04x} (XDATA 0xC8FF)"))),
        Asked::Failed(trouble) => Some(problem(Note, trouble)),
    }
}

fn flash(facts: &Facts) -> Option<Finding> {
    if facts.part_revision.is_not_asked() {
        return None;
    }
    Some(match (&facts.flash_part, facts.unit.state) {
        (Asked::Is(FlashChip { jedec_id, status, protection }), _) => {
            let maker = jedec_id.maker().map_or_else(|| "maker not known".to_owned(), str::to_owned);
            let found = format!("JEDEC ID {jedec_id} ({maker}), status {status:#04x}");
            match protection {
                0 => line(Good, format!("{found}: no block is protected")),
                _ => {
                    line(Good, format!("{found}: blocks are protected ({protection:#04x}), until a flash clears that"))
                }
            }
        }
        (Asked::Failed(trouble), _) => problem(Note, trouble),
        (Asked::NotAsked, BridgeState::OpenFirmware) => {
            line(Note, "not asked, because that writes registers of its controller")
        }
        (Asked::NotAsked, _) => line(Note, "this firmware gives no access to its JEDEC ID and its protection"),
    })
}

fn pipes(facts: &Facts) -> Option<Finding> {
    let pipes = match &facts.pipes {
        Asked::Is(pipes) => *pipes,
        Asked::Failed(trouble) => return Some(problem(Bad, trouble)),
        Asked::NotAsked => {
            let could_be_asked = facts.opened == Asked::Is(()) && facts.unit.state == BridgeState::OpenFirmware;
            return could_be_asked.then(|| not_checked(facts));
        }
    };
    Some(match pipes {
        PipeState::Move => line(Good, "data moves"),
        PipeState::Hang => advise(
            Bad,
            "nothing moves, though the unit answers control requests: a state that owners know, after long runs",
            Advice::against("control::bulk_timeout"),
        ),
        PipeState::Dead => {
            // Source: random life on the chip model, docs/lab/reliability.md.
            let known = match facts.unit.state {
                BridgeState::OpenFirmware => {
                    "open firmware gets there when a host begins another stream (F0) while it still reads one"
                }
                _ => {
                    "240417 gets there when a program is killed while it reads the flash (E2), as for a backup, or when \
                     it gets a READ after half of a runtime's initialisation"
                }
            };
            let found = format!(
                "the unit answers neither commands nor control requests, even after a reset of its port (a unit that was \
                 just unplugged looks the same). On the chip model {known}"
            );
            // Source: owners' reports.
            advise(Bad, found, Advice::PowerCycle)
        }
        PipeState::Busy(status) => {
            let found = format!(
                "the SRAM's DMA waits for data that nobody sends (0xC450 reads {status:#04x}): either a runtime is at \
                 work, or the bulk pipes hang while control requests are still answered"
            );
            advise(Bad, found, Advice::against("control::sram_busy"))
        }
    })
}

/// A check that was left out because it writes.
fn not_checked(facts: &Facts) -> Finding {
    if facts.host.locks.is_empty() {
        return advise(Unknown, "not checked, because the check writes", Advice::AllowWrites);
    }
    line(Unknown, "not checked, because the check writes, and a runtime holds its lock on the unit")
}

fn link(facts: &Facts) -> Option<Finding> {
    let link = match &facts.link {
        Asked::Is(link) => link,
        Asked::Failed(trouble) => return Some(problem(Bad, trouble)),
        Asked::NotAsked => {
            return Some(match facts.storage.as_ref()?.behind() {
                Behind::Ssd(_) => line(Unknown, "not checked: an SSD uses it"),
                Behind::Initialised(_) => advise(
                    Unknown,
                    "not checked: a GPU runtime has initialised the unit, and may be at work",
                    Advice::EndRuntimeAndRestart,
                ),
                behind => line(Unknown, format!("not checked: {}", behind.to_string().shown())),
            });
        }
    };
    let ltssm = link.ltssm;
    Some(match (link.is_up, facts.link_before) {
        (true, None) => line(Good, format!("up (LTSSM {ltssm:#04x})")),
        (true, Some(before)) => line(
            Good,
            format!(
                "up (LTSSM {ltssm:#04x}) since doctor has switched PCIe on (F3), as a runtime does; before, it was down \
                 ({:#04x})",
                before.ltssm
            ),
        ),
        // A runtime switches PCIe on before it looks for its GPU, and some builds wait for that.
        (false, None) if facts.unit.state == BridgeState::OpenFirmware && facts.is_read_only => {
            let found = format!("down (LTSSM {ltssm:#04x}); a runtime switches PCIe on (F3) before it looks");
            if facts.host.locks.is_empty() { advise(Unknown, found, Advice::AllowWrites) } else { line(Unknown, found) }
        }
        (false, before) => {
            let also = if before.is_some() { ", also with PCIe switched on (F3)" } else { "" };
            let found = format!("down (LTSSM {ltssm:#04x}: {}; expected 0x78){also}", ltssm_name(ltssm));
            advise(Bad, found, Advice::against("pcie::stays_down"))
        }
    })
}

fn supply(facts: &Facts) -> Option<Finding> {
    match &facts.supply {
        Asked::NotAsked => None,
        Asked::Failed(trouble) => Some(problem(Note, trouble)),
        Asked::Is(None) => Some(line(Note, "this build doesn't report the state of the supply")),
        Asked::Is(Some(supply)) => Some(judge_supply(supply)),
    }
}

fn judge_supply(supply: &Supply) -> Finding {
    let Some(SupplyMeasurement { voltage_mv, current_ma }) = supply.measured else {
        let found = "this board doesn't measure its supply";
        if supply.has_fault != Some(true) {
            return line(Note, found);
        }
        // What the fault line is connected to on such boards is not known. If 12 V is missing, the link is down, and
        // that line of the diagnosis says so.
        return advise(Note, format!("{found}; its fault line (GPIO 1) is active"), Advice::CheckSupplyWithoutCard);
    };
    let found = format!("{:.2} V, {:.2} A", f64::from(voltage_mv) / 1e3, f64::from(current_ma) / 1e3);
    if supply.has_fault == Some(true) {
        return advise(Bad, format!("{found}; the board reports a fault of its supply"), Advice::ReplaceSupply);
    }
    if voltage_mv < SUPPLY_MIN_MV {
        return advise(Bad, found, Advice::ConnectSupply);
    }
    if voltage_mv < SUPPLY_USUAL_MV {
        let found = format!("{found}: docks work with it, but it may sag under load until the link drops");
        return advise(Note, found, Advice::CheckSupplyUnderLoad);
    }
    line(Good, found)
}

fn gpu(facts: &Facts, wanted: Wanted<'_>) -> Vec<Finding> {
    let tree = match &facts.tree {
        Asked::Is(tree) => tree,
        Asked::Failed(trouble) => return vec![problem(Bad, trouble)],
        Asked::NotAsked => {
            let Some(behind @ Behind::Ssd(_)) = facts.storage.as_ref().map(Storage::behind) else { return Vec::new() };
            let found = format!("behind it is an {}", behind.to_string().shown());
            return vec![advise(Bad, found, Advice::ReplaceSsd)];
        }
    };
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for function in &tree.functions {
        match wanted.finding_on(function) {
            Some(finding) => found.push(finding),
            None => others.push(function),
        }
    }
    if found.is_empty() {
        found.push(no_candidate(facts, wanted, &others));
    }
    // One device that a runtime drives is enough. It comes first, because the topic's verdict is that of its first line.
    if found.iter().any(|(verdict, ..)| *verdict == Good) {
        found.iter_mut().for_each(|(verdict, ..)| *verdict = Note.min(*verdict));
        found.sort_by_key(|(verdict, ..)| *verdict);
    }
    for note in &tree.notes {
        found.push(advise(Note, note.to_string(), Advice::AgainstNote(note.clone())));
    }
    found
}

/// Returns the finding if no device behind the bridge is one that a runtime might drive.
fn no_candidate(facts: &Facts, wanted: Wanted<'_>, others: &[&Function]) -> Finding {
    // Without bus numbers, devices behind bridges are invisible.
    let verdict = if facts.is_read_only { Unknown } else { Bad };
    if others.is_empty() {
        return advise(verdict, "nothing is behind the bridge", Advice::CheckSeat);
    }
    let missing = match wanted.expected {
        Some(expected) => format!("no {expected}, which you expect"),
        None => "no GPU".to_owned(),
    };
    let ssds: Vec<String> = others.iter().filter(|other| is_ssd(other.class)).map(|ssd| named(ssd)).collect();
    if !ssds.is_empty() {
        return advise(verdict, format!("{missing}, but an SSD: {}", ssds.join(", ")), Advice::ReplaceSsd);
    }
    let others: Vec<String> = others.iter().map(|other| wanted.described(other)).collect();
    advise(verdict, format!("{missing}, but {}", others.join(", ")), Advice::CheckSeat)
}

fn bench(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for RequestTimes { count, what, median_us, longest_us } in &facts.timings {
        findings.push(line(Good, format!("{count} {what}: {median_us} us each, {longest_us} us at most")));
    }
    if facts.is_corrupt {
        findings.push(advise(Bad, "a byte that was written came back changed", Advice::OtherCableThenVerify));
    }
    if let Some(trouble) = &facts.bench_failure {
        findings.push(problem(Bad, trouble));
    }
    findings
}

/// A device's place, vendor and PCI ID.
fn named(function: &Function) -> String {
    let vendor = vendor_name(function.vendor).unwrap_or("vendor not known");
    format!("{} {vendor} {}", function.at, PciId::of(function))
}

fn class_of(function: &Function) -> &'static str {
    class_name(function.class).unwrap_or("class not known")
}

/// Minimum voltage at which a dock works, in millivolts. Source: openpilot's `modeld/helpers.py`, September 2026.
const SUPPLY_MIN_MV: u16 = 5_000;
/// Minimum voltage of a 12 V supply without load, in millivolts: ATX allows 11.4 V. Docks work with less, and healthy
/// ones measure up to 15.2 V. Source: sunnypilot's pull request 2023, openpilot's issue 39002, September 2026.
const SUPPLY_USUAL_MV: u16 = 11_400;
/// The card that a virtual unit has in a demo, tiny-gpu.
const DEMO_CARD: PciId = PciId { vendor: 0x1234, device: 0x5447 };

/// What a runtime wants behind the bridge.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The GPUs that a runtime drives.
    pub gpus: &'a Gpus,
    /// The units that it opens, and the bus on which it looks.
    pub runtime: &'a Runtime,
    /// The device that the user expects, of whatever class.
    pub expected: Option<PciId>,
}

impl Wanted<'_> {
    /// Whether the known runtime drives what is wanted, and finds it where it is.
    fn is_known(&self, tree: &Survey) -> bool {
        let Some(expected) = self.expected else { return true };
        let is_driven = matches!(self.gpus.support(expected, None), GpuSupport::Driven { .. });
        let is_it = |function: &Function| PciId::of(function) == expected && function.at.bus == self.runtime.bus;
        is_driven && tree.functions.iter().any(is_it)
    }

    /// A device's place, ID and class, and its product if that is a GPU that is known.
    fn described(&self, function: &Function) -> String {
        let (named, class) = (named(function), class_of(function));
        match self.gpus.support(PciId::of(function), Some(function.revision)) {
            GpuSupport::Driven { product, .. } => format!("{named}: {product} ({class})"),
            GpuSupport::NotListed { .. } | GpuSupport::NoVendor => format!("{named} ({class})"),
        }
    }

    /// Returns the finding about a device behind the bridge: good only if a runtime drives it where it is. `None` if it is
    /// no device that a runtime might drive.
    fn finding_on(&self, function: &Function) -> Option<Finding> {
        let id = PciId::of(function);
        if let Some(expected) = self.expected {
            let found = || format!("{} ({}), the device that you expect", named(function), class_of(function));
            return (id == expected).then(|| line(Good, found()));
        }
        if !is_gpu(function.class) {
            return None;
        }
        let named = named(function);
        if id == DEMO_CARD {
            let what = "tiny-gpu, a card of virtual units that computes in a demo; no GPU runtime drives it";
            return Some(line(Bad, format!("{named}: {what}")));
        }
        let (says, source) = match self.gpus.support(id, Some(function.revision)) {
            GpuSupport::Driven { product, target, .. } => {
                let (found, bus) = (format!("{named}: {product} ({target})"), self.runtime.bus);
                if function.at.bus == bus {
                    return Some(line(Good, found));
                }
                let is_higher = function.at.bus > bus;
                let found = format!("{found}, and tinygrad looks on bus {bus} alone");
                return Some(advise(Bad, found, Advice::OtherBus { id, is_higher }));
            }
            GpuSupport::NotListed { says, source } => (says, Some(source.to_owned())),
            GpuSupport::NoVendor => ("asmpatch knows no runtime that drives it over USB", None),
        };
        let found = format!("{named} ({}): {says}", class_of(function));
        Some(advise(Bad, found, Advice::Expect { id, source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of these topics, all in order.
    fn good(topics: impl Iterator<Item = &'static str>) -> Vec<TopicLine> {
        topics.map(|topic| TopicLine { topic, verdict: Good, found: String::new(), advice: None }).collect()
    }

    #[test]
    fn the_card_of_a_demo_is_the_models() {
        use asm2464_dock::gpu_card::registers::{DEVICE, VENDOR};
        assert_eq!(DEMO_CARD, PciId { vendor: VENDOR, device: DEVICE });
    }

    #[test]
    fn a_topic_without_a_line_is_not_known_to_be_in_order() {
        let all = || MUST_BE_KNOWN.into_iter().chain([GPU]);
        assert!(because(&good(all()), GPU).is_empty());
        for missing in all() {
            let others = good(all().filter(|topic| *topic != missing));
            assert_eq!(because(&others, GPU), [missing]);
        }
    }

    #[test]
    fn the_topic_of_an_expected_device_is_gpu_only_if_that_is_one() {
        let gpus = crate::embedded::gpus().unwrap();
        let topic = |expected: Option<&str>, there: &[(&str, u32)]| {
            let there = there.iter().map(|(id, class)| (id.parse().ok(), *class));
            device_topic(&gpus, expected.map(|id| id.parse().unwrap()), there)
        };
        assert_eq!(topic(None, &[("144D:A80A", 0x01_08_02)]), "GPU");
        assert_eq!(topic(Some("1002:7590"), &[]), "GPU");
        assert_eq!(topic(Some("10DE:2204"), &[]), "GPU", "a vendor of GPUs");
        assert_eq!(topic(Some("8086:56A0"), &[("8086:56A0", 0x03_00_00)]), "GPU", "by its class");
        assert_eq!(topic(Some("10EC:8168"), &[("10EC:8168", 0x02_00_00)]), "device");
        assert_eq!(topic(Some("10EC:8168"), &[("1002:7590", 0x03_00_00)]), "device");
    }
}
