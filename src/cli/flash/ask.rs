//! Questions on the terminal, asked before anything is written.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};

/// How often to check for Ctrl-C while nobody answers.
const TICK: Duration = Duration::from_millis(100);

/// Asks on the terminal for permission to write.
///
/// # Errors
/// Of kind [`Kind::Refused`] without a terminal, and if the answer is no; also fails on Ctrl-C.
pub fn confirm(question: &str, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    if !can_ask() {
        return Err(not_asked().into());
    }
    if is_yes(question, interrupt)? {
        return Ok(());
    }
    Err(Failure::new(Kind::Refused.code("asmpatch::flash::declined"), "not confirmed").into())
}

fn not_asked() -> Failure {
    Failure::new(Kind::Refused.code("asmpatch::flash::not_asked"), "there is no terminal to ask on")
}

/// Whether there is a terminal to ask on.
pub fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks on the terminal. Only `y` and `yes` mean yes.
///
/// # Errors
/// Fails on Ctrl-C, and if no answer can be read.
pub fn is_yes(question: &str, interrupt: Interrupt<'_>) -> Result<bool, AnyFailure> {
    err!("{question} [y/N] ");
    // A signal does not end a read. Another thread reads, so that this one notices Ctrl-C.
    let (sender, answers) = mpsc::channel();
    let read = move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        sender.send(read.map(|_| line))
    };
    if thread::Builder::new().spawn(read).is_err() {
        return Err(not_asked().into());
    }
    loop {
        match answers.recv_timeout(TICK) {
            Ok(Ok(line)) => {
                if !line.ends_with('\n') {
                    // Ctrl-D ended it.
                    err!("\n");
                }
                return Ok(means_yes(&line));
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => interrupt.check().inspect_err(|_| {
                // What is printed next, or the shell's prompt, begins on a line of its own.
                err!("\n");
            })?,
        }
    }
}

/// Whether an answer is yes: a hasty one, such as "yellow", must not write a dock.
fn means_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_write_a_dock() {
        for yes in ["y\n", "Y\r\n", " yes \n", "YES"] {
            assert!(means_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n", "yellow\n", "yn\n", "yes please\n", "yep\n", "ja"] {
            assert!(!means_yes(no), "{no:?}");
        }
    }
}
