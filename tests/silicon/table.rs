//! The divergences that remain, as `divergences.toml` lists and explains them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use asm2464_chip::chip::register_name;
use serde::Deserialize;

use super::recording::Access;

/// From the package's root, where cargo runs tests.
const TABLE: &str = "tests/silicon/divergences.toml";

/// Accesses to one register whose values differ, or that only one side makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Divergence {
    pub addr: u16,
    pub silicon: Option<u8>,
    pub model: Option<u8>,
}

/// What a comparison found.
#[derive(Default)]
pub struct Found {
    pub compared: usize,
    pub equal: usize,
    /// Each divergence: how often, and the first line.
    pub different: BTreeMap<Divergence, (usize, usize)>,
}

impl Found {
    pub fn read(&mut self, addr: u16, silicon: u8, model: u8, line: usize) {
        self.compared += 1;
        if silicon == model {
            self.equal += 1;
        } else {
            let divergence = Divergence { addr, silicon: Some(silicon), model: Some(model) };
            self.different.entry(divergence).or_insert((0, line)).0 += 1;
        }
    }

    /// Counts an access that only silicon makes, or only the model.
    pub fn only(&mut self, access: &Access, is_silicon: bool) {
        self.compared += 1;
        let divergence = Divergence {
            addr: access.addr,
            silicon: is_silicon.then_some(access.value),
            model: (!is_silicon).then_some(access.value),
        };
        self.different.entry(divergence).or_insert((0, access.line)).0 += 1;
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    register: String,
    /// The values that silicon answered, in hex; "any" stands for all, "none" for an access that is not made.
    silicon: String,
    model: String,
    /// How often, for each recording that the table knows.
    count: BTreeMap<String, usize>,
    why: String,
}

impl Row {
    fn explains(&self, found: Divergence) -> bool {
        let names = |list: &str, value: Option<u8>| match value {
            None => list == "none",
            Some(_) if list == "any" => true,
            Some(value) => list.split(' ').any(|word| u8::from_str_radix(word, 16) == Ok(value)),
        };
        let registers = self.register.split(' ').map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let hex = |text| u16::from_str_radix(text, 16).unwrap_or_else(|_| panic!("register {text:?}"));
            hex(first)..=hex(last)
        });
        let mut registers = registers;
        registers.any(|range| range.contains(&found.addr))
            && names(&self.silicon, found.silicon)
            && names(&self.model, found.model)
    }
}

/// Compares what was found with the table's rows for this test. Returns the report, and what is wrong with it.
pub fn judge(test: &str, recording: &str, found: &Found) -> (String, Vec<String>) {
    let tables: BTreeMap<String, Vec<Row>> = toml::from_str(&std::fs::read_to_string(TABLE).unwrap()).unwrap();
    let rows = tables.get(test).map_or(&[][..], Vec::as_slice);
    let different = found.compared - found.equal;
    let mut report =
        format!("{recording}: {} compared, {} equal, {different} different\n", found.compared, found.equal);
    let mut wrong = Vec::new();
    let mut counts = vec![0; rows.len()];
    for (divergence, (count, line)) in &found.different {
        let Divergence { addr, silicon, model } = *divergence;
        let name = register_name(addr).unwrap_or("not modelled");
        let value = |value: Option<u8>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:02X}"));
        let (silicon, model) = (value(silicon), value(model));
        let what = format!("{addr:04X} {name}: silicon {silicon}, model {model}, {count} times from line {line}");
        match rows.iter().position(|row| row.explains(*divergence)) {
            Some(row) => {
                counts[row] += count;
                let _ = writeln!(report, "  {what}: {}", rows[row].why);
            }
            None => wrong.push(format!("{recording}: not listed: {what}")),
        }
    }
    for (row, count) in rows.iter().zip(counts) {
        let Row { register, silicon, model, .. } = row;
        if let Some(listed) = row.count.get(recording).filter(|listed| **listed != count) {
            wrong.push(format!(
                "{recording}: {register}, silicon {silicon}, model {model}: happens {count} times, listed {listed} times"
            ));
        }
    }
    if !rows.iter().any(|row| row.count.contains_key(recording)) && different > 0 {
        let _ = writeln!(report, "  the table has no counts for this recording: its rows only explain");
    }
    (report, wrong)
}
