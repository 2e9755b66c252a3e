//! Follows what the program prints: in each state, each command that a user types and then each printed command, exactly
//! as it is printed, through a shell on a terminal of 80 columns, up to six in a row.
//!
//! A command is run once for each content of the folder that it runs in. `known.txt` lists the steps that fail, each with
//! the reason; a step there that doesn't fail any more has to go, so that the list only shrinks. To see one state's
//! journeys: `FOLLOW=STATE cargo test --test program follower:: -- --nocapture`.

#![allow(clippy::print_stdout, reason = "a state's journeys are shown on request")]

mod states;
mod steps;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use states::State;
use steps::Step;
use world::World;

use crate::program::process::PROGRAM;
use crate::program::terminal;

/// The most commands in a row.
const MOST_STEPS: usize = 6;
/// What is known to fail, in paragraphs: lines of `# reason`, then the steps.
const KNOWN: &str = include_str!("known.txt");

/// What a command did in a world.
struct Outcome {
    line: String,
    status: Option<i32>,
    code: Option<String>,
    steps: Vec<Step>,
    after: Rc<World>,
}

/// The walk through one state.
struct Walk<'a> {
    state: &'a State,
    root: &'a Path,
    programs: &'a Path,
    known: BTreeMap<(String, String), Rc<Outcome>>,
    walked: BTreeMap<(String, String), usize>,
    faults: BTreeSet<String>,
    codes: BTreeSet<String>,
    is_shown: bool,
}

impl Walk<'_> {
    /// Runs a line in a world, unless that is known.
    fn run(&mut self, world: &Rc<World>, line: &str) -> Rc<Outcome> {
        let key = (world.digest().to_owned(), line.to_owned());
        if let Some(outcome) = self.known.get(&key) {
            return Rc::clone(outcome);
        }
        world.write(self.root);
        let mut command =
            terminal::shell(self.programs, &self.root.join("here"), &format!("{}{line}", self.state.before));
        for name in ["ASMPATCH_DEVICE", "ASMPATCH_BACKUP_DIR", "ASMPATCH_CACHE_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"]
        {
            command.env_remove(name);
        }
        command.env("HOME", self.root.join("home"));
        // No test needs the network: nothing listens there.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        command.envs(self.state.env.iter().copied());
        let (status, text) = terminal::attend(command);
        let lines = terminal::on_screen(&text);
        let steps = if steps::is_page(line) { Vec::new() } else { steps::read(&lines) };
        let code = lines.iter().map(|line| line.trim()).find(|line| line.starts_with("asmpatch::")).map(str::to_owned);
        let after = Rc::new(World::read(self.root));
        if self.is_shown {
            println!("--- {}: {line}\n{}\nends with {status:?}\n", self.state.name, lines.join("\n").trim_end());
        }
        self.codes.extend(code.clone());
        let outcome = Rc::new(Outcome { line: line.to_owned(), status, code, steps, after });
        self.known.insert(key, Rc::clone(&outcome));
        outcome
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
        for step in &outcome.steps {
            let next = self.run(&outcome.after, &step.line);
            let is_known = path.contains(&(outcome.after.digest().to_owned(), step.line.clone()));
            if let Some(fault) = fault(outcome, step, &next, is_known) {
                let row = format!("{} | {} | {} | {fault}", self.state.name, outcome.line, step.line);
                self.faults.insert(self.normal(&row));
            }
            self.follow(&outcome.after, &next, path);
        }
        path.pop();
    }

    /// A row without what differs between two runs.
    fn normal(&self, row: &str) -> String {
        let row =
            row.replace(&*self.root.join("home").to_string_lossy(), "~").replace(&*self.root.to_string_lossy(), "/…");
        steps::normal(&row)
    }
}

/// What is wrong with a printed step whose command did `next`. `is_known` if it ran before on this path, in the same world.
fn fault(printer: &Outcome, step: &Step, next: &Outcome, is_known: bool) -> Option<String> {
    let code = next.code.as_deref().unwrap_or("no code");
    let is_unchanged = printer.after.digest() == next.after.digest();
    if step.is_folded {
        return Some("folded".to_owned());
    }
    match next.status {
        Some(2) if step.is_name => return None,
        Some(2) => return Some("usage".to_owned()),
        Some(3 | 5) => return Some(format!("refused: {code}")),
        Some(0..=6) => {}
        status => return Some(format!("ended with {status:?}")),
    }
    if let Some(unit) = printer.after.other_unit_changed(&next.after, &step.line) {
        return Some(format!("writes to {unit}"));
    }
    let is_failure = next.status != Some(0) && printer.status != Some(0);
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

/// Writes the programs that a shell finds first: asmpatch, whose bench measures for a moment only, and a `sudo` that
/// does nothing.
fn write_programs(folder: &Path) {
    let bench = "if [ \"$1\" = bench ]; then shift; set -- bench --seconds 0.002 --repetitions 1 \"$@\"; fi";
    for (name, text) in [
        ("asmpatch", format!("#!/bin/sh\n{bench}\nexec '{PROGRAM}' \"$@\"\n")),
        ("sudo", "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\n".to_owned()),
    ] {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Walks through a state. Returns what failed, the codes that it reached, and the number of commands.
fn walk(state: &State, programs: &Path, is_shown: bool) -> (BTreeSet<String>, BTreeSet<String>, usize) {
    let began = Instant::now();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let begin = state.make(root);
    let (known, walked) = (BTreeMap::new(), BTreeMap::new());
    let (faults, codes) = (BTreeSet::new(), BTreeSet::new());
    let mut walk = Walk { state, root, programs, known, walked, faults, codes, is_shown };
    let mut world = Rc::new(begin);
    for line in state.setup {
        world = Rc::clone(&walk.run(&world, line).after);
    }
    for line in state.commands {
        let outcome = walk.run(&world, line);
        walk.follow(&world, &outcome, &mut Vec::new());
    }
    println!("{}: {} commands, {:.1} s", state.name, walk.known.len(), began.elapsed().as_secs_f32());
    (walk.faults, walk.codes, walk.known.len())
}

/// The known rows, each below its reason.
fn known() -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    let mut has_reason = false;
    for line in KNOWN.lines() {
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

#[test]
fn each_printed_step_can_be_followed_as_it_is_printed() {
    let programs = tempfile::tempdir().unwrap();
    write_programs(programs.path());
    let only = std::env::var("FOLLOW").ok();
    let states: Vec<State> =
        states::all().into_iter().filter(|s| only.as_deref().is_none_or(|o| s.name == o)).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((BTreeSet::new(), BTreeSet::new(), 0)));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(state) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (faults, codes, ran) = walk(state, programs.path(), only.is_some());
                    let mut found = found.lock().unwrap();
                    found.0.extend(faults);
                    found.1.extend(codes);
                    found.2 += ran;
                }
            });
        }
    });
    let (faults, codes, ran) = found.into_inner().unwrap();
    println!("{} states, {ran} commands, {} codes, {} steps fail", states.len(), codes.len(), faults.len());
    let mut known = known();
    if let Some(only) = only {
        known.retain(|row| row.starts_with(&format!("{only} | ")));
    }
    let mut text = String::new();
    for row in faults.difference(&known) {
        let _ = writeln!(text, "new: {row}");
    }
    for row in known.difference(&faults) {
        let _ = writeln!(text, "take out of known.txt, for it fails no more: {row}");
    }
    assert!(text.is_empty(), "\n{text}");
}
