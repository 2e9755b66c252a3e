//! A PCIe survey as text and as JSON.

use std::collections::BTreeSet;
use std::iter;
use std::path::Path;

use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464_files::file;
use asm2464_host::bridge::open::SupplyMeasurement;
use asm2464_host::pcie::{
    Assignment, Bar, BarKind, CapabilityKind, Function, Header, Link, Names, Note, Survey, Window, class_name,
};
use serde::Serialize;

use super::Reached;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;
use crate::cli::words::{advice, print};

/// Where systems keep the PCI ID database.
const IDS: [&str; 2] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];
/// The longest database that is read, in bytes. Today's has 1.5 MiB.
const IDS_MAX: usize = 16 << 20;

/// Returns names for what was found: from the system's database if there is one, otherwise the built-in names.
pub(super) fn names(survey: &Survey) -> Names {
    let wanted: BTreeSet<_> = survey.functions.iter().map(|function| (function.vendor, function.device)).collect();
    let text = IDS.iter().find_map(|path| file::read_regular(Path::new(path), IDS_MAX).ok());
    text.map(|text| Names::find(&String::from_utf8_lossy(&text), &wanted)).unwrap_or_default()
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct PcieJson<'a> {
    /// The unit's port, as `--device` takes it.
    device: &'a str,
    /// What runs on it.
    state: BridgeState,
    /// The supply as its board measures it, if it does.
    supply: Option<SupplyMeasurement>,
    /// Whether the board's fault line is active; null if the firmware does not tell.
    supply_fault: Option<bool>,
    /// The link below the bridge.
    link: Link,
    /// The functions, each after the bridge that it is behind.
    functions: Vec<FunctionJson<'a>>,
    /// What the command wrote.
    changes: &'a [Assignment],
    /// What is wrong or unusual.
    notes: Vec<NoteJson<'a>>,
}

impl print::Document for PcieJson<'_> {
    const VERSION: u32 = 2;
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FunctionJson<'a> {
    #[serde(flatten)]
    function: &'a Function,
    /// Its class, in words.
    class_name: Option<&'static str>,
    /// Its vendor's name, if it is known.
    vendor_name: Option<&'a str>,
    /// Its device's name, if it is known.
    device_name: Option<&'a str>,
    /// With -x: its configuration space, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NoteJson<'a> {
    #[serde(flatten)]
    note: &'a Note,
    /// The note, in words.
    text: String,
    /// What to do, if a command helps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<WordedStep>,
}

fn bytes(dwords: &[u32]) -> Vec<u8> {
    dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect()
}

impl<'a> NoteJson<'a> {
    /// Words a note, with the command that helps. `invocation` is the command that asks.
    fn of(note: &'a Note, invocation: &Invocation) -> Self {
        let steps: Vec<WordedStep> = advice::against_note(note, invocation).into_iter().collect();
        let text = [note.to_string()].into_iter().chain(steps.iter().map(WordedStep::note)).collect::<Vec<_>>();
        Self { note, text: text.join("; "), steps }
    }
}

/// Returns the JSON of a survey. `spaces` has the configuration space of each function; empty if it was not requested.
pub(super) fn json<'a>(
    reached: &'a Reached<'_>,
    survey: &'a Survey,
    names: &'a Names,
    spaces: &[Vec<u32>],
) -> PcieJson<'a> {
    let Survey { link, functions, changes, notes } = survey;
    let function = |(index, function): (usize, &'a Function)| FunctionJson {
        function,
        class_name: class_name(function.class),
        vendor_name: names.vendor(function.vendor),
        device_name: names.device(function.vendor, function.device),
        config: spaces.get(index).map(|space| to_hex(&bytes(space), "")),
    };
    PcieJson {
        device: &reached.device,
        state: reached.firmware,
        supply: reached.supply.and_then(|supply| supply.measured),
        supply_fault: reached.supply.and_then(|supply| supply.has_fault),
        link: *link,
        functions: functions.iter().enumerate().map(function).collect(),
        changes,
        notes: notes.iter().map(|note| NoteJson::of(note, &reached.invocation)).collect(),
    }
}

/// Prints a survey: link, tree, and each function. `spaces` is as for [`json`].
pub(super) fn print(reached: &Reached<'_>, survey: &Survey, names: &Names, spaces: &[Vec<u32>]) {
    let Survey { link, functions, changes, notes } = survey;
    let state = if link.is_up { "up" } else { "down" };
    let rate = functions.first().and_then(|root| root.capabilities.express()).map(|express| express.link);
    let rate = rate.filter(|rate| rate.lanes != 0).map_or_else(String::new, |rate| format!(" at {rate}"));
    let Reached { device, firmware, supply, .. } = reached;
    outln!("{}: {firmware}, PCIe link {state}{rate} (LTSSM {:#04x})", device.shown(), link.ltssm);
    if let Some(SupplyMeasurement { voltage_mv, current_ma }) = supply.and_then(|supply| supply.measured) {
        outln!("  supply {}.{:03} V, {current_ma} mA", voltage_mv / 1000, voltage_mv % 1000);
    }
    if supply.is_some_and(|supply| supply.has_fault == Some(true)) {
        outln!("  note: the board's fault line (GPIO 1) is active; `asmpatch doctor` says what that means");
    }
    changes.iter().for_each(|change| outln!("  assigned: {}", changed(change)));
    notes.iter().for_each(|note| outln!("  note: {}", NoteJson::of(note, &reached.invocation).text));
    outln!("");
    print::out(draw_tree(survey, &|index| name(&functions[index], names)));
    for (index, function) in functions.iter().enumerate() {
        outln!("");
        print_function(function, names);
        if let Some(space) = spaces.get(index) {
            print::out(dump(0, &bytes(space)));
        }
    }
}

/// Returns the names of vendor and device, as far as they are known.
fn name(function: &Function, names: &Names) -> String {
    let Function { vendor, device, .. } = *function;
    let vendor_name = names.vendor(vendor).map_or_else(|| format!("Vendor {vendor:04x}"), str::to_owned);
    let device_name = names.device(vendor, device);
    let device_name = device_name.map_or_else(|| format!("Device {device:04x}"), str::to_owned);
    format!("{} {}", vendor_name.as_str().shown(), device_name.as_str().shown())
}

fn print_function(function: &Function, names: &Names) {
    let Function { at, vendor, device, class, revision, .. } = *function;
    let class_code = class >> 8;
    let class = class_name(class).unwrap_or("Unknown class");
    let name = name(function, names);
    outln!("{at} {class} [{class_code:04x}]: {name} [{vendor:04x}:{device:04x}] (rev {revision:02x})");
    if let Some(express) = function.capabilities.express()
        && express.link_max.lanes != 0
    {
        let trained = if express.link.lanes == 0 { "none".to_owned() } else { express.link.to_string() };
        outln!("        link: {trained}, supports {}", express.link_max);
    }
    if let Header::Bridge { buses, memory, prefetchable, .. } = function.header {
        let forwards = if function.decodes_memory() { "" } else { ", forwards nothing" };
        match buses.secondary {
            0 => outln!("        no bus behind it"),
            secondary => outln!("        buses {secondary:02x}-{:02x} behind it", buses.subordinate),
        }
        outln!("        windows: memory {}, prefetchable {}{forwards}", shown(memory), shown(prefetchable));
    }
    for bar in &function.bars {
        outln!("        BAR {}: {}", bar.index, described(bar, function.decodes_memory()));
    }
    let capabilities: Vec<String> = function
        .capabilities
        .list
        .iter()
        .map(|capability| format!("[{:02x}] {}{}", capability.offset, capability.name, details(capability.kind)))
        .collect();
    if !capabilities.is_empty() {
        outln!("        capabilities: {}", capabilities.join("; "));
    }
}

fn changed(change: &Assignment) -> String {
    match change {
        Assignment::Buses { at, buses } => format!("{at} buses {:02x}-{:02x}", buses.secondary, buses.subordinate),
        Assignment::Windows { at, memory, prefetchable } => {
            format!("{at} windows: memory {}, prefetchable {}", shown(*memory), shown(*prefetchable))
        }
        Assignment::Bar { at, index, address } => format!("{at} BAR {index} at {address:#x}"),
    }
}

fn shown(window: Option<Window>) -> String {
    window.map_or_else(|| "none".to_owned(), |Window { base, limit }| format!("{base:#x}-{limit:#x}"))
}

fn described(bar: &Bar, decodes: bool) -> String {
    let size = bar.size.map_or_else(|| "size not known".to_owned(), binary_bytes);
    let kind = match (bar.kind, bar.prefetchable) {
        (BarKind::Io, _) => "I/O",
        (BarKind::Memory32, false) => "32-bit memory",
        (BarKind::Memory32, true) => "32-bit prefetchable memory",
        (BarKind::Memory64, false) => "64-bit memory",
        (BarKind::Memory64, true) => "64-bit prefetchable memory",
    };
    match (bar.is_assigned(), decodes) {
        (true, true) => format!("{size}, {kind}, at {:#x}", bar.address),
        (true, false) => format!("{size}, {kind}, at {:#x}, switched off", bar.address),
        (false, _) => format!("{size}, {kind}, no address"),
    }
}

/// Formats a power of two in the largest unit of which it has at least one.
fn binary_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (bytes.max(1).ilog2() / 10) as usize;
    format!("{} {}", bytes >> (10 * step), UNITS[step])
}

fn details(kind: CapabilityKind) -> String {
    let on = |enabled: bool| if enabled { "on" } else { "off" };
    match kind {
        CapabilityKind::PowerManagement { state } => format!(": D{state}"),
        CapabilityKind::Msi { enabled, vectors } => format!(": {}, vectors {vectors}", on(enabled)),
        CapabilityKind::MsiX { enabled, entries } => format!(": {}, entries {entries}", on(enabled)),
        CapabilityKind::Express(express) => {
            let (most, set) = express.payload;
            format!(": {}, payload {set} of {most} bytes", express.type_name())
        }
        CapabilityKind::Other => String::new(),
    }
}

/// Formats bytes in hexadecimal, 16 to a line, each line with its address.
pub(in crate::cli) fn dump(address: u64, bytes: &[u8]) -> Vec<String> {
    let line =
        |(index, row): (usize, &[u8])| format!("{:02x}: {}", address.wrapping_add(16 * index as u64), to_hex(row, " "));
    bytes.chunks(16).enumerate().map(line).collect()
}

/// Draws the functions. `name` returns the text for a function that is not a bridge with something behind it.
fn draw_tree(survey: &Survey, name: &dyn Fn(usize) -> String) -> Vec<String> {
    let lines = drawn_after("-[0000:00]-", ' ', draw_bus(survey, None, name));
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Draws what is on the bus behind a bridge.
fn draw_bus(survey: &Survey, bridge: Option<usize>, name: &dyn Fn(usize) -> String) -> Vec<String> {
    let functions: Vec<usize> = survey.behind(bridge).collect();
    match functions[..] {
        [] => vec![String::new()],
        [only] => drawn_after("--", ' ', draw_function(survey, only, name)),
        [.., last] => {
            let branch = |index| if index == last { ("\\-", ' ') } else { ("+-", '|') };
            let draw = |index| (branch(index), draw_function(survey, index, name));
            functions.into_iter().map(draw).flat_map(|((start, bar), lines)| drawn_after(start, bar, lines)).collect()
        }
    }
}

fn draw_function(survey: &Survey, index: usize, name: &dyn Fn(usize) -> String) -> Vec<String> {
    let function = &survey.functions[index];
    let place = format!("{:02x}.{}", function.at.device, function.at.function);
    let Some(buses) = function.buses().filter(|buses| buses.secondary != 0) else {
        return vec![format!("{place}  {}", name(index))];
    };
    let (first, last) = (buses.secondary, buses.subordinate);
    let range = if first == last { format!("{first:02x}") } else { format!("{first:02x}-{last:02x}") };
    drawn_after(&format!("{place}-[{range}]--"), ' ', draw_bus(survey, Some(index), name))
}

/// Draws lines after `start`. Below it is space that begins with `bar`.
fn drawn_after(start: &str, bar: char, lines: Vec<String>) -> Vec<String> {
    let below = format!("{bar:<width$}", width = start.len());
    let starts = iter::once(start).chain(iter::repeat(&*below));
    starts.zip(lines).map(|(start, line)| format!("{start}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use asm2464::Bdf;
    use asm2464_host::pcie::{Function, Link};

    use super::*;

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        let texts =
            [(16, "16 bytes"), (4096, "4 KiB"), (512 << 10, "512 KiB"), (16 << 30, "16 GiB"), (1 << 62, "4 EiB")];
        texts.into_iter().for_each(|(bytes, text)| assert_eq!(binary_bytes(bytes), text));
    }

    #[test]
    fn a_dump_has_sixteen_bytes_a_line() {
        assert_eq!(dump(0xF8, &[1; 17]), [format!("f8: {}", vec!["01"; 16].join(" ")), "108: 01".to_owned()]);
    }

    /// A function, with its secondary and subordinate bus if it is a bridge.
    fn function(at: Bdf, parent: Option<usize>, buses: Option<(u32, u32)>) -> Function {
        let mut header = [0; 16];
        if let Some((secondary, subordinate)) = buses {
            header[3] = 1 << 16;
            header[6] = subordinate << 16 | secondary << 8;
        }
        Function::parse(at, parent, &header)
    }

    #[test]
    fn buses_with_several_devices_are_drawn_below_each_other() {
        let functions = vec![
            function(Bdf::new(0, 0, 0), None, Some((1, 5))),
            function(Bdf::new(1, 0, 0), Some(0), Some((2, 5))),
            function(Bdf::new(2, 1, 0), Some(1), Some((3, 4))),
            function(Bdf::new(3, 0, 0), Some(2), Some((4, 4))),
            function(Bdf::new(4, 0, 0), Some(3), None),
            function(Bdf::new(4, 0, 1), Some(3), None),
            function(Bdf::new(2, 2, 0), Some(1), Some((5, 5))),
            function(Bdf::new(2, 31, 0), Some(1), None),
        ];
        let link = Link { ltssm: 0x78, is_up: true };
        let survey = Survey { link, functions, changes: Vec::new(), notes: Vec::new() };
        let drawn = draw_tree(&survey, &|index| format!("+ function {index}"));
        let expected = "\
-[0000:00]---00.0-[01-05]----00.0-[02-05]--+-01.0-[03-04]----00.0-[04]--+-00.0  + function 4
                                           |                            \\-00.1  + function 5
                                           +-02.0-[05]--
                                           \\-1f.0  + function 7
";
        assert_eq!(drawn.join("\n") + "\n", expected);
    }
}
