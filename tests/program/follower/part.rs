//! The part of the states and their commands that a plain `cargo test` walks.

use std::collections::BTreeMap;

use asm2464::digest::Sha256Digest;

use super::states::State;

/// One command in so many is walked, beside those that make each kind be there.
const SHARE: u64 = 12;

/// A number that a command in a state has in every run.
fn number(state: &State, command: &str) -> u64 {
    let digest = Sha256Digest::of(format!("{} | {command}", state.name).as_bytes());
    digest.0[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The kinds of a command in a state: what the state is about, and which command it is.
fn kinds<'a>(state: &State, command: &'a str) -> [&'a str; 2] {
    [state.kind, command.split(' ').nth(1).unwrap_or_default()]
}

/// Takes the part: by the commands' numbers, so that it is the same in every run, and in each kind at least the command
/// with the lowest one.
pub fn take(states: &mut Vec<State>) {
    let mut lowest: BTreeMap<&str, u64> = BTreeMap::new();
    for state in &*states {
        for command in &state.commands {
            for kind in kinds(state, command) {
                let lowest = lowest.entry(kind).or_insert(u64::MAX);
                *lowest = number(state, command).min(*lowest);
            }
        }
    }
    let lowest: Vec<u64> = lowest.into_values().collect();
    for state in &mut *states {
        let commands = std::mem::take(&mut state.commands);
        let is_taken = |command: &String| {
            let number = number(state, command);
            number.is_multiple_of(SHARE) || lowest.contains(&number)
        };
        let taken = commands.into_iter().filter(is_taken).collect();
        state.commands = taken;
    }
    states.retain(|state| !state.commands.is_empty());
}
