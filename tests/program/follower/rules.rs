//! What is wrong with a printed step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use asm2464::firmware::ConfigField;

use super::Outcome;
use super::steps::Step;
use super::world::{Mark, World};

/// What is wrong with a printed step whose command did `next` in this world. `is_known` if it ran before on this path, in
/// the same world.
pub fn fault(printer: &Outcome, world: &World, step: &Step, next: &Outcome, is_known: bool) -> Option<String> {
    let code = next.code.as_deref().unwrap_or("no code");
    let is_unchanged = world.digest() == next.after.digest();
    if step.is_folded {
        return Some("folded".to_owned());
    }
    let is_failure = next.status != Some(0) && printer.status != Some(0);
    match next.status {
        // The user has a value for it.
        Some(2) if step.is_name || has_placeholder(&step.line) => return None,
        Some(2) => return Some("usage".to_owned()),
        // What it says of a file that is no image is its answer.
        Some(3) if step.line.starts_with("asmpatch info ") && code != "asmpatch::file::not_found" => return None,
        Some(3 | 5) => return Some(format!("refused: {code}")),
        Some(0) if has_placeholder(&step.line) => return Some("takes a placeholder".to_owned()),
        Some(0..=6) => {}
        status => return Some(format!("ended with {status:?}")),
    }
    if let Some(unit) = world.other_unit_changed(&next.after, &step.line) {
        return Some(format!("writes to {unit}"));
    }
    if is_failure && is_unchanged && !step.is_after_hands {
        if is_known {
            return Some("a cycle".to_owned());
        }
        if next.code.is_some() && next.code == printer.code {
            return Some(format!("fails the same way: {code}"));
        }
    }
    None
}

/// Whether a word stands for a value that the user has.
fn has_placeholder(line: &str) -> bool {
    let mut values = line.split(' ').map(|word| word.rsplit_once('=').map_or(word, |(_, value)| value));
    values.any(|value| ["TEXT", "FILE", "IMAGE", "ID", "DIR", "PORT", "BYTES"].contains(&value))
}

/// The options that permit what is refused without them.
const PERMISSIONS: [&str; 4] = ["--unproven", "--clone-identity", "--other-line", "--no-backup"];

/// Each permission in a command, with that command and with the one that lacks it, so that neither asks anything.
pub fn without_each_permission(line: &str) -> Vec<(&'static str, String, String)> {
    let is = |word: &str, permission| word.split('=').next() == Some(permission);
    let given = PERMISSIONS.into_iter().filter(|permission| line.split(' ').any(|word| is(word, permission)));
    let without = |permission| line.split(' ').filter(|word| !is(word, permission)).collect::<Vec<_>>().join(" ");
    given.map(|permission| (permission, format!("{line} --yes"), without(permission) + " --yes")).collect()
}

/// A command that writes a practice image in place of the known image that is its sibling.
pub fn with_practice_image(line: &str) -> Option<String> {
    let (ids, files) = (["ed4e39b", "240417"], ["open.bin", "stock.bin"]);
    let (id, file) = ids.into_iter().zip(files).find(|(id, _)| line.starts_with(&format!("asmpatch flash {id} ")))?;
    Some(line.replacen(id, file, 1))
}

/// A command that prints a document, and asks nothing.
pub fn in_json(line: &str) -> String {
    let asks = ["flash", "restore"].iter().any(|verb| line.split(' ').nth(1) == Some(verb)) || line.contains(" set ");
    format!("{line}{} --json", if asks { " --yes" } else { "" })
}

/// Whether a command gives a unit its own identity back.
pub fn brings_back(line: &str) -> bool {
    line.starts_with("asmpatch restore") || line.contains("--config-from")
}

/// An identity that a step takes from a unit.
pub struct Taken {
    marks: BTreeSet<Mark>,
    /// Whether a backup has it.
    pub is_kept: bool,
}

/// What a step takes from a unit alone: what its flash held and nothing has any more, or what a backup has and the unit
/// gets another of.
pub fn taken(
    world: &World,
    next: &Outcome,
    own: &BTreeMap<PathBuf, BTreeSet<Mark>>,
    typed: &[&str],
    line: &str,
) -> Option<Taken> {
    let (before, after) = (world.units(), next.after.units());
    let kept = next.after.marks_in_backups();
    for (unit, had) in &before {
        let has = after.get(unit)?;
        let is_typed = |serial: &str| typed.iter().any(|typed| typed.contains(serial)) || line.contains(serial);
        let is_lost = |mark: &&Mark| !kept.contains(*mark) && !is_typed(&mark.1);
        let lost: BTreeSet<Mark> = had.difference(has).filter(is_lost).cloned().collect();
        if !lost.is_empty() {
            return Some(Taken { marks: lost, is_kept: false });
        }
        let serial = next.after.serial(unit).filter(|serial| world.serial(unit).as_ref() != Some(serial));
        let own = own.get(unit).cloned().unwrap_or_default();
        let own: BTreeSet<Mark> = own.into_iter().filter(|(field, _)| *field == ConfigField::Serial).collect();
        let is_other = |serial: &String| own.iter().all(|(_, own)| own != serial) && !is_typed(serial);
        let in_backups: BTreeSet<Mark> = own.intersection(&world.marks_in_backups()).cloned().collect();
        if serial.is_some_and(|serial| is_other(&serial)) && !in_backups.is_empty() {
            return Some(Taken { marks: in_backups, is_kept: true });
        }
    }
    None
}

/// Whether the user agrees to the loss of exactly this: the command says it, or its plan.
pub fn is_consent_for(taken: &Taken, step: &Step, next: &Outcome) -> bool {
    let permitted = step.line.split(' ').filter_map(|word| word.strip_prefix("--clone-identity="));
    let permitted: Vec<&str> = permitted.flat_map(|values| values.split(',')).collect();
    taken.marks.iter().all(|(field, value)| {
        let name = if *field == ConfigField::Serial { "serial" } else { "usb4" };
        permitted.contains(&name)
            || (taken.is_kept && permitted.contains(&"own-backup"))
            || next.text.contains(&format!("{value} becomes"))
    })
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_kept { "gives another identity, though a backup has" } else { "loses" })?;
        self.marks.iter().try_for_each(|(field, value)| write!(f, " {} {value}", field.name()))
    }
}
