//! Writes the accepted units: each by itself, or all or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Location, Port};

use super::at_once::at_once;
use super::front_end::{FrontEnd, UnitOutcome};
use crate::flash::backup_folder;
use crate::flash::decide::Refusal;
use crate::flash::error::{BackupFolderError, FlashError};
use crate::flash::plan::FlashPlan;
use crate::flash::progress::FlashProgress;
use crate::flash::recovery::{BackupFirst, FlashFailure, WrittenUnit};
use crate::flash::run::{self, FlashOptions, FlashReport, Opened, Prepared, Stopped};

/// What the writes of one run share.
pub struct Writing<'a> {
    /// Stops the units at their next safe place.
    pub interrupt: Interrupt<'static>,
    /// Whether the run has several units.
    pub names_units: bool,
    /// Other folders for a unit's backup, if its own can't take it.
    pub elsewhere: &'a [PathBuf],
    /// Follows the writes.
    pub front_end: &'a dyn FrontEnd,
}

/// A unit to write.
pub struct UnitWork<'a> {
    /// Its port.
    pub port: &'a mut dyn Port,
    /// What is written.
    pub plan: &'a FlashPlan,
    /// How it is written.
    pub options: FlashOptions,
}

/// Where a unit's outcome goes.
pub struct UnitEnd<'a> {
    /// The unit's number among those that are written.
    pub number: usize,
    /// The unit as it was before.
    pub unit: WrittenUnit,
    /// The outcome.
    pub outcome: &'a mut UnitOutcome,
}

/// A unit, where its outcome goes, and what it reports to.
type Followed<'a> = ((UnitWork<'a>, UnitEnd<'a>), Box<FlashProgress<'static>>);

impl UnitWork<'_> {
    fn prepare<'b>(
        &'b mut self,
        progress: &'b mut FlashProgress<'static>,
        interrupt: Interrupt<'b>,
    ) -> Result<Opened<'b, Prepared>, Box<Stopped>> {
        run::prepare(self.port, self.plan, &self.options, progress, interrupt)
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
    let mut others = elsewhere.iter().filter(|folder| failed.is_none() || canonical(folder) != failed);
    others
        .find(|folder| backup_folder::has_room(folder))
        .map_or(BackupFirst::AsGiven, |it| BackupFirst::Into(it.clone()))
}

impl Writing<'_> {
    /// Writes each unit as soon as it is prepared, whatever happens to the others.
    pub fn each(&self, units: Vec<Followed<'_>>) {
        at_once(units, &|((mut work, end), mut progress): Followed<'_>| {
            self.works_on(&end.unit.location);
            let prepared = work.prepare(&mut *progress, self.interrupt);
            self.finish(end, prepared.and_then(Opened::confirm).and_then(Opened::write));
        });
    }

    /// Prepares all units, checks all again, then writes all. If one stops before the writes, none is written.
    pub fn all_or_none(&self, units: Vec<Followed<'_>>) {
        let (mut works, ends): (Vec<_>, Vec<_>) =
            units.into_iter().map(|((work, end), progress)| ((work, progress), end)).unzip();
        let places = ends.iter().map(|end| &end.unit.location);
        let prepared = at_once(works.iter_mut().zip(places).collect::<Vec<_>>(), &|((work, progress), location)| {
            self.works_on(location);
            work.prepare(&mut **progress, self.interrupt)
        });
        let Some((prepared, ends)) = self.unless_one_stopped(prepared, ends) else { return };
        let confirmed = at_once(prepared, &|unit| {
            self.works_on(unit.location());
            unit.confirm()
        });
        let Some((confirmed, ends)) = self.unless_one_stopped(confirmed, ends) else { return };
        let written = at_once(confirmed, &|unit| {
            self.works_on(unit.location());
            unit.write()
        });
        ends.into_iter().zip(written).for_each(|(end, written)| self.finish(end, written));
    }

    /// Returns the units if none has stopped. Otherwise ends all: those that haven't stopped go back to the system.
    fn unless_one_stopped<'u, 'e, Phase>(
        &self,
        units: Vec<Result<Opened<'u, Phase>, Box<Stopped>>>,
        ends: Vec<UnitEnd<'e>>,
    ) -> Option<(Vec<Opened<'u, Phase>>, Vec<UnitEnd<'e>>)> {
        let stopped = units.iter().zip(&ends).filter(|(unit, _)| unit.is_err());
        let because = stopped.map(|(_, end)| end.unit.location.to_string()).collect::<Vec<_>>().join(", ");
        if because.is_empty() {
            return Some((units.into_iter().flatten().collect(), ends));
        }
        for (unit, end) in units.into_iter().zip(ends) {
            match unit {
                Ok(unit) => {
                    let refusal =
                        Refusal::AllOrNone { device: end.unit.location.to_string(), because: because.clone() };
                    self.end(end, UnitOutcome::Spared(unit.release(), refusal.into()));
                }
                Err(stopped) => self.finish(end, Err(stopped)),
            }
        }
        None
    }

    fn finish(&self, end: UnitEnd<'_>, written: Result<FlashReport, Box<Stopped>>) {
        let outcome = match written {
            Ok(report) => UnitOutcome::Written(report),
            Err(stopped) => {
                let Stopped { error, during, left, report } = *stopped;
                let (location, backup) = (report.location.clone(), report.backup.clone());
                let unit = WrittenUnit { location, during, left, backup, ..end.unit.clone() };
                let backup_first = backup_first(&error, self.elsewhere);
                UnitOutcome::Stopped(report, Arc::new(FlashFailure::new(error, unit, backup_first)))
            }
        };
        self.end(end, outcome);
    }

    fn end(&self, end: UnitEnd<'_>, outcome: UnitOutcome) {
        self.front_end.ended(end.number, &outcome);
        *end.outcome = outcome;
    }

    fn works_on(&self, location: &Location) {
        self.front_end.works_on(self.names_units.then_some(location.to_string()).as_deref());
    }
}
