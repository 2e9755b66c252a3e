//! The divergences that remain, as `divergences.toml` lists and explains them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use asm2464_chip::chip::register_name;
use serde::Deserialize;

use super::recording::{Access, Event, Recording, shown_in_interrupts};

/// Path of the table from the package's root, where cargo runs tests.
const TABLE: &str = "../lab/silicon/divergences.toml";

/// Accesses to one register whose values differ, or that only one side makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Divergence {
    pub addr: u16,
    pub silicon: Option<u8>,
    pub model: Option<u8>,
}

/// A divergence, and the circumstances of its access.
struct Difference {
    what: Divergence,
    line: usize,
    /// Bits that registers showed in the same interrupt, on the side that made the access.
    shown: BTreeMap<u16, u8>,
    /// Silicon's firmware took an interrupt or a command soon after.
    soon: bool,
    /// The recording's end cuts off the interrupt.
    is_cut: bool,
}

/// What a comparison found.
pub struct Found<'a> {
    recording: &'a Recording,
    /// What silicon's interrupts showed, and the model's.
    shown: [BTreeMap<usize, BTreeMap<u16, u8>>; 2],
    pub compared: usize,
    pub equal: usize,
    /// How often each register was compared.
    of: BTreeMap<u16, usize>,
    different: Vec<Difference>,
}

impl<'a> Found<'a> {
    /// `model`: the events of the model's CPU; empty if it did not run.
    pub fn new(recording: &'a Recording, model: &[Event]) -> Self {
        let shown = [shown_in_interrupts(&recording.events), shown_in_interrupts(model)];
        Self { recording, shown, compared: 0, equal: 0, of: BTreeMap::new(), different: Vec::new() }
    }

    pub fn different(&self) -> usize {
        self.different.len()
    }

    /// Compares an access of silicon's with the model's; `None` if that side does not make it.
    pub fn compare(&mut self, silicon: Option<&Access>, model: Option<&Access>) {
        let Some(access) = silicon.or(model) else { return };
        self.compared += 1;
        *self.of.entry(access.addr).or_default() += 1;
        let what = Divergence {
            addr: access.addr,
            silicon: silicon.map(|access| access.value),
            model: model.map(|access| access.value),
        };
        if what.silicon == what.model {
            self.equal += 1;
            return;
        }
        let shown = self.shown[usize::from(silicon.is_none())].get(&access.interrupt).cloned().unwrap_or_default();
        let soon = silicon.is_some_and(|access| self.recording.comes_soon(access.line));
        let is_cut = silicon.is_some_and(|access| self.recording.cut_off() == Some(access.interrupt));
        self.different.push(Difference { what, line: access.line, shown, soon, is_cut });
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    register: String,
    /// The values that silicon answered, in hex; "any" stands for all, "none" for an access that is not made.
    silicon: String,
    model: String,
    /// Only in interrupts in which the firmware read this register with one of these bits set: "9301 40". An interrupt
    /// that the recording's end cuts off may have any cause.
    interrupt: Option<String>,
    /// Only before the recording's first read of this register that shows one of these bits: "9301 80".
    before: Option<String>,
    /// Only where silicon's firmware took an interrupt or a command soon after.
    #[serde(default)]
    soon: bool,
    /// At most this share of the accesses to the row's registers, in percent, whether the recording has a count or not.
    most: Option<usize>,
    /// Number of occurrences in each recording that the table knows.
    #[serde(default)]
    count: BTreeMap<String, usize>,
    why: String,
}

/// Maximum number of addresses in a row without an `interrupt`, so that the row hides no fault.
const MOST_ADDRESSES: usize = 8;

fn hex(text: &str) -> u16 {
    u16::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{TABLE}: {text:?} is no number"))
}

/// A register and bits of it.
fn bits(text: &str) -> (u16, u8) {
    let (addr, bits) = text.split_once(' ').unwrap_or_else(|| panic!("{TABLE}: {text:?} is no register with bits"));
    (hex(addr), hex(bits) as u8)
}

impl Row {
    fn registers(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.register.split(' ').map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            hex(first)..=hex(last)
        })
    }

    fn names(&self, addr: u16) -> bool {
        self.registers().any(|range| range.contains(&addr))
    }

    fn explains(&self, found: &Difference, recording: &Recording) -> bool {
        let is_value = |list: &str, value: Option<u8>| match value {
            None => list.split(' ').any(|word| word == "none"),
            Some(_) if list == "any" => true,
            Some(value) => list.split(' ').any(|word| u8::from_str_radix(word, 16) == Ok(value)),
        };
        let is_there =
            self.interrupt.as_deref().map(bits).is_none_or(|(addr, bits)| {
                found.is_cut || found.shown.get(&addr).is_some_and(|shown| shown & bits != 0)
            });
        let is_before = self.before.as_deref().map(bits).is_none_or(|(addr, bits)| {
            let first = recording.accesses().find(|access| access.reads(addr, bits));
            first.is_none_or(|access| found.line < access.line)
        });
        self.names(found.what.addr)
            && is_value(&self.silicon, found.what.silicon)
            && is_value(&self.model, found.what.model)
            && is_there
            && is_before
            && (found.soon || !self.soon)
    }

    /// Whether the row could hide a fault in a recording that has no count.
    fn is_wide(&self) -> bool {
        let addresses: usize = self.registers().map(|range| range.len()).sum();
        let any = [&self.silicon, &self.model].into_iter().filter(|list| *list == "any").count();
        any == 2 || self.interrupt.is_none() && (any > 0 || addresses > MOST_ADDRESSES)
    }
}

fn tables() -> BTreeMap<String, Vec<Row>> {
    toml::from_str(&std::fs::read_to_string(TABLE).unwrap()).unwrap()
}

/// Rows that could hide a fault.
pub fn wide_rows() -> Vec<String> {
    let rows = tables().into_values().flatten().filter(Row::is_wide);
    rows.map(|row| format!("{}: silicon {}, model {}", row.register, row.silicon, row.model)).collect()
}

/// Compares what was found with the table's rows for this test. Returns the report, and what is wrong with it.
pub fn judge(test: &str, found: &Found<'_>) -> (String, Vec<String>) {
    let mut tables = tables();
    let rows: Vec<Row> = ["both", test].into_iter().filter_map(|name| tables.remove(name)).flatten().collect();
    let recording = &found.recording.name;
    let different = found.different();
    let mut report =
        format!("{recording}: {} compared, {} equal, {different} different\n", found.compared, found.equal);
    let mut counts = vec![0; rows.len()];
    // Each divergence with the row that explains it: how often, and the first line.
    let mut kinds: BTreeMap<(Divergence, Option<usize>), (usize, usize)> = BTreeMap::new();
    for difference in &found.different {
        let row = rows.iter().position(|row| row.explains(difference, found.recording));
        if let Some(row) = row {
            counts[row] += 1;
        }
        kinds.entry((difference.what, row)).or_insert((0, difference.line)).0 += 1;
    }
    let mut wrong = Vec::new();
    for ((divergence, row), (count, line)) in &kinds {
        let Divergence { addr, silicon, model } = *divergence;
        let name = register_name(addr).unwrap_or("not modelled");
        let value = |value: Option<u8>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:02X}"));
        let (silicon, model) = (value(silicon), value(model));
        let what = format!("{addr:04X} {name}: silicon {silicon}, model {model}, {count} times from line {line}");
        match row {
            Some(row) => {
                let _ = writeln!(report, "  {what}: {}", rows[*row].why);
            }
            None => wrong.push(format!("{recording}: not listed: {what}")),
        }
    }
    for (row, count) in rows.iter().zip(counts) {
        let Row { register, silicon, model, .. } = row;
        let what = format!("{recording}: {register}, silicon {silicon}, model {model}: happens {count} times");
        if let Some(listed) = row.count.get(recording).filter(|listed| **listed != count) {
            wrong.push(format!("{what}, listed {listed} times"));
        }
        let of: usize = found.of.iter().filter(|(addr, _)| row.names(**addr)).map(|(_, of)| of).sum();
        if let Some(most) = row.most.filter(|most| count * 100 > of * most) {
            wrong.push(format!("{what} of {of}, more than {most} %"));
        }
    }
    if !rows.iter().any(|row| row.count.contains_key(recording)) && different > 0 {
        let _ = writeln!(report, "  the table has no counts for this recording");
    }
    (report, wrong)
}
