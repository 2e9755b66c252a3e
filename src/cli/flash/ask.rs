//! The question before anything is written.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::failure::AnyFailure;
use crate::flash::guard::Refusal;
use crate::interrupt::Interrupt;

/// How often Ctrl-C is looked for while nobody answers.
const TICK: Duration = Duration::from_millis(100);

/// Asks on the terminal; `yes` is anything that starts with y.
///
/// # Errors
/// [`Refusal::NotAsked`] without a terminal, [`Refusal::Declined`], Ctrl-C.
pub fn confirm(question: &str, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    if !io::stdin().is_terminal() {
        return Err(Refusal::NotAsked.into());
    }
    err!("{question} [y/N] ");
    // A signal does not end a read: another thread reads, so that this one sees Ctrl-C.
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        sender.send(read.map(|_| line))
    });
    loop {
        match answers.recv_timeout(TICK) {
            Ok(Ok(line)) if line.trim_start().to_ascii_lowercase().starts_with('y') => return Ok(()),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(Refusal::Declined.into()),
            Err(RecvTimeoutError::Timeout) => interrupt.check()?,
        }
    }
}
