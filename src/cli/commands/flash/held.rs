//! The units that are being written, for a process that ends before it can report them: at a second Ctrl-C.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::flash::job::UnitOutcome;
use crate::flash::progress::{FlashEvent, StoppedState};
use crate::flash::recovery::{BackupFirst, FlashFailure, WrittenUnit};
use asm2464::interrupt::Interrupted;

use super::show;
use crate::cli::words::interrupt::{self, Writing};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::print;

/// The units of the run, each at its number; `None` once nothing has to be said of it.
static HELD: Mutex<Vec<Option<Held>>> = Mutex::new(Vec::new());

/// The command that writes them.
static INVOCATION: Mutex<Option<Arc<Invocation>>> = Mutex::new(None);

/// A unit whose run is not reported yet.
enum Held {
    /// It is being written.
    Writing(Box<WrittenUnit>),
    /// Its run has stopped.
    Stopped(Arc<FlashFailure>),
}

fn held() -> MutexGuard<'static, Vec<Option<Held>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the units that are going to be written, in the order of their numbers.
pub fn hold(units: Vec<WrittenUnit>, invocation: &Arc<Invocation>) {
    interrupt::ask_of(Writing { is_under_way, tell_how_to_stop, tell });
    *INVOCATION.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(invocation));
    *held() = units.into_iter().map(|unit| Some(Held::Writing(Box::new(unit)))).collect();
}

/// Notes how far the run has come with the unit of this number. Never returns once [`tell`] has printed the units'
/// states.
pub fn note(unit: usize, event: FlashEvent<'_>) {
    if let Some(Some(Held::Writing(unit))) = held().get_mut(unit) {
        unit.note(event);
    }
}

/// Notes the outcome of the unit with this number. Only a run that stopped needs commands that bring its unit back.
pub fn has_ended(unit: usize, outcome: &UnitOutcome) {
    if let Some(place) = held().get_mut(unit) {
        *place = match outcome {
            UnitOutcome::Stopped(_, failure) => Some(Held::Stopped(Arc::clone(failure))),
            _ => None,
        };
    }
}

/// Forgets all units: each has been reported.
pub fn let_all_go() {
    held().clear();
}

/// Whether a unit is being written.
fn is_under_way() -> bool {
    held().iter().flatten().any(|unit| matches!(unit, Held::Writing(..)))
}

/// Says what the first Ctrl-C does to the units that are being written.
fn tell_how_to_stop() {
    let mut left = Vec::new();
    for unit in held().iter().flatten() {
        if let Held::Writing(unit) = unit {
            left.push(unit.left);
        }
    }
    let is_begun = |left: &StoppedState| matches!(left, StoppedState::Incomplete | StoppedState::Complete);
    let is_to_come = |left: &StoppedState| matches!(left, StoppedState::Untouched | StoppedState::Unprotected);
    if left.iter().any(is_begun) {
        errln!("");
        errln!(
            "stopping at the next safe place: a write that has begun is finished and read back first, which takes \
             some seconds; a second Ctrl-C ends asmpatch within 3 s, and may leave the unit without firmware"
        );
    } else if left.iter().any(is_to_come) {
        errln!("");
        errln!("stopping before the write, at the next safe place; a second Ctrl-C ends asmpatch within 3 s");
    } else if !left.is_empty() {
        errln!("");
        errln!("everything is written: not waiting for the unit; a second Ctrl-C ends asmpatch within 3 s");
    }
}

/// Prints each unit's state as the process ends, and the commands that bring it back. Keeps the lock afterwards, so
/// that no write goes on: its next step could change the state that was printed.
fn tell() {
    // The JSON document has the states.
    if print::has_json() {
        return;
    }
    let invocation = INVOCATION.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    let held = held();
    for unit in held.iter().flatten() {
        match unit {
            Held::Writing(unit) => {
                let failure = FlashFailure::new(Interrupted.into(), (**unit).clone(), BackupFirst::AsGiven);
                show::stopped(&failure, &invocation);
            }
            Held::Stopped(failure) => show::stopped(failure, &invocation),
        }
    }
    if held.iter().any(Option::is_some) {
        mem::forget(held);
    }
}
