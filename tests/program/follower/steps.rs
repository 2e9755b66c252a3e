//! Reads the steps in a command's output: the commands, with what stands before each.

use crate::printed_lines;

/// A printed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: String,
    /// Whether its line is broken, so that nobody can copy it.
    pub is_folded: bool,
    /// Whether the text before it asks for hands or patience.
    pub is_after_hands: bool,
    /// Whether it follows the command before it, in what that has made.
    pub is_then: bool,
    /// Whether it is in backticks and without arguments, as where a text only names a command.
    pub is_name: bool,
    /// Whether questions follow it, which are answered with yes: the step was for who says no.
    pub is_above_question: bool,
}

/// What a text says that asks for the user's hands, for a wait, or for an answer.
const HANDS: [&str; 15] = [
    "unplug",
    "plug ",
    "replug",
    "cable",
    "make room",
    "supply",
    "wait",
    "switch",
    "check ",
    "end ",
    "power cycle",
    "power-cycle",
    "powers",
    "bridge.toml",
    "is it ",
];

/// Whether a command prints a page, in which commands are examples.
pub fn is_page(line: &str) -> bool {
    let pages = ["help", "udev", "man", "completions"];
    line.split(' ').nth(1).is_some_and(|name| pages.contains(&name)) || line.contains(" --help") || line.contains(" -h")
}

/// Reads the steps on a screen: the commands on lines of their own, and those in backticks.
pub fn read(screen: &[String]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut before = String::new();
    let mut heading = String::new();
    // The lines of a command in backticks that began on an earlier line.
    let mut open: Option<String> = None;
    let last_question = screen.iter().rposition(|line| line.contains("[y/N]"));
    let mut push = |at: usize, line: &str, is_prose: bool, is_folded, before: &mut String| {
        let is_after_hands = HANDS.iter().any(|hands| before.contains(hands));
        // Or it stands below the command before it, under a text that says what comes then.
        let is_below = before.trim().is_empty() && heading.contains(" then ");
        let is_then = is_below || before.trim_start_matches([' ', ',']).starts_with("then ");
        if !before.trim().is_empty() {
            heading.clone_from(before);
        }
        // A page is read between the hands and the step.
        if !is_page(line) {
            before.clear();
        }
        let line = line.trim().to_owned();
        let is_name = is_prose && line.split(' ').count() == 2;
        let is_above_question = last_question.is_some_and(|question| at < question);
        match steps.iter_mut().find(|step| step.line == line) {
            Some(step) => step.is_above_question &= is_above_question,
            None => steps.push(Step { line, is_folded, is_after_hands, is_then, is_name, is_above_question }),
        }
    };
    for (at, line) in screen.iter().map(|line| line.trim()).enumerate() {
        // What follows works only with what another program made.
        if line.contains("git clone ") {
            break;
        }
        if let [command] = printed_lines::commands(line)[..] {
            open = None;
            push(at, command, false, false, &mut before);
            continue;
        }
        let mut rest = line;
        if let Some(begun) = open.take() {
            match rest.split_once('`') {
                Some((end, after)) => {
                    push(at, &format!("{begun} {end}"), true, true, &mut before);
                    rest = after;
                }
                // No command has three lines: a backtick that is none.
                None => before.push_str(&begun),
            }
        }
        while let Some((text, after)) = rest.split_once('`') {
            before = before + text + " ";
            match after.split_once('`') {
                Some((command, after)) => {
                    if command.starts_with("asmpatch ") {
                        push(at, command, true, false, &mut before);
                    }
                    rest = after;
                }
                None => {
                    open = after.starts_with("asmpatch").then(|| after.to_owned());
                    rest = "";
                }
            }
        }
        before = before + rest + " ";
    }
    steps
}

/// The commands that go to a unit, and without `--device` to whatever dock is connected.
const ON_UNITS: [&str; 10] =
    ["list", "backup", "flash", "restore", "config", "doctor", "reset", "pcie", "xdata", "bench"];

/// Whether a command goes to a unit and names none: a test must never run it, because a real dock may be connected.
pub fn lacks_unit(line: &str) -> bool {
    let is_for_unit = line.split(' ').nth(1).is_some_and(|name| ON_UNITS.contains(&name));
    let reads_files = ["backup --list", "--from ", "list --known"].iter().any(|read| line.contains(read));
    is_for_unit && !reads_files && !line.contains("virtual:")
}

/// A row without drawn and derived names.
pub fn normal(row: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in row.split(' ') {
        let word = match word.split_once("asmpatch-backup-") {
            Some((before, _)) => format!("{before}BACKUP"),
            None => word.to_owned(),
        };
        let word = if word.starts_with("--serial=") { "--serial=DRAWN".to_owned() } else { word };
        words.push(word);
    }
    words.join(" ")
}
