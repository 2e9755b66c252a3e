//! Follows what the program prints: in each state, each command that a user types and then each printed command, exactly
//! as it is printed, through a shell on a terminal of 80 columns, up to six in a row.
//!
//! A plain `cargo test` walks a part of the states and their commands, and `FOLLOW=all` the whole: [`part`] says which.
//!
//! A command is run once for each content of the folder that it runs in. `known.txt` lists the steps that fail, and
//! `unreached.txt` the codes of the table of errors whose commands no state reaches, each with the reason. A row that isn't
//! true any more has to go, so that both lists only shrink. To see one state's journeys: `FOLLOW=STATE cargo test --test
//! program follower:: -- --nocapture`; `FOLLOW=KIND` walks through the states of a kind.

#![allow(clippy::print_stdout, reason = "a state's journeys are shown on request")]

mod files;
mod histories;
mod part;
mod rules;
mod states;
mod steps;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::Value;
use states::{LOSE_IMAGE, State};
use steps::Step;
use world::{Mark, World};

use crate::program::download::server::{Server, send, send_file};
use crate::program::process::PROGRAM;
use crate::program::{fix, terminal};
use crate::side_by_side;

/// The most commands in a row.
const MOST_STEPS: usize = 6;
/// The most ways back among them: each writes the unit and prints the next one, which differs in its backup alone.
const MOST_WAYS_BACK: usize = 2;
/// The steps that are known to fail, in paragraphs: lines of `# reason`, then the steps.
const KNOWN: &str = include_str!("known.txt");
/// The codes that no state reaches, in the same form.
const UNREACHED: &str = include_str!("unreached.txt");

/// What a command did in a world.
struct Outcome {
    line: String,
    status: Option<i32>,
    code: Option<String>,
    text: String,
    steps: Vec<Step>,
    after: Rc<World>,
}

impl Outcome {
    /// Whether a program may run this step: what `--json` says of it. A step that isn't in the document may be run.
    fn is_certain(&self, step: &Step) -> bool {
        let document = self.text.find(['{', '[']).map(|at| serde_json::from_str(&self.text[at..]));
        let Some(Ok(document)) = document else { return true };
        applicability(&document, &steps::normal(&step.line)).is_none_or(|applicability| applicability == "certain")
    }
}

/// The applicability that a document gives a command.
fn applicability(document: &Value, command: &str) -> Option<String> {
    if document["command"].as_str().is_some_and(|shown| steps::normal(shown) == command) {
        return document["applicability"].as_str().map(str::to_owned);
    }
    let below: Vec<&Value> = match document {
        Value::Array(all) => all.iter().collect(),
        Value::Object(all) => all.values().collect(),
        _ => Vec::new(),
    };
    below.into_iter().find_map(|value| applicability(value, command))
}

/// What a walk has found.
#[derive(Default)]
struct Found {
    faults: BTreeSet<String>,
    /// The rows of the steps that were followed, without what is wrong with them.
    followed: BTreeSet<String>,
    /// The errors' codes.
    codes: BTreeSet<String>,
    commands: usize,
}

impl Found {
    fn add(&mut self, more: Self) {
        self.faults.extend(more.faults);
        self.followed.extend(more.followed);
        self.codes.extend(more.codes);
        self.commands += more.commands;
    }
}

/// The walk through one state.
struct Walk<'a> {
    state: &'a State,
    root: &'a Path,
    programs: &'a Path,
    mirror: &'a str,
    /// What is below the root.
    now: Rc<World>,
    /// What each unit's flash has held alone, until the first command that is followed.
    own: BTreeMap<PathBuf, BTreeSet<Mark>>,
    known: BTreeMap<(String, String), Rc<Outcome>>,
    walked: BTreeMap<(String, String), usize>,
    found: Found,
    is_shown: bool,
}

impl<'a> Walk<'a> {
    fn new(
        state: &'a State,
        root: &'a Path,
        programs: &'a Path,
        mirror: &'a str,
        now: Rc<World>,
        is_shown: bool,
    ) -> Self {
        let (own, known, walked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Walk { state, root, programs, mirror, now, own, known, walked, found: Found::default(), is_shown }
    }

    /// Keeps what the units' flashes hold alone. A unit in a new folder is the one whose folder is gone.
    fn keep_own(&mut self, world: &World) {
        let units = world.units();
        let gone = self.own.keys().find(|unit| !units.contains_key(*unit)).cloned();
        for (unit, marks) in units {
            if let Some(gone) = gone.as_ref().filter(|_| !self.own.contains_key(&unit)) {
                let moved = self.own.remove(gone).unwrap_or_default();
                self.own.insert(unit.clone(), moved);
            }
            self.own.entry(unit).or_default().extend(marks);
        }
    }

    /// Runs a line in a world, unless that is known.
    fn run(&mut self, world: &Rc<World>, line: &str) -> Rc<Outcome> {
        let key = (world.digest().to_owned(), line.to_owned());
        if let Some(outcome) = self.known.get(&key) {
            return Rc::clone(outcome);
        }
        let command = self.command(world, line);
        let (status, text) = terminal::attend(command);
        let lines = terminal::on_screen(&text);
        let steps = if steps::is_page(line) { Vec::new() } else { steps::read(&lines) };
        let code = lines.iter().map(|line| line.trim()).find(|line| line.starts_with("asmpatch::")).map(str::to_owned);
        self.now = Rc::new(World::read(self.root, Some(world)));
        if self.is_shown {
            println!("--- {}: {line}\n{}\nends with {status:?}\n", self.state.name, lines.join("\n").trim_end());
        }
        self.found.codes.extend(code.clone());
        self.found.commands += 1;
        let after = Rc::clone(&self.now);
        let outcome = Rc::new(Outcome { line: line.to_owned(), status, code, text: lines.join("\n"), steps, after });
        self.known.insert(key, Rc::clone(&outcome));
        outcome
    }

    /// A line in a world, which it makes.
    fn command(&mut self, world: &Rc<World>, line: &str) -> Command {
        world.write(self.root, &self.now);
        let here = self.root.join("here");
        let before = match self.state.before {
            "" => String::new(),
            before => format!("if [ -e dock/flash.bin ]; then {before}fi; "),
        };
        let mut command = terminal::shell(self.programs, &here, &format!("{before}{line}"));
        for name in ["ASMPATCH_DEVICE", "ASMPATCH_BACKUP_DIR", "ASMPATCH_CACHE_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"]
        {
            command.env_remove(name);
        }
        command.env("HOME", self.root.join("home")).env("PAGER", "cat");
        // No test needs the network: nothing listens there.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        command.envs(self.state.env.iter().copied());
        command
    }

    /// Follows what `outcome` has printed in the world before it, `path` being the commands up to it.
    fn follow(&mut self, before: &Rc<World>, outcome: &Outcome, path: &mut Vec<(String, String)>) {
        let here = (before.digest().to_owned(), outcome.line.clone());
        let left = MOST_STEPS - path.len();
        if left == 0 || self.walked.get(&here).is_some_and(|walked| *walked >= left) {
            return;
        }
        self.walked.insert(here.clone(), left);
        path.push(here);
        let mut previous: Option<Rc<Outcome>> = None;
        let mut ready = Rc::clone(&outcome.after);
        for step in &outcome.steps {
            let last = previous.as_deref().filter(|_| step.is_then);
            if last.is_some_and(|last| last.status != Some(0)) {
                continue;
            }
            let world = Rc::clone(last.map_or(&ready, |last| &last.after));
            if self.lacks_unit(&step.line) {
                // Only the user knows the unit, unless the command before had it.
                if !self.lacks_unit(&outcome.line) && outcome.line.contains("virtual:") && !step.is_name {
                    self.note(&outcome.line, step, "loses the unit");
                }
                continue;
            }
            let is_way_back = |line: &str| line.starts_with("asmpatch restore ");
            let ways_back = path.iter().filter(|(_, line)| is_way_back(line)).count();
            if is_way_back(&step.line) && ways_back == MOST_WAYS_BACK {
                continue;
            }
            let next = self.run(&world, &step.line);
            let followed = self.row(&outcome.line, step);
            self.found.followed.insert(followed);
            let is_known = path.contains(&(world.digest().to_owned(), step.line.clone()));
            let fault = match rules::fault(outcome, &world, step, &next, is_known) {
                None => self.costly_fault(before, outcome, path, &world, step, &next),
                fault => fault,
            };
            if let Some(fault) = fault {
                self.note(&outcome.line, step, &fault);
            }
            self.follow(&world, &next, path);
            // Whoever takes a fault out does so before the steps below.
            if next.status == Some(0) && step.line.starts_with("asmpatch virtual set ") {
                ready = Rc::clone(&next.after);
            }
            previous = Some(next);
        }
        path.pop();
    }

    /// What is wrong with a step that did `next`, where another command has to run to see that.
    fn costly_fault(
        &mut self,
        before: &Rc<World>,
        printer: &Outcome,
        path: &[(String, String)],
        world: &Rc<World>,
        step: &Step,
        next: &Rc<Outcome>,
    ) -> Option<String> {
        // A known image can't be downloaded here, so its practice image stands for it.
        let (line, next) = match rules::with_practice_image(&step.line) {
            Some(line) if next.status == Some(6) && self.state.kind == histories::KIND => {
                (line.clone(), self.run(world, &line))
            }
            _ => (step.line.clone(), Rc::clone(next)),
        };
        // On a terminal, a question may stand for a permission. What is printed above one is for the unit as it is before the
        // answer.
        let needed_in = if step.is_above_question { before } else { world };
        for (permission, with, without) in rules::without_each_permission(&line) {
            if next.status == Some(0) && [with, without].iter().all(|line| self.run(needed_in, line).status == Some(0))
            {
                return Some(format!("{permission} isn't needed"));
            }
        }
        let typed: Vec<&str> = path.iter().map(|(_, line)| line.as_str()).collect();
        let taken = rules::taken(world, &next, &self.own, &typed, &line)?;
        let offers_own = printer.steps.iter().any(|step| rules::brings_back(&step.line));
        if rules::is_consent_for(&taken, step, &next) || taken.is_kept && offers_own {
            // Nor may a program give this consent.
            let asked = self.run(before, &rules::in_json(&printer.line));
            if !asked.is_certain(step) {
                return None;
            }
        }
        Some(taken.to_string())
    }

    /// Whether the command would go to whatever dock is connected.
    fn lacks_unit(&self, line: &str) -> bool {
        self.state.env.iter().all(|(name, _)| *name != "ASMPATCH_DEVICE") && steps::lacks_unit(line)
    }

    fn note(&mut self, printer: &str, step: &Step, fault: &str) {
        let row = format!("{} | {fault}", self.row(printer, step));
        self.found.faults.insert(row);
    }

    /// The row of a step, without what is wrong with it.
    fn row(&self, printer: &str, step: &Step) -> String {
        let row = format!("{} | {printer} | {}", self.state.name, step.line);
        let home = self.root.join("home");
        let row = row.replace(&*home.to_string_lossy(), "~").replace(&*self.root.to_string_lossy(), "/…");
        steps::normal(&row.replace(self.mirror, "http://mirror"))
    }
}

/// Writes the programs that a shell finds first: asmpatch, whose bench measures for a moment only, and a `sudo` that
/// does nothing.
fn write_programs(folder: &Path) {
    let bench = "if [ \"$1\" = bench ]; then shift; set -- bench --seconds 0.002 --repetitions 1 \"$@\"; fi";
    // Root may read what is closed to its owner, as no user may.
    let is_root = rustix::process::geteuid().is_root();
    let as_user = if is_root { "setpriv --bounding-set=-dac_override,-dac_read_search " } else { "" };
    for (name, text) in [
        ("asmpatch", format!("#!/bin/sh\n{bench}\nexec {as_user}'{PROGRAM}' \"$@\"\n")),
        ("sudo", "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\n".to_owned()),
    ] {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A server with the practice image under another version, another image, half a file, and a page.
fn mirror() -> Server {
    Server::start(|request, stream| match request.path.as_str() {
        "/image.bin" => send_file(stream, &files::other_version(0)),
        "/other.bin" => send_file(stream, &files::open()),
        "/half.bin" => send(stream, "200 OK\r\nContent-Length: 98024", &files::other_version(0)[..1000]),
        "/page.html" => send(stream, "200 OK\r\nContent-Type: text/html", b"<html><body>Log in</body></html>"),
        _ => send(stream, "404 Not Found\r\nContent-Length: 0", b""),
    })
}

/// Walks through a state.
fn walk(state: &State, programs: &Path, mirror: &str, is_shown: bool) -> Found {
    let began = Instant::now();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let now = Rc::new(state.make(root));
    let mut world = Rc::clone(&now);
    let mut walk = Walk::new(state, root, programs, mirror, now, is_shown);
    for line in &state.setup {
        let outcome = walk.run(&world, line);
        assert_ne!(outcome.status, Some(2), "{}: {line}", state.name);
        world = Rc::clone(&outcome.after);
        walk.keep_own(&world);
    }
    for line in &state.commands {
        assert!(!walk.lacks_unit(line), "{}: {line}", state.name);
        let outcome = walk.run(&world, line);
        walk.follow(&world, &outcome, &mut Vec::new());
    }
    let Found { faults, commands, .. } = &walk.found;
    println!("{}: {commands} commands, {} fail, {:.1} s", state.name, faults.len(), began.elapsed().as_secs_f32());
    walk.found
}

/// The rows of a list, each below its reason.
fn listed(text: &str) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    let mut has_reason = false;
    for line in text.lines() {
        match line {
            "" => has_reason = false,
            reason if reason.starts_with("# ") => has_reason = true,
            row => {
                assert!(has_reason, "no reason above: {row}");
                rows.insert(row.to_owned());
            }
        }
    }
    rows
}

/// The codes in docs/errors.md whose advice has a command.
fn codes_with_commands() -> BTreeSet<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let has_command = |advice: &str| advice.split('`').skip(1).step_by(2).any(|quoted| quoted.starts_with("asmpatch "));
    rows.filter(|(_, advice)| has_command(advice)).map(|(code, _)| code.to_owned()).collect()
}

/// The rows that two lists don't share.
fn differences(found: &BTreeSet<String>, listed: &BTreeSet<String>, list: &str) -> String {
    let mut text = String::new();
    for row in found.difference(listed) {
        let _ = writeln!(text, "new in {list}: {row}");
    }
    for row in listed.difference(found) {
        let _ = writeln!(text, "take out of {list}: {row}");
    }
    text
}

#[test]
fn each_printed_step_can_be_followed_as_it_is_printed() {
    let programs = tempfile::tempdir().unwrap();
    write_programs(programs.path());
    let server = mirror();
    let mirror = server.url("");
    let mut states = states::all(&mirror);
    let chosen = std::env::var("FOLLOW").unwrap_or_default();
    match chosen.as_str() {
        "" => part::take(&mut states),
        "all" => {}
        chosen => states.retain(|state| state.name == chosen || state.kind == chosen),
    }
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Found::default()));
    // Units that don't come back are waited for, so a core serves two.
    let workers = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(state) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = walk(state, programs.path(), &mirror, state.name == chosen);
                    found.lock().unwrap().add(one);
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    let (count, codes) = (found.commands, found.codes.len());
    println!("{} states, {count} commands, {codes} codes, {} fail", states.len(), found.faults.len());
    let (mut known, mut unreached) = (listed(KNOWN), listed(UNREACHED));
    let followed = std::mem::take(&mut found.followed);
    let is_followed = |row: &String| row.rsplit_once(" | ").is_some_and(|(step, _)| followed.contains(step));
    let mut reached_by_none = codes_with_commands();
    if chosen == "all" {
        reached_by_none.retain(|code| !found.codes.contains(code));
    } else {
        // Of the rest, nothing is known. A walk ends at what it has followed before, so the order decides on which row a
        // cycle shows.
        known.retain(is_followed);
        found.faults.retain(|row| known.contains(row) || !row.ends_with("| a cycle"));
        unreached.retain(|code| found.codes.contains(code));
        reached_by_none.clear();
    }
    let text =
        differences(&found.faults, &known, "known.txt") + &differences(&reached_by_none, &unreached, "unreached.txt");
    assert!(text.is_empty(), "\n{text}");
}

/// Faults: the unit's bridge.toml, the topic of doctor's line, and the other commands that meet the fault.
const FAULTS: [(&str, &str, &[&str]); 7] = [
    ("speed = 'high'", "USB", &["list"]),
    ("factory = 'open'\nspeed = 'high'", "USB", &["list"]),
    ("factory = 'erased'", "firmware", &["list", "pcie", "bench", "reset", "config get", "flash open.bin"]),
    ("state = 'boot-loader'", "firmware", &["list", "pcie", "bench", "xdata write 0x5ff0 00 --yes"]),
    ("bulk-hangs = true", "bulk pipes", &["bench", "pcie", "list"]),
    ("factory = 'open'\nbulk-hangs = 'cpu-reset'", "bulk pipes", &["bench"]),
    ("behind = 'nothing'", "PCIe link", &["pcie", "pcie reset"]),
];

#[test]
fn the_first_step_against_a_fault_is_the_same_in_each_command_or_is_doctor() {
    let programs = tempfile::tempdir().unwrap();
    write_programs(programs.path());
    for (scenario, topic, commands) in FAULTS {
        let state = State { units: vec![("dock", scenario.to_owned())], ..State::default() };
        let root = tempfile::tempdir().unwrap();
        let made = Rc::new(state.make(root.path()));
        let mut walk = Walk::new(&state, root.path(), programs.path(), "", Rc::clone(&made), false);
        // A new unit says so.
        let now = Rc::clone(&walk.run(&made, "asmpatch list --device virtual:dock").after);
        let mut ask = |command: &str| walk.run(&now, &format!("asmpatch {command} --device virtual:dock"));
        // In JSON, the steps are data.
        let page: Value = serde_json::from_str(&ask("doctor --json").text).unwrap();
        let lines = page["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["topic"] == topic).unwrap();
        let steps = line["steps"].as_array().unwrap_or_else(|| panic!("{scenario}: {page:#}"));
        let listed: Value = serde_json::from_str(&ask("list --json").text).unwrap();
        if let Some(listed) = listed["units"][0]["steps"].get(0) {
            assert_eq!(listed, &steps[0], "{scenario}");
        }
        let expected = steps.iter().find_map(|step| step["command"].as_str());
        for command in commands {
            let outcome = ask(command);
            let first = outcome.steps.iter().find(|step| !step.is_name).map(|step| step.line.as_str());
            let is_doctor = first == Some("asmpatch doctor --device virtual:dock");
            // Without an advice, what is set on the unit is the first thing that is printed.
            let is_set = expected.is_none() && first.is_some_and(|line| line.starts_with("asmpatch virtual set "));
            assert!(first == expected || is_doctor || is_set, "{scenario}, {command}: {first:?}, doctor: {expected:?}");
        }
    }
}

/// What examines the unit, and what leads from there to the end.
const DOCTOR: &str = "asmpatch doctor --device virtual:dock";
const FIX: &str = "asmpatch doctor --fix --device virtual:dock";

/// The part of doctor's page that says what keeps a runtime from starting, and what comes below the page.
fn troubles(page: &str) -> Vec<String> {
    let (mut is_bad, mut lines) = (true, Vec::new());
    for line in page.lines() {
        match line.split_whitespace().next() {
            Some("BAD" | "?" | "no" | "asmpatch::doctor") => is_bad = true,
            Some("ok" | "note") if line.starts_with("  ") => is_bad = false,
            _ => {}
        }
        if is_bad {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The world at the end of a user who types what doctor prints: its first step that was not typed yet, and after a write
/// that failed, what that has printed. Each question is answered with yes.
fn by_hand(walk: &mut Walk<'_>, world: &Rc<World>) -> Rc<World> {
    let (mut typed, mut now) = (BTreeSet::new(), Rc::clone(world));
    let mut printed: Vec<Step> = Vec::new();
    loop {
        if printed.is_empty() {
            let page = walk.run(&now, DOCTOR);
            now = Rc::clone(&page.after);
            if page.status == Some(0) {
                return now;
            }
            printed = steps::read(&troubles(&page.text));
        }
        let is_next = |step: &Step| !step.is_name && !steps::lacks_unit(&step.line) && !typed.contains(&step.line);
        let Some(step) = printed.iter().find(|step| is_next(step)) else { return now };
        typed.insert(step.line.clone());
        let outcome = walk.run(&now, &step.line);
        now = Rc::clone(&outcome.after);
        let writes = ["asmpatch flash ", "asmpatch restore "].iter().any(|verb| step.line.starts_with(verb));
        printed = if writes && outcome.status != Some(0) { outcome.steps.clone() } else { Vec::new() };
    }
}

/// States from which doctor's steps lead somewhere without an image from the network: the unit's bridge.toml, and what has
/// happened to it.
const FIXED: [(&str, &[&str]); 10] = [
    ("factory = 'open'\nspeed = 'high'", &[]),
    ("factory = 'open'\nbulk-hangs = 'strobes'", &[]),
    ("factory = 'open'\nbehind = 'nothing'", &[]),
    ("factory = 'open'\nbehind = { ssd = { bytes = 67108864 } }", &[]),
    ("factory = 'open'\nsupply = { voltage-mv = 12000, current-ma = 1500, fault = true }", &[]),
    ("factory = 'open'\npcie-link-lost-after = 20", &[]),
    ("factory = 'open'\nstate = 'absent'", &[]),
    ("factory = 'open'\n[[fault]]\nkind = 'stall'\nopcode = 0xE4\ntimes = 100000", &[]),
    ("state = 'boot-loader'", &["asmpatch backup --device virtual:dock"]),
    ("", &["asmpatch backup --device virtual:dock", LOSE_IMAGE]),
];

#[test]
fn by_hand_and_by_fix_a_unit_ends_the_same() {
    let programs = tempfile::tempdir().unwrap();
    write_programs(programs.path());
    side_by_side(FIXED, |(scenario, setup)| {
        let state = State::new(scenario, scenario).setup(setup);
        let root = tempfile::tempdir().unwrap();
        let made = Rc::new(state.make(root.path()));
        let mut walk = Walk::new(&state, root.path(), programs.path(), "", Rc::clone(&made), false);
        let mut begin = made;
        for line in &state.setup {
            begin = Rc::clone(&walk.run(&begin, line).after);
        }
        let hands = by_hand(&mut walk, &begin);
        let command = walk.command(&begin, FIX);
        let talk = fix::converse(command, &root.path().join("here"), fix::agree);
        walk.now = Rc::new(World::read(root.path(), Some(&begin)));
        let fixed = Rc::clone(&walk.now);
        let mut end = |world: &Rc<World>| {
            let page = walk.run(world, &format!("{DOCTOR} --json"));
            let document: Value = serde_json::from_str(&page.text).unwrap_or_default();
            let lines = document["lines"].as_array().map_or(&[][..], Vec::as_slice);
            // The bench measures other times.
            let lines = lines.iter().filter(|line| line["topic"] != "bench");
            let verdicts: Vec<[String; 3]> =
                lines.map(|line| ["topic", "verdict", "found"].map(|key| line[key].to_string())).collect();
            (page.status, verdicts)
        };
        let (by_hand, by_fix) = (end(&hands), end(&fixed));
        assert_eq!(by_hand, by_fix, "{scenario}: by hand, by --fix: {}", talk.text);
        assert!(hands.flash("dock") == fixed.flash("dock"), "{scenario}: the flashes differ: {}", talk.text);
    });
}
