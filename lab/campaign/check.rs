//! Compares a process's claims with the unit's files, and the final state with the requested one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use asm2464::firmware::{ConfigField, Part};
use asm2464::flash::{CONFIG_LEN, FIRST_SLOT, SLOT_LEN, Slot};
use asmpatch::flash::backup_folder;
use asmpatch::flash::behaviour::StartedCode;
use asmpatch::flash::progress::StoppedState;

use crate::campaign::history::{Blow, Config, History, Job, Output, Own, Past, Start, Trouble};
use crate::campaign::printed::Claims;
use crate::campaign::process::{End, Ended};
use crate::campaign::world::{self, FORMER_SERIAL, SERIAL, World};

/// Purpose of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Flash,
    Restore,
    /// `doctor --fix`: what its commands need.
    Fix,
    Reads,
}

impl Verb {
    /// The verb of a printed command line.
    pub fn of(line: &str) -> Self {
        match line.split_whitespace().nth(1) {
            Some("flash") => Self::Flash,
            Some("config") if line.contains(" set ") => Self::Flash,
            Some("restore") => Self::Restore,
            Some("doctor") if line.contains(" --fix ") => Self::Fix,
            _ => Self::Reads,
        }
    }
}

/// A process, with the unit's flash before and after it.
pub struct Around<'a> {
    pub verb: Verb,
    /// Whether the unit's CPU reset loads the code from its flash.
    pub loads_code: bool,
    /// Whether its hub can switch its power.
    pub has_port_power: bool,
    /// Whether it is the history's first process.
    pub is_first: bool,
    /// Whether an earlier message printed its command.
    pub is_printed: bool,
    /// The status with which the history's first command ends if nothing strikes it.
    pub status: i32,
    /// Whether it may be refused as well, for an identity that would be lost.
    pub may_be_refused: bool,
    pub trouble: &'a Trouble,
    pub before: &'a [u8],
    pub after: &'a [u8],
    pub ended: &'a Ended,
    pub printed: &'a Claims,
}

/// The slot contents with which a history may end.
pub struct Goals {
    pub asked_for: Vec<Vec<u8>>,
    pub back: Vec<Vec<u8>>,
}

impl Goals {
    pub fn of(world: &World, history: &History) -> Self {
        Self { asked_for: world.asked_for(history), back: world.ways_back(history) }
    }

    /// Compares byte for byte. Foreign bytes may follow an image of one part: the boot loader erases only what it
    /// writes, so bytes of a longer, unfinished image remain there. Nothing reads them.
    fn holds(slots: &[Vec<u8>], flash: &[u8]) -> bool {
        let flash = world::without_random(flash);
        slots.iter().any(|slot| {
            let end = end_of_image(slot);
            world::without_random(slot)[..end] == flash[..end]
        })
    }

    /// Whether the flash holds what the command was asked for.
    pub fn is_asked_for(&self, flash: &[u8]) -> bool {
        Self::holds(&self.asked_for, flash)
    }

    /// Whether the flash holds what it held before.
    pub fn is_back(&self, flash: &[u8]) -> bool {
        Self::holds(&self.back, flash)
    }
}

/// Length of a slot to compare: to the end of an image of one part (header, body, trailer), as open firmware is,
/// otherwise all of it.
fn end_of_image(slot: &[u8]) -> usize {
    let image = Slot::at(FIRST_SLOT, slot).image_file();
    if image.len() <= Part::One.max_len() { CONFIG_LEN + image.len() } else { SLOT_LEN }
}

fn claim(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Around<'_> {
    /// Checks that the exit status is in the contract and that all output is true.
    pub fn check(&self, world: &World, goals: &Goals, folder: &Path) -> Result<(), String> {
        self.status()?;
        claim(self.before[SLOT_LEN..] == self.after[SLOT_LEN..], || "the flash behind the first slot changed".into())?;
        let is_unchanged = self.before == self.after;
        // Without a terminal `--fix` does less, and what it does decides its status.
        if self.is_first && self.verb != Verb::Fix && self.trouble.is_output_alone() {
            claim(self.is_done_with_lost_output(), || "lost output changed the exit status".into())?;
        }
        if self.is_printed && self.trouble.is_output_alone() {
            let is_done = self.is_done_with_lost_output();
            claim(is_done, || "a command that was printed fails, though nothing is wrong any more".into())?;
        }
        if self.trouble.is_one_signal() {
            let is_whole = is_unchanged || goals.is_asked_for(self.after) || goals.is_back(self.after);
            claim(is_whole, || "one signal, and the flash is neither as before nor written".into())?;
        }
        let is_signal = matches!(self.trouble.blow, Some(Blow::Signal { .. }));
        if is_signal && matches!(self.ended.end, End::Signal(_)) {
            claim(is_unchanged, || "a signal ended the process after the first write".into())?;
        }
        if is_signal && self.trouble.output == Output::Read && self.ended.end == End::Status(130) {
            let is_whole = is_unchanged || goals.is_asked_for(self.after) || goals.is_back(self.after);
            claim(is_whole || self.printed.left.is_some(), || {
                "two signals, and no message names the unit's state".into()
            })?;
        }
        match (self.verb, self.ended.end) {
            (Verb::Reads, _) => return claim(is_unchanged, || "a command that only reads changed the flash".into()),
            (Verb::Flash, End::Status(0)) => {
                claim(goals.is_asked_for(self.after), || "exit 0, but the flash holds something else".into())?;
            }
            (Verb::Restore, End::Status(0)) => {
                let is_whole = goals.is_asked_for(self.after) || goals.is_back(self.after);
                claim(is_whole, || "exit 0, but the flash matches no backup".into())?;
            }
            (Verb::Fix, End::Status(0)) => {
                let is_whole = is_unchanged || goals.is_asked_for(self.after) || goals.is_back(self.after);
                claim(is_whole, || "exit 0, but the flash is neither as before nor that of a runtime".into())?;
            }
            _ => {}
        }
        // It prints what several commands say, each of its own state of the unit.
        if self.verb == Verb::Fix {
            return Ok(());
        }
        self.claims(world, goals, folder)
    }

    /// Whether a process whose only trouble was its output ended as it would have otherwise. A full disk under stdout
    /// fails a command whose purpose is its output.
    fn is_done_with_lost_output(&self) -> bool {
        let may_fail = self.verb == Verb::Reads && matches!(self.trouble.output, Output::Full { .. });
        let status = if self.is_first { self.status } else { 0 };
        let is_refused = self.is_first && self.may_be_refused && self.ended.end == End::Status(5);
        self.ended.end == End::Status(status) || is_refused || (may_fail && self.ended.end == End::Status(6))
    }

    fn status(&self) -> Result<(), String> {
        let is_lost = matches!(self.trouble.output, Output::Terminal { lost_after_micros: Some(_) });
        match self.ended.end {
            End::Status(0 | 1 | 3 | 4 | 5 | 6) => Ok(()),
            End::Status(130) => {
                claim(is_lost || !self.ended.sent.is_empty(), || "exit 130, but it was sent no signal".into())
            }
            End::Status(2) => Err("exit 2: the command line is not accepted".into()),
            End::Status(other) => Err(format!("exit {other} is not in the contract")),
            End::Signal(signal) => {
                let is_sent = self.ended.sent.contains(&signal) || (is_lost && signal == 1);
                claim(is_sent, || format!("ended by signal {signal}, which it was not sent"))
            }
        }
    }

    fn claims(&self, world: &World, goals: &Goals, folder: &Path) -> Result<(), String> {
        let printed = self.printed;
        let is_unchanged = self.before == self.after;
        // A kill may arrive after the process's last output.
        if let (Some(ok), End::Status(status)) = (printed.ok, self.ended.end) {
            claim(ok == (status == 0), || format!("\"ok\": {ok} with status {status}"))?;
        }
        if printed.changed == Some(false) {
            claim(is_unchanged, || "\"changed\": false, but the flash changed".into())?;
        }
        if let (Some(image), Verb::Flash, End::Status(0)) = (world::image_in(self.after), self.verb, self.ended.end) {
            let digest = image.sha256().to_string();
            let others: Vec<&String> = printed.digests.iter().filter(|printed| **printed != digest).collect();
            claim(others.is_empty(), || format!("SHA-256 {others:?}, the flash holds {digest}"))?;
        }
        if let Some(left) = printed.left {
            self.left(left, goals)?;
        } else if self.has_said_all() && matches!(self.ended.end, End::Status(1..)) {
            claim(is_unchanged, || "an error without the unit's state, but the flash changed".into())?;
        }
        if let Some(version) = &printed.version {
            let runs = world::image_in(self.after).map(|image| image.version().to_string());
            claim(runs.as_ref() == Some(version), || format!("version {version}, the flash holds {runs:?}"))?;
        }
        if let (Some((id, serial)), Some(blocks), Some(true)) =
            (&printed.after, world::own_blocks(self.after), printed.ok)
        {
            let has = (blocks[0].usb_id().to_string(), blocks[0].text(asm2464::firmware::ConfigField::Serial));
            // Open firmware has its own identity, and the former firmware may still run.
            let may_be_open = world.is_open(self.before) || world.is_open(self.after);
            let is_open = may_be_open && (id == "ADD1:0001" || id == "3801:0001");
            let is_own = (id, serial) == (&has.0, &has.1) || is_open;
            claim(is_own, || format!("came back as {id} {serial}, the flash has {has:?}"))?;
        }
        if let Some(runs) = printed.runs {
            self.runs(runs)?;
        }
        if let Some(named) = &printed.backup {
            let backup = backup_folder::load(&folder.join(named)).map_err(|error| format!("{named}: {error}"))?;
            let is_of_before = backup.content_digest() == world::backup_digest(self.before);
            claim(is_of_before, || format!("{named} is not what the unit held"))?;
        }
        Ok(())
    }

    /// Checks the claim about what runs. Only a CPU reset that loads code, or a power cycle, changes what runs.
    fn runs(&self, runs: StartedCode) -> Result<(), String> {
        let trouble = self.trouble;
        let was_without_power = self.has_port_power || trouble.back_after_ms.is_some();
        match runs {
            StartedCode::Written => claim(self.loads_code || was_without_power, || {
                "\"runs\": \"written\", but neither a CPU reset nor a power cycle loaded the code".into()
            }),
            StartedCode::Before => {
                claim(!self.loads_code || !trouble.is_of_the_unit() || !trouble.unit_is_well(), || {
                    "\"runs\": \"before\", but the CPU reset loaded the code".into()
                })
            }
            StartedCode::Unknown => Ok(()),
        }
    }

    /// Whether the process exited uninterrupted, and its stdout or its stderr was read to the end.
    fn has_said_all(&self) -> bool {
        (self.ended.has_all_out || self.ended.has_all_err) && matches!(self.ended.end, End::Status(code) if code != 130)
    }

    /// Checks that the flash is in the state that a stopped run names.
    fn left(&self, left: StoppedState, goals: &Goals) -> Result<(), String> {
        let is_new = goals.is_asked_for(self.after) || goals.is_back(self.after);
        let starts = world::image_in(self.after).is_some();
        // If a unit can't be read back, its state is known only after it returns.
        let was_read_back = world::image_in(self.before).is_some();
        let holds = match left {
            StoppedState::Untouched | StoppedState::Unprotected => self.before == self.after,
            StoppedState::Verified => is_new,
            StoppedState::Restarted => is_new || !was_read_back,
            StoppedState::BootLoader => !starts,
            // Their messages say "may" or "not proven", so no flash contradicts them.
            StoppedState::Incomplete
            | StoppedState::Complete
            | StoppedState::OtherIdentity
            | StoppedState::Unproven => true,
        };
        claim(holds, || {
            format!("the reported state, {left:?}, is not the flash's (it starts: {starts}, as wanted: {is_new})")
        })
    }
}

/// Checks that every backup is complete and holds what the unit once held.
pub fn backups(folder: &Path, seen: &BTreeSet<[u8; 32]>) -> Result<usize, String> {
    let found = world::backups_under(folder).map_err(|error| error.to_string())?;
    for path in found.iter().filter(|path| !path.ends_with(world::PAST_DAMAGED)) {
        let backup = backup_folder::load(path).map_err(|error| format!("{}: {error}", path.display()))?;
        claim(seen.contains(&backup.content_digest()), || {
            format!("{} holds what the unit never held", path.display())
        })?;
    }
    Ok(found.len())
}

/// The contents of the backups that are there before the first command, but for the damaged one.
pub fn past(folder: &Path) -> Result<Vec<[u8; 32]>, String> {
    let mut past = Vec::new();
    for name in [world::PAST_OWN, world::PAST_OTHERS] {
        let path = folder.join(world::PAST).join(name);
        if path.exists() {
            past.push(backup_folder::load(&path).map_err(|error| error.to_string())?.content_digest());
        }
    }
    Ok(past)
}

/// Checks that a unit which has blocks has the serial number that it showed, or that its own backup has, readable or not:
/// nobody typed another one, nobody was asked, and no command had the consent.
pub fn identity(history: &History, flash: &[u8]) -> Result<(), String> {
    let is_typed = matches!(history.job, Job::SetSerial | Job::Flash { config: Config::Serial, .. });
    let had_it = history.start == Start::NoImage || history.start.is_readable() && history.job.backs_up();
    let former = (history.past.own == Some(Own::WithFormerSerial)).then_some(FORMER_SERIAL);
    let Past { own, damaged, closed, .. } = history.past;
    if is_typed || !(had_it || own.is_some() || damaged || closed) {
        return Ok(());
    }
    let Some([zero, _]) = world::own_blocks(flash) else { return Ok(()) };
    let serial = zero.text(ConfigField::Serial);
    claim(serial == SERIAL || Some(serial.as_str()) == former, || {
        format!("identity lost, though a backup or the unit had it: the unit is {serial} now")
    })
}

/// Checks that no temporary file is left.
pub fn temporaries(folder: &Path) -> Result<(), String> {
    let found = world::temporaries_under(folder).map_err(|error| error.to_string())?;
    claim(found.is_empty(), || format!("left behind: {found:?}"))
}

/// Checks that the SSD behind the bridge is unchanged.
pub fn ssd(unit: &Path) -> Result<(), String> {
    let bytes = fs::read(unit.join("ssd.bin")).map_err(|error| error.to_string())?;
    claim(bytes == world::ssd(), || "the SSD behind the bridge was written".into())
}
