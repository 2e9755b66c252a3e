//! What the program adds to an error: the name of a file, its own name before the code, and a fence around panics.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use asm2464::{AnyFailure, Coded, Failure, Kind};

/// Runs `work` and turns a panic in it, which is a bug in asmpatch, into an error. The panic hook has already printed
/// where it happened.
///
/// # Errors
/// The code `asmpatch::bug`, with the panic's message.
pub fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic.downcast_ref::<&str>().map(ToString::to_string);
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = message.unwrap_or_else(|| "a panic without a message".to_owned());
        let label = Kind::Device.code("asmpatch::bug");
        Failure::new(label, format!("a bug in asmpatch stopped the work on this unit: {message}"))
    })
}

/// The program's name.
pub(crate) const PROGRAM: &str = "asmpatch";

/// Returns an error's code as asmpatch shows it: under the program's name, whichever library the error is from.
pub fn shown_code(error: &dyn Coded) -> String {
    let code = error.code();
    format!("{PROGRAM}::{}", code.split_once("::").map_or(code, |(_, rest)| rest))
}

/// Returns a function that names the file that an error is about, for `map_err`.
pub fn in_file<E: Into<AnyFailure>>(path: &Path) -> impl Fn(E) -> AnyFailure {
    move |error| error.into().about(path.display())
}
