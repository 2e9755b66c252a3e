//! Reads the commands that a program has printed, each on a line of its own: what a reader copies.

/// Lists the commands in a text, in order.
pub fn commands(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim());
    let commands = lines.map(|line| line.strip_prefix("next: ").unwrap_or(line));
    commands.filter(|line| line.starts_with("asmpatch ")).collect()
}
