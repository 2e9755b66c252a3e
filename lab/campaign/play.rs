//! Plays one history: the first command with its fault, then only printed commands or those of docs/recovery.md.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use asm2464::flash::SLOT_LEN;
use asmpatch::flash::backup_folder;
use serde_json::Value;

use crate::campaign::check::{self, Around, Goals, Verb};
use crate::campaign::feature::Done;
use crate::campaign::history::{Config, Defects, History, Job, Output, Start, Trouble};
use crate::campaign::printed::{Claims, LEFT_BY_FIX};
use crate::campaign::process::{self, End, Ended, Place, quoted};
use crate::campaign::watchdog::Watchdog;
use crate::campaign::world::{
    self, COMPANION, DOCUMENTED_SERIAL, EARLIER, NEW_SERIAL, PAST_OTHERS, PAST_OWN, SERIAL, World,
};
use crate::schemas;

/// Number of commands without faults after which the unit must be in a requested state.
const MOST_CALM: usize = 4;
/// How often to run the first command again if the message names no other.
const MOST_AGAIN: usize = 2;

/// What brought the unit into its final state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// The first command, despite its fault.
    Itself,
    /// The first command again, as the message says.
    Again,
    /// The printed commands.
    Printed,
    /// docs/recovery.md.
    Documented,
}

/// Whether the backup in this folder was taken from this device, or has the content of this flash. Units with equal
/// content share one backup, which names the first of them.
fn is_backup_of(folder: &Path, device: &str, flash: &[u8]) -> bool {
    backup_folder::load(folder)
        .is_ok_and(|backup| backup.unit.device == device || backup.content_digest() == world::backup_digest(flash))
}

/// The unit's final state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// Flashed or restored as requested.
    AsAsked,
    /// As before.
    AsBefore,
    /// Only read.
    Read,
}

/// A history in which everything held.
#[derive(Debug)]
pub struct Tale {
    pub by: By,
    pub ending: Ending,
    pub processes: usize,
    pub backups: usize,
    pub done: Done,
}

/// A history in which something did not hold.
#[derive(Debug)]
pub struct Broken {
    /// The broken claim.
    pub what: String,
    /// All processes up to that point.
    pub processes: String,
}

struct Player<'a> {
    world: &'a World,
    history: &'a History,
    folder: &'a Path,
    bin: &'a Path,
    watchdog: &'a Watchdog,
    goals: Goals,
    seen: BTreeSet<[u8; 32]>,
    log: String,
    processes: usize,
    done: Done,
    /// Whether somebody was asked, or has typed a serial number: then the identity is theirs to choose.
    chose_identity: bool,
}

/// Whether a row of `list` shows running firmware rather than the boot loader.
fn runs_firmware(row: &Value) -> bool {
    row["state"] == "vendor" || row["state"] == "open-firmware"
}

/// The table of bridge.toml with these defects. Bulk data are lost only under open firmware, where this was seen. The
/// vendor's firmware takes each configuration block in one packet, so that every write would fail.
fn defects(defects: Defects, is_open: bool) -> String {
    let mut text = String::from("[flash]\n");
    let Defects { bulk_out_lands, stale_first_byte, status_in_buffer } = defects;
    for (key, value) in [("bulk-out-lands", bulk_out_lands.filter(|_| is_open)), ("stale-first-byte", stale_first_byte)]
    {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    let _ = writeln!(text, "status-in-buffer = {status_in_buffer}");
    text
}

struct Next {
    line: OsString,
    verb: Verb,
    by: By,
}

/// Plays a history in the empty folder `folder`.
///
/// # Errors
/// [`Broken`].
pub fn play(world: &World, history: &History, folder: &Path, bin: &Path, watchdog: &Watchdog) -> Result<Tale, Broken> {
    let goals = Goals::of(world, history);
    let log = String::new();
    let (seen, done) = (BTreeSet::new(), Done::default());
    let mut player =
        Player { world, history, folder, bin, watchdog, goals, seen, log, processes: 0, done, chose_identity: false };
    let played = player.all();
    // The campaign removes the folder.
    let opened = world::open_closed(folder).map_err(|error| error.to_string());
    let played = played.and_then(|tale| opened.map(|()| tale));
    played.map_err(|what| Broken { what, processes: std::mem::take(&mut player.log) })
}

impl Player<'_> {
    fn all(&mut self) -> Result<Tale, String> {
        self.world.furnish(self.history, self.folder).map_err(|error| error.to_string())?;
        self.seen.insert(world::backup_digest(&self.world.flash(self.history.start)));
        if self.folder.join(EARLIER).exists() {
            self.seen.insert(world::backup_digest(&self.world.flash(Start::Stock)));
        }
        if let Some(companion) = self.history.companion {
            self.seen.insert(world::backup_digest(&self.world.companion(companion)));
        }
        let past = check::past(self.folder)?;
        self.seen.extend(past);
        let mut by = By::Itself;
        let first = self.first_command();
        let (mut ended, mut printed) = self.run(&first, &self.history.first)?;
        self.companion()?;
        self.done.wrote_companion = self.history.companion.is_some();
        let mut troubles = self.history.during_recovery.iter();
        let (mut calm, mut again) = (0, 0);
        while !self.is_over(&ended, calm) {
            let next = match self.next(&printed, again)? {
                Some(next) => next,
                None => {
                    by = by.max(By::Printed);
                    break;
                }
            };
            by = by.max(next.by);
            again += usize::from(next.by == By::Again);
            let trouble = troubles.next().cloned().unwrap_or_else(|| {
                calm += 1;
                self.history.calm()
            });
            if calm > MOST_CALM {
                return Err(format!("{MOST_CALM} commands without trouble did not bring the unit back"));
            }
            (ended, printed) = self.run(&next, &trouble)?;
        }
        self.end(by)
    }

    /// Checks that one unit's faults don't affect the other unit.
    fn companion(&mut self) -> Result<(), String> {
        let Some(companion) = self.history.companion else { return Ok(()) };
        let flash = fs::read(self.folder.join(COMPANION).join("flash.bin")).map_err(|error| error.to_string())?;
        let is_written = flash[..SLOT_LEN] == self.world.companion_asked_for(companion)
            && flash[SLOT_LEN..] == self.world.companion(companion)[SLOT_LEN..];
        self.seen.insert(world::backup_digest(&flash));
        if is_written { Ok(()) } else { Err("the second unit, with which nothing is wrong, is not written".into()) }
    }

    /// Whether the history's last command has ended as it should.
    fn is_over(&self, ended: &Ended, calm: usize) -> bool {
        match (self.history.job, ended.end) {
            (_, End::Status(0)) => true,
            // It wrote the unit's own firmware again, and writes no other in this run; or there is no image.
            (Job::Fix, End::Status(1)) => calm > 0,
            (Job::Fix, End::Status(6)) => calm > 0 && !self.world.has_newest_open(),
            // The bench never writes to an SSD.
            (Job::Bench { path: "write16", .. }, End::Status(5)) => self.history.has_ssd && calm > 0,
            // Stock firmware never answers WRITE(16) over UAS, nor a READ(16) without an SSD: the bench says so and fails.
            (Job::Bench { path: "write16" | "read16", .. }, End::Status(1)) => {
                let says_so = |text: &str| text.contains("no answer in") || text.contains("never answers WRITE(16)");
                calm > 0 && (says_so(&ended.out) || says_so(&ended.err))
            }
            // The unit is back, and the status says that it is slow as before.
            (Job::Reset, End::Status(status)) => {
                status == self.history.status()
                    && calm > 0
                    && ended.err.contains("the restart didn't help: its link is at 480 Mbit/s\n")
            }
            _ => false,
        }
    }

    fn end(&mut self, by: By) -> Result<Tale, String> {
        let row = self.look()?;
        let flash = self.flash()?;
        let is_writing = self.history.job.writes();
        let ending = if !is_writing {
            Ending::Read
        } else if self.goals.is_asked_for(&flash) {
            Ending::AsAsked
        } else if self.goals.is_back(&flash) {
            Ending::AsBefore
        } else {
            return Err("the flash is neither as asked nor as before".into());
        };
        if flash[SLOT_LEN..] != self.world.flash(self.history.start)[SLOT_LEN..] {
            return Err("the flash behind the first slot changed".into());
        }
        if self.world.is_open(&flash) {
            if row["state"] != "open-firmware" {
                return Err(format!("`list` shows {}, the flash has open firmware", row["state"]));
            }
        } else if let (Some(blocks), Some(image)) = (world::own_blocks(&flash), world::image_in(&flash)) {
            let (id, version) = (blocks[0].usb_id().to_string(), image.version().to_string());
            if row["usb_id"] != id || row["version"] != version {
                return Err(format!(
                    "`list` shows {} and {}, the flash has {id} and {version}",
                    row["usb_id"], row["version"]
                ));
            }
        }
        if self.history.has_ssd {
            check::ssd(&self.unit())?;
        }
        // Whoever agrees to everything loses nothing.
        if self.history.job == Job::Fix {
            check::identity(self.history, &flash)?;
        }
        let backups = check::backups(self.folder, &self.seen)?;
        check::temporaries(self.folder)?;
        Ok(Tale { by, ending, processes: self.processes, backups, done: self.done })
    }

    fn unit(&self) -> PathBuf {
        self.folder.join(self.history.unit_name)
    }

    fn flash(&self) -> Result<Vec<u8>, String> {
        fs::read(self.unit().join("flash.bin")).map_err(|error| format!("flash.bin: {error}"))
    }

    /// Runs a command with its faults, and checks its claims against the unit.
    fn run(&mut self, next: &Next, trouble: &Trouble) -> Result<(Ended, Claims), String> {
        let before = self.flash()?;
        self.seen.insert(world::backup_digest(&before));
        let mut trouble = trouble.clone();
        if next.verb == Verb::Fix && trouble.output == Output::Read {
            trouble.output = Output::Terminal { lost_after_micros: None };
        }
        let trouble = &trouble;
        let scenario = self.scenario(trouble, self.world.is_open(&before));
        fs::write(self.unit().join("bridge.toml"), &scenario).map_err(|error| error.to_string())?;
        self.processes += 1;
        let _ = writeln!(self.log, "--- {} ({:?})\n{trouble:?}", next.line.to_string_lossy(), next.by);
        let ended = process::run(
            &self.answered(next, trouble, self.world.is_open(&before)),
            self.place(),
            trouble,
            self.watchdog,
        );
        let ended = ended.map_err(|error| error.to_string())?;
        let _ = writeln!(self.log, "{:?}, sent {:?}\n{}{}", ended.end, ended.sent, ended.out, ended.err);
        // A process that is killed, or whose output is lost, may print an incomplete document.
        if let Ok(document) = serde_json::from_str(&ended.out) {
            schemas::check(&next.line.to_string_lossy().split(' ').skip(1).collect::<Vec<_>>(), &document)?;
        }
        let mut printed = Claims::by(&ended, &format!("virtual:{}", self.history.unit_name));
        if next.verb == Verb::Fix && !ended.out.contains(LEFT_BY_FIX) {
            printed.commands.clear();
        }
        let after = self.flash()?;
        let is_first = self.processes == 1 && next.by == By::Again;
        let is_printed = next.by == By::Printed;
        let around = Around {
            verb: next.verb,
            loads_code: self.history.loads_code,
            has_port_power: self.history.has_port_power,
            is_first,
            is_printed,
            status: self.history.status(),
            may_be_refused: self.history.may_be_refused(),
            trouble,
            before: &before,
            after: &after,
            ended: &ended,
            printed: &printed,
        };
        around.check(self.world, &self.goals, self.folder)?;
        let is_asked = matches!(trouble.output, Output::Terminal { .. });
        let line = next.line.to_string_lossy();
        self.chose_identity |= is_asked || line.contains("--serial") || line.contains("own-backup");
        if next.verb != Verb::Reads && ended.end == End::Status(0) && !self.chose_identity {
            check::identity(self.history, &after)?;
        }
        self.note(next, &before, &after, &ended, &printed);
        Ok((ended, printed))
    }

    /// Notes what a process did, for the counts of features.
    fn note(&mut self, next: &Next, before: &[u8], after: &[u8], ended: &Ended, printed: &Claims) {
        self.done.moved |= next.verb == Verb::Fix && before != after;
        let is_copy = next.verb == Verb::Reads && matches!(self.history.job, Job::Backup { .. } | Job::DryRun);
        let does_move = ended.end == End::Status(0) && (next.verb != Verb::Reads || is_copy);
        self.done.moved |= does_move;
        self.done.through_registers |= does_move && self.world.is_open(before);
        let is_reset = [&ended.out, &ended.err].iter().any(|text| text.contains("CPU reset sent"));
        self.done.judged_reset |= is_reset && before != after && printed.runs.is_some();
    }

    fn place(&self) -> Place<'_> {
        let by_env = self.history.backup_dir.filter(|_| self.history.backup_dir_by_env);
        let (backup_dir, lacks_rights) = (by_env.map(OsStr::new), self.history.past.closed);
        Place { folder: self.folder, bin: self.bin, backup_dir, lacks_rights }
    }

    /// The command line with `--yes` if no terminal can answer the question, and `--json` if the history uses it. With
    /// `-vv` a command logs every request, so that lost output loses log lines, too. Through registers these are
    /// 100,000 requests, so `-v` logs only the steps there.
    fn answered(&self, next: &Next, trouble: &Trouble, is_open: bool) -> OsString {
        let is_asked = matches!(trouble.output, Output::Terminal { .. });
        let mut line = next.line.as_bytes().to_vec();
        if !matches!(next.verb, Verb::Reads | Verb::Fix) {
            let log = if is_open { " -v" } else { " -vv" };
            let options = match (is_asked, self.history.json) {
                (true, _) => log.to_owned(),
                (false, true) => format!(" --yes --json{log}"),
                (false, false) => " --yes".to_owned(),
            };
            // After the subcommand, because only operands may follow.
            let name =
                if line.starts_with(b"asmpatch config set") { "asmpatch config ".len() } else { "asmpatch ".len() };
            let at = line[name..].iter().position(|byte| *byte == b' ').map_or(line.len(), |len| name + len);
            line.splice(at..at, options.bytes());
        }
        OsString::from_vec(line)
    }

    /// The unit's bridge.toml for a process with these faults.
    fn scenario(&self, trouble: &Trouble, is_open: bool) -> String {
        let mut text = String::new();
        if self.history.has_ssd {
            text.push_str("behind = { ssd = { bytes = 65536 } }\n");
        }
        if self.history.is_high_speed {
            text.push_str("speed = \"high\"\n");
        }
        if self.history.loads_code {
            text.push_str("cpu-reset = \"loads-code\"\n");
        }
        if self.history.has_port_power {
            text.push_str("port-power = true\n");
        }
        let mut number = |key: &str, value: Option<u64>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {value}");
            }
        };
        number("power-loss-after", trouble.power_loss_after);
        number("unplug-after-us", trouble.unplug_after_micros);
        number("back-after-ms", trouble.back_after_ms);
        if trouble.is_slow {
            text.push_str(
                "[timing]\nerase-sector-ms = 1\nprogram-page-us = 30\ncommand-us = 1000\nreenumerate-ms = 5\n",
            );
        }
        if self.history.is_high_speed {
            text.push_str(&defects(self.history.defects, is_open));
        }
        for fault in &trouble.faults {
            let _ =
                writeln!(text, "[[fault]]\nkind = \"{}\"\nnth = {}\ntimes = {}", fault.kind, fault.nth, fault.times);
            if let Some(opcode) = fault.opcode {
                let _ = writeln!(text, "opcode = {opcode}");
            }
        }
        text
    }

    /// A command line that no message printed: its verb, its options, the unit, the operands.
    fn line(&self, verb: &str, options: &[&OsStr], operands: &[&OsStr]) -> OsString {
        let mut device = OsString::from("virtual:");
        device.push(self.history.unit_name);
        let mut line = OsString::from(format!("asmpatch {verb}"));
        let words = options.iter().copied().chain(["--device".as_ref(), device.as_ref()]);
        let operands = (!operands.is_empty()).then_some("--".as_ref()).into_iter().chain(operands.iter().copied());
        for word in words.chain(operands) {
            line.push(" ");
            line.push(quoted(word));
        }
        line
    }

    fn first_command(&self) -> Next {
        let mut options: Vec<&OsStr> = Vec::new();
        let mut operands: Vec<&OsStr> = Vec::new();
        let (mut verb, mut is_json) = ("list", self.history.json && !self.history.job.writes());
        let equals;
        let new_serial = format!("serial={NEW_SERIAL}");
        match self.history.job {
            Job::Flash { config, .. } => {
                verb = "flash";
                operands.push(self.history.image_name);
                match config {
                    Config::Own => {}
                    Config::Earlier => options.extend(["--config-from".as_ref(), EARLIER.as_ref() as &OsStr]),
                    Config::Serial => options.extend(["--serial".as_ref(), SERIAL.as_ref() as &OsStr]),
                }
            }
            Job::Restore { .. } => {
                verb = "restore";
                operands.push(EARLIER.as_ref());
            }
            Job::SetSerial => {
                verb = "config set";
                operands.push(new_serial.as_ref());
            }
            Job::DryRun => {
                verb = "flash";
                options.push("--dry-run".as_ref());
                operands.push(self.history.image_name);
            }
            Job::Reset => verb = "reset",
            Job::Fix => verb = "doctor --fix",
            Job::Backup { named } => {
                verb = "backup";
                if named {
                    options.extend(["-o".as_ref(), "kept".as_ref() as &OsStr]);
                }
            }
            Job::Bench { uas, path } => {
                verb = "bench";
                let transport = if uas { "uas" } else { "bot" };
                let quick =
                    ["--path", path, "--seconds", "0.002", "--repetitions", "1", "--size", "512", "--depth", "2"];
                let quick = ["--transport", transport].into_iter().chain(quick);
                options.extend(quick.map(|word| word.as_ref() as &OsStr));
            }
            Job::List => is_json = false,
        }
        if self.history.companion.is_some() {
            options.extend(["--all".as_ref(), "--device".as_ref(), "virtual:companion".as_ref() as &OsStr]);
        }
        if self.history.job.writes() && self.history.job != Job::Fix {
            if !self.history.job.backs_up() {
                options.push("--no-backup".as_ref());
            } else if let (Some(dir), false) = (self.history.backup_dir, self.history.backup_dir_by_env) {
                equals = OsString::from(format!("--backup-dir={dir}"));
                options.push(&equals);
            }
        }
        if is_json {
            options.push("--json".as_ref());
        }
        let line = self.line(verb, &options, &operands);
        let does_write = self.history.job.writes();
        Next { verb: if does_write { Verb::of(&line.to_string_lossy()) } else { Verb::Reads }, line, by: By::Again }
    }

    /// The next command, or `None` if nothing is left to do.
    fn next(&mut self, printed: &Claims, again: usize) -> Result<Option<Next>, String> {
        if let Some(printed) = printed.commands.iter().find(|command| command.starts_with("asmpatch list")) {
            let row = self.list(format!("{printed} --json").into(), By::Printed)?;
            return if runs_firmware(&row) { Ok(None) } else { self.documented().map(Some) };
        }
        // The owner knows which backup is another dock's.
        let mut fitting = printed.commands.iter().filter(|command| !command.contains(PAST_OTHERS));
        let back = fitting.clone().find(|command| self.history.goes_back && command.starts_with("asmpatch restore"));
        if let Some(printed) = back.or(fitting.next()) {
            return Ok(Some(Next { line: printed.into(), verb: Verb::of(printed), by: By::Printed }));
        }
        if self.history.job == Job::Fix {
            return Ok(Some(self.first_command()));
        }
        let is_again = printed.code.as_deref().is_some_and(|code| code != "asmpatch::flash::no_backup");
        if (is_again && again < MOST_AGAIN) || !self.history.job.writes() {
            return Ok(Some(self.first_command()));
        }
        self.documented().map(Some)
    }

    /// Follows docs/recovery.md: looks up the unit's state in its table.
    fn documented(&mut self) -> Result<Next, String> {
        let row = self.look()?;
        let mut next = if runs_firmware(&row) {
            self.first_command()
        } else {
            let earlier = self.folder.join(EARLIER);
            let found = world::backups_under(self.folder).map_err(|error| error.to_string())?;
            // A companion's backup may have the same serial number, but the owner knows which unit it is from.
            let (device, first) = (format!("virtual:{}", self.history.unit_name), self.world.flash(self.history.start));
            let is_own = |path: &&PathBuf| path.ends_with(PAST_OWN) || is_backup_of(path, &device, &first);
            let backup = found.iter().filter(is_own).find(|path| **path != earlier).or(found.get(&earlier));
            let flash = |consent: Option<&str>, option: &str, value: &OsStr| {
                let consent = consent.map(OsStr::new);
                let options = [OsStr::new("--no-backup")].into_iter().chain(consent).chain([option.as_ref(), value]);
                self.line("flash", &options.collect::<Vec<_>>(), &[self.history.image_name])
            };
            let line = match (self.history.job, backup) {
                (Job::Flash { .. }, Some(backup)) if !self.history.goes_back => {
                    flash(None, "--config-from", backup.as_ref())
                }
                (Job::Flash { .. }, None) => {
                    flash(Some("--clone-identity=usb4"), "--serial", DOCUMENTED_SERIAL.as_ref())
                }
                (_, backup) => {
                    let is_back = self.history.goes_back || self.history.job == Job::SetSerial;
                    let backup = if is_back { backup } else { found.get(&earlier) };
                    let backup = backup.ok_or("there is no backup to go back to")?;
                    self.line("restore", &["--no-backup".as_ref()], &[backup.as_ref()])
                }
            };
            Next { verb: Verb::of(&line.to_string_lossy()), line, by: By::Documented }
        };
        next.by = By::Documented;
        Ok(next)
    }

    /// Shows the unit with `asmpatch list`, with power and without faults.
    fn look(&mut self) -> Result<Value, String> {
        self.list(self.line("list", &["--json".as_ref()], &[]), By::Documented)
    }

    fn list(&mut self, line: OsString, by: By) -> Result<Value, String> {
        let (ended, _) = self.run(&Next { line, verb: Verb::Reads, by }, &Trouble::default())?;
        let list: Value = serde_json::from_str(&ended.out).map_err(|error| format!("`list --json`: {error}"))?;
        let device = format!("virtual:{}", self.history.unit_name);
        let rows = list["units"].as_array().map_or(&[][..], Vec::as_slice);
        let row = rows.iter().find(|row| row["device"] == device);
        row.cloned().ok_or_else(|| "`list` doesn't show the unit".to_owned())
    }
}
