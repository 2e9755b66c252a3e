//! Writes the accepted units: each by itself, or all or none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{iter, panic, thread};

use asm2464_host::bridge::Port;
use tracing::error_span;

use super::{FlashJob, FlashUnit, UnitOutcome, all_or_none};
use crate::flash::backup_folder;
use crate::flash::error::{BackupFolderError, FlashError};
use crate::flash::examined::Examined;
use crate::flash::needs::backups_after_stop;
use crate::flash::offers::{offers, unproven_permission};
use crate::flash::plan::FlashPlan;
use crate::flash::progress::{FlashProgress, FlashStep, StoppedState};
use crate::flash::recovery::{BackupFirst, FlashFailure, WrittenUnit};
use crate::flash::run::{self, ClaimedUnit, Confirmed, FlashReport, Prepared, Stopped};
use crate::unit::set_faults;

/// What a unit's write needs, and what it reports to.
struct UnitWrite<'a> {
    port: &'a mut dyn Port,
    plan: &'a FlashPlan,
    progress: Box<FlashProgress<'static>>,
}

/// Receives the outcome of a unit's write, and the unit's number among those that are written.
type Ended<'a> = &'a (dyn Fn(usize, &UnitOutcome) + Sync);

impl FlashJob {
    /// Writes the accepted units, all at once. Ask the [questions](Self::questions) first. If the write of one unit
    /// stops, that is its outcome.
    ///
    /// `follow` returns what each unit's write reports to, in the same order. `ended` then receives its outcome.
    pub fn write(
        &self,
        units: &mut [FlashUnit],
        follow: impl FnOnce(Vec<WrittenUnit>) -> Vec<Box<FlashProgress<'static>>>,
        ended: Ended<'_>,
    ) {
        let mut written = Vec::new();
        let mut writes = Vec::new();
        let mut outcomes = Vec::new();
        for unit in units.iter_mut().filter(|unit| unit.is_to_be_written()) {
            let FlashUnit { port, examined, outcome, later, .. } = unit;
            let (Some(examined), Some(port)) = (&*examined, port.as_deref_mut()) else { continue };
            let Examined { seen, plan, .. } = examined;
            let location = &seen.attached.location;
            let backups = backups_after_stop(examined);
            written.push(WrittenUnit {
                location: location.clone(),
                during: FlashStep::Claim,
                left: StoppedState::Untouched,
                backup: None,
                restoring: None,
                invoked: Arc::clone(&self.invoked),
                later: later.clone(),
                offers: offers(&backups, Some((self.invoked.writes, later)), location, &self.images),
                set_faults: set_faults(location),
            });
            writes.push((port, plan));
            outcomes.push(outcome);
        }
        if written.is_empty() {
            return;
        }
        let writes = writes.into_iter().zip(follow(written.clone()));
        let writes = writes.map(|((port, plan), progress)| UnitWrite { port, plan, progress }).collect();
        let ends = if self.all_or_none {
            let ends = self.write_all_or_none(writes, &written).unwrap_or_else(|outcomes| outcomes);
            ends.iter().enumerate().for_each(|(number, outcome)| ended(number, outcome));
            ends
        } else {
            self.write_each(writes, &written, ended)
        };
        for (outcome, end) in outcomes.into_iter().zip(ends) {
            *outcome = end;
        }
    }

    /// Writes each unit as soon as it is prepared, whatever happens to the others.
    fn write_each(&self, writes: Vec<UnitWrite<'_>>, units: &[WrittenUnit], ended: Ended<'_>) -> Vec<UnitOutcome> {
        let numbered = named(writes.into_iter().zip(units).enumerate(), |(_, (_, unit))| &unit.location);
        at_once(numbered, &|(number, (mut write, unit)): (usize, (UnitWrite<'_>, &WrittenUnit))| {
            let written = self.prepare(&mut write).and_then(ClaimedUnit::confirm).and_then(ClaimedUnit::write);
            let outcome = self.outcome(unit, written);
            ended(number, &outcome);
            outcome
        })
    }

    /// Prepares all units, checks all again, then writes all. If one stops before the writes, none is written, and the
    /// error has the outcomes.
    fn write_all_or_none(
        &self,
        mut writes: Vec<UnitWrite<'_>>,
        units: &[WrittenUnit],
    ) -> Result<Vec<UnitOutcome>, Vec<UnitOutcome>> {
        let all = named(writes.iter_mut().zip(units), |(_, unit)| &unit.location);
        let prepared = at_once(all, &|(write, _): (&mut UnitWrite<'_>, &WrittenUnit)| self.prepare(write));
        let prepared = named(self.unless_one_stopped(prepared, units)?, ClaimedUnit::location);
        let confirmed = at_once(prepared, &|unit: ClaimedUnit<'_, Prepared>| unit.confirm());
        let confirmed = named(self.unless_one_stopped(confirmed, units)?, ClaimedUnit::location);
        let written = at_once(confirmed, &|unit: ClaimedUnit<'_, Confirmed>| unit.write());
        Ok(units.iter().zip(written).map(|(unit, written)| self.outcome(unit, written)).collect())
    }

    /// Returns the units if none has stopped. Otherwise the error has the outcomes of all: those that haven't stopped go
    /// back to the system.
    fn unless_one_stopped<'u, Phase>(
        &self,
        claimed: Vec<Result<ClaimedUnit<'u, Phase>, Box<Stopped>>>,
        units: &[WrittenUnit],
    ) -> Result<Vec<ClaimedUnit<'u, Phase>>, Vec<UnitOutcome>> {
        let stopped = claimed.iter().zip(units).filter(|(claimed, _)| claimed.is_err());
        let because = stopped.map(|(_, unit)| unit.location.to_string()).collect::<Vec<_>>().join(", ");
        if because.is_empty() {
            return Ok(claimed.into_iter().flatten().collect());
        }
        let mut outcomes = Vec::new();
        for (claimed, unit) in claimed.into_iter().zip(units) {
            outcomes.push(match claimed {
                Ok(claimed) => {
                    UnitOutcome::Spared(claimed.release(), all_or_none(&unit.location.to_string(), &because))
                }
                Err(stopped) => self.outcome(unit, Err(stopped)),
            });
        }
        Err(outcomes)
    }

    fn prepare<'b>(&'b self, write: &'b mut UnitWrite<'_>) -> Result<ClaimedUnit<'b, Prepared>, Box<Stopped>> {
        let UnitWrite { port, plan, progress } = write;
        let location = port.location();
        let prepared = run::prepare(&mut **port, plan, &self.options, &mut **progress, self.interrupt)?;
        prepared.prove_backup(|backup| {
            let Ok(image) = backup.firmware() else { return Ok(None) };
            let proof = self.images.prove(&image)?;
            Ok(unproven_permission(&proof, &location))
        })
    }

    fn outcome(&self, unit: &WrittenUnit, written: Result<FlashReport, Box<Stopped>>) -> UnitOutcome {
        let stopped = match written {
            Ok(report) => return UnitOutcome::Written(report),
            Err(stopped) => *stopped,
        };
        let Stopped { error, during, left, report } = stopped;
        let FlashReport { location, backup, restoring, .. } = report.clone();
        let unit = WrittenUnit { location, during, left, backup, restoring, ..unit.clone() };
        let backup_first = backup_first(&error, &self.options.backup_elsewhere);
        UnitOutcome::Stopped(report, Arc::new(FlashFailure::new(error, unit, backup_first)))
    }
}

/// What the command that goes on after this error does about the backup. If the backup could not be saved, that command
/// needs another folder, because the same one would fail again.
fn backup_first(error: &FlashError, elsewhere: &[PathBuf]) -> BackupFirst {
    let FlashError::Folder(
        BackupFolderError::Save { path, .. }
        | BackupFolderError::Exists(path)
        | BackupFolderError::Unread { folder: path, .. },
    ) = error
    else {
        return BackupFirst::AsGiven;
    };
    let canonical = |path: &Path| path.canonicalize().ok();
    let failed = path.parent().and_then(canonical);
    for folder in elsewhere {
        let has_failed = failed.is_some() && canonical(folder) == failed;
        if !has_failed && backup_folder::has_room(folder) {
            return BackupFirst::Into(folder.clone());
        }
    }
    BackupFirst::Elsewhere
}

/// Returns the items with the units that they are about.
fn named<T, L: ToString>(all: impl IntoIterator<Item = T>, location: impl Fn(&T) -> &L) -> Vec<(String, T)> {
    all.into_iter().map(|item| (location(&item).to_string(), item)).collect()
}

/// Runs `work` on all items at once, each in its own thread. Returns the outcomes in the same order. An item comes with
/// the unit that it is about, which is named in the log if there are several.
///
/// If the system starts fewer threads, those that run also do the remaining work.
pub fn at_once<T: Send, O: Send>(all: Vec<(String, T)>, work: &(impl Fn(T) -> O + Sync)) -> Vec<O> {
    in_threads(thread::Builder::new, all, work)
}

fn in_threads<T: Send, O: Send>(
    builder: impl Fn() -> thread::Builder,
    all: Vec<(String, T)>,
    work: &(impl Fn(T) -> O + Sync),
) -> Vec<O> {
    let others = all.len().saturating_sub(1);
    let queue = Mutex::new(all.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |(at, (unit, item))| {
        // Warnings name the unit, too.
        let _span = (others > 0).then(|| error_span!("unit", device = %unit).entered());
        (at, work(item))
    };
    let worker = || iter::from_fn(next).map(work).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        let running: Vec<_> = (0..others).filter_map(|_| builder().spawn_scoped(scope, worker).ok()).collect();
        let mut done = worker();
        for thread in running {
            // A unit's thread should not panic. If it does, pass the panic on.
            done.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_items_are_worked_on_at_once_and_their_outcomes_keep_the_order() {
        let all_are_there = Barrier::new(8);
        let numbers = (0..8).map(|number| (String::new(), number)).collect();
        let squares = at_once(numbers, &|number: u32| {
            all_are_there.wait();
            number * number
        });
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
        assert!(at_once(Vec::<(String, u32)>::new(), &|number| number).is_empty());
    }

    #[test]
    fn the_folder_in_which_a_backup_could_not_be_saved_is_not_offered_again() {
        let home = tempfile::tempdir().unwrap();
        let folders = ["failed", "other"].map(|name| home.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let [failed, other] = &folders;
        let error = FlashError::Folder(BackupFolderError::Exists(failed.join("backup")));
        assert_eq!(backup_first(&error, &folders), BackupFirst::Into(other.clone()));
        assert_eq!(backup_first(&error, std::slice::from_ref(failed)), BackupFirst::Elsewhere);
        assert_eq!(backup_first(&FlashError::Protected, &folders), BackupFirst::AsGiven);
    }

    #[test]
    fn a_place_that_can_not_take_a_backup_is_not_offered() {
        let home = tempfile::tempdir().unwrap();
        let [failed, file, other] = ["failed", "file", "other"].map(|name| home.path().join(name));
        std::fs::create_dir(&failed).unwrap();
        std::fs::write(&file, "x").unwrap();
        let error = FlashError::Folder(BackupFolderError::Exists(failed.join("backup")));
        assert_eq!(backup_first(&error, &[file.clone(), other.clone()]), BackupFirst::Into(other));
        assert_eq!(backup_first(&error, &[failed, file]), BackupFirst::Elsewhere);
    }

    #[test]
    fn no_item_is_lost_if_the_system_starts_no_thread() {
        // No address space has room for such a stack.
        let starts_none = || thread::Builder::new().stack_size(usize::MAX / 4);
        assert!(starts_none().spawn(|| ()).is_err());
        let words = ["a", "b", "c"].map(|word| (String::new(), word)).into();
        assert_eq!(in_threads(starts_none, words, &str::to_uppercase), ["A", "B", "C"]);
    }
}
