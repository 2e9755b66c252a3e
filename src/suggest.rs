//! Suggestions for mistyped names. Pure.

/// Returns the text " (did you mean ...?)" for the error's message about a mistyped word; empty if no candidate is near.
pub fn question<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    did_you_mean(nearest(word, candidates))
}

/// The same, if the nearest candidate is already known.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Returns the candidate that is nearest to a mistyped word, if one is near: at most a third of its characters differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let len = word.chars().count();
    let most = (len / 3).max(1);
    // Whatever differs more in length has no need of a comparison, which takes as long as the product of both lengths.
    let fitting = candidates.into_iter().filter(|candidate| candidate.chars().count().abs_diff(len) <= most);
    let near = fitting.map(|candidate| (distance(word, candidate), candidate));
    near.filter(|(distance, candidate)| *distance <= most && *candidate != word)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Counts the characters to insert, remove or replace (Levenshtein's distance). Ignores case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, a) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_name_with_a_slip_is_recognised_and_another_name_is_not() {
        let known = ["e4-length-16", "identity-add1-0001", "status-0x2a12"];
        assert_eq!(nearest("e4-lenght-16", known), Some("e4-length-16"));
        assert_eq!(nearest("STATUS-0x2a1", known), Some("status-0x2a12"));
        assert_eq!(nearest("STATUS-0X2A12", known), Some("status-0x2a12"), "only the case differs");
        assert_eq!(nearest("status-0x2a12", known), None, "it is one");
        assert_eq!(nearest("read16-sram", known), None);
        assert_eq!(nearest("3-1.3", ["3-1.2", "4-2"]), Some("3-1.2"));
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn a_word_of_any_length_is_compared_at_once() {
        let (began, word) = (Instant::now(), "recovery".repeat(20_000));
        assert_eq!(nearest(&word, ["recovery"; 1000]), None);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
