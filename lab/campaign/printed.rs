//! Parses a command's output, JSON or text, into its claims.

use asmpatch::flash::behaviour::StartedCode;
use asmpatch::flash::progress::StoppedState;
use serde_json::Value;

use crate::campaign::process::Ended;
use crate::campaign::world::COMPANION;
use crate::printed_lines;

/// The claims in a command's output, as far as it could be read.
#[derive(Debug, Default)]
pub struct Claims {
    /// Whether the command reported success; `None` if it reported neither success nor failure.
    pub ok: Option<bool>,
    /// Whether it reported a change.
    pub changed: Option<bool>,
    /// The error's code.
    pub code: Option<String>,
    /// The reported state of the unit after a stopped run.
    pub left: Option<StoppedState>,
    /// The commands that it printed, in order.
    pub commands: Vec<String>,
    /// Every SHA-256 in the output.
    pub digests: Vec<String>,
    /// Folder of the backup that it made.
    pub backup: Option<String>,
    /// The reported version of the running firmware.
    pub version: Option<String>,
    /// Whether the unit runs what was written, as the command judged it.
    pub runs: Option<StartedCode>,
    /// The identity and serial number with which the unit returned.
    pub after: Option<(String, String)>,
}

/// Every state that a stopped run can report.
const STATES: [StoppedState; 9] = [
    StoppedState::Untouched,
    StoppedState::Unprotected,
    StoppedState::Incomplete,
    StoppedState::Complete,
    StoppedState::Verified,
    StoppedState::Restarted,
    StoppedState::BootLoader,
    StoppedState::OtherIdentity,
    StoppedState::Unproven,
];

/// What `doctor --fix` prints above the steps of a write that it didn't take.
pub const LEFT_BY_FIX: &str = "left, of what the write has printed:";

/// Every judgement of what a unit runs.
const RUNS: [StartedCode; 3] = [StartedCode::Written, StartedCode::Before, StartedCode::Unknown];

impl Claims {
    /// Parses the output, as far as it is about this unit.
    pub fn by(ended: &Ended, device: &str) -> Self {
        let mut printed = match serde_json::from_str::<Value>(&ended.out) {
            Ok(document) => Self::in_json(&document, device),
            Err(_) => Self::in_words(&format!("{}{}", plain(&ended.out), plain(&ended.err))),
        };
        let is_digest = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        // The campaign sets each run's faults itself, and `doctor` ends with 1 where no runtime could start.
        let is_step = |command: &String| {
            !["asmpatch virtual set ", "asmpatch doctor "].iter().any(|skipped| command.starts_with(skipped))
        };
        printed.commands.retain(is_step);
        // The log names images that the chip model runs, too.
        let claimed = ended.out.lines().filter(|line| !line.contains("debug: "));
        let words = claimed.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()));
        printed.digests = words.filter(is_digest).map(ToOwned::to_owned).collect();
        printed
    }

    fn in_json(document: &Value, device: &str) -> Self {
        // The document is a list of units, an object with such a list, or one object.
        let units = document.as_array().or_else(|| document["units"].as_array());
        let unit = units.and_then(|units| units.iter().find(|unit| unit["device"] == device)).unwrap_or(document);
        let error = &unit["error"];
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let recovery = error["recovery"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            ok: unit["ok"].as_bool(),
            changed: unit["changed"].as_bool(),
            code: text(&error["code"]),
            left: STATES.into_iter().find(|left| serde_json::to_value(left).is_ok_and(|name| name == error["left"])),
            commands: recovery.iter().filter_map(|action| text(&action["command"])).collect(),
            digests: Vec::new(),
            backup: text(&unit["backup"]),
            version: text(&unit["version"]),
            runs: RUNS.into_iter().find(|runs| serde_json::to_value(runs).is_ok_and(|name| name == unit["runs"])),
            after: text(&unit["after"]["usb_id"]).map(|id| (id, text(&unit["after"]["serial"]).unwrap_or_default())),
        }
    }

    fn in_words(text: &str) -> Self {
        // Help text wraps at the terminal's width.
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let all = dense(text);
        // An incomplete line is not a command.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        // A command for the companion does not bring this unit back.
        let is_for_unit = |line: &&str| !line.contains(&format!("--device virtual:{COMPANION}"));
        // What comes before the unit's state is advice on the error.
        let steps = whole.rsplit_once("the unit's state:").map_or(whole, |(_, steps)| steps);
        // Before what is left, `doctor --fix` has shown the steps that it took.
        let steps = steps.rsplit_once(LEFT_BY_FIX).map_or(steps, |(_, steps)| steps);
        let commands = printed_lines::commands(steps).into_iter().filter(is_for_unit);
        Self {
            code: whole.lines().map(str::trim).find(|line| line.starts_with("asmpatch::")).map(ToOwned::to_owned),
            left: STATES.into_iter().find(|left| all.contains(&dense(&left.to_string()))),
            commands: commands.map(ToOwned::to_owned).collect(),
            ..Self::default()
        }
    }
}

/// A terminal's text without escape sequences.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                // CSI: parameters up to a letter.
                if rest.next() == Some('[') {
                    rest.by_ref().find(char::is_ascii_alphabetic);
                }
            }
            '\r' => {}
            c => plain.push(c),
        }
    }
    plain
}
