//! Parses `--json` output for tests, and checks it against `schemas/`.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

/// Parses the output of the command with these words.
///
/// # Panics
/// If the output is not JSON or doesn't match its schema.
pub fn parse(words: &[impl AsRef<str>], stdout: &[u8]) -> Value {
    let printed = String::from_utf8_lossy(stdout);
    let value: Value =
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{:?}: {error}: {printed}", strings(words)));
    check(words, &value).unwrap_or_else(|faults| panic!("{:?}: {faults}\n{printed}", strings(words)));
    value
}

/// Checks the output of the command with these words.
///
/// # Errors
/// All that the schema finds, one line each.
pub fn check(words: &[impl AsRef<str>], value: &Value) -> Result<(), String> {
    check_document(if value.get("error").is_some() { "error" } else { name(words) }, value)
}

/// Checks the document with this name.
///
/// # Errors
/// As for [`check`].
pub fn check_document(name: &str, value: &Value) -> Result<(), String> {
    // An empty array carries no version.
    let version = value.get("schema").or_else(|| value.get(0)?.get("schema"));
    let version = version.map_or(Some(1), Value::as_u64).ok_or("its `schema` is no number")?;
    let faults: Vec<String> = validator(name, version)?
        .iter_errors(value)
        .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(format!("no {name}: {}", faults.join("\n"))) }
}

/// Name of the document that a command prints.
fn name(words: &[impl AsRef<str>]) -> &str {
    let mut commands = words.iter().map(AsRef::as_ref).filter(|word| !word.starts_with('-'));
    let command = commands.next().unwrap_or_default();
    let has = |wanted: &str| words.iter().any(|word| word.as_ref() == wanted);
    match (command, commands.next()) {
        ("flash" | "restore", _) | ("config", Some("set")) => "flash",
        ("list", _) if has("--known") => "devices",
        ("download", _) if has("--list") => "images",
        ("patch", _) if has("--list") => "patches",
        ("backup", _) if has("--list") => "backups",
        ("pcie", Some("read" | "write")) => "pcie-memory",
        ("pcie", Some("off" | "on")) => "pcie-power",
        _ => command,
    }
}

fn strings(words: &[impl AsRef<str>]) -> Vec<&str> {
    words.iter().map(AsRef::as_ref).collect()
}

fn validator(name: &str, version: u64) -> Result<Arc<Validator>, String> {
    static KNOWN: OnceLock<Mutex<HashMap<String, Arc<Validator>>>> = OnceLock::new();
    let file = format!("{name}.v{version}.json");
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(validator) = known.get(&file) {
        return Ok(Arc::clone(validator));
    }
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(&file))
        .map_err(|error| format!("schemas/{file}: {error}"))?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| format!("schemas/{file}: {error}"))?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| format!("schemas/{file}: {error}"))?;
    let validator = Arc::new(validator);
    known.insert(file, Arc::clone(&validator));
    Ok(validator)
}

/// The commands with `--json` in a transcript: the words of each, and its document.
pub fn transcript(text: &str) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("\n$ asmpatch ") {
        let (line, rest) = text[at + 3..].split_once('\n').unwrap_or_default();
        let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        if !words.iter().any(|word| word == "--json") {
            continue;
        }
        // Stderr output comes before or after the document.
        let printed = rest.split("\n```").next().unwrap_or_default().split("\n$ ").next().unwrap_or_default();
        let lines: Vec<&str> = printed.lines().collect();
        let first = lines.iter().position(|line| matches!(*line, "{" | "[" | "[]"));
        let last = lines.iter().rposition(|line| matches!(*line, "}" | "]" | "[]"));
        let (Some(first), Some(last)) = (first, last) else { panic!("{words:?} printed no JSON: {printed}") };
        let json = lines[first..=last].join("\n");
        // Transcripts show each backslash as a slash.
        let escaped = json.replace("/\"", "\\\"");
        let value = serde_json::from_str(&json).or_else(|_| serde_json::from_str(&escaped));
        found.push((words, value.unwrap_or_else(|error| panic!("{line}: {error}"))));
    }
    found
}
