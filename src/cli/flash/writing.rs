//! Writes the accepted units: each by itself, or all or none.

use std::path::Path;
use std::sync::Arc;

use crate::flash::backup_folder::{self, BackupFolderError};
use crate::flash::decide::Refusal;
use crate::flash::error::FlashError;
use crate::flash::plan::FlashPlan;
use crate::flash::run::{self, FlashOptions, FlashReport, Opened, Prepared, Stopped};
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Location, Port};

use super::at_once::at_once;
use super::held::HeldUnit;
use super::prepared::UnitOutcome;
use super::recovery::{FlashFailure, InvokedCommand, Standing, Ways};
use super::screen::UnitProgress;
use crate::cli::{backup_place, log};

/// What the writes of one run share.
pub struct Writing {
    /// Stops the units at their next safe place.
    pub interrupt: Interrupt<'static>,
    /// Whether log lines name their unit.
    pub names_units: bool,
}

/// A unit to write.
pub struct UnitWork<'a> {
    /// Its port.
    pub port: &'a mut dyn Port,
    /// What is written.
    pub plan: &'a FlashPlan,
    /// How it is written.
    pub options: FlashOptions,
    /// Shows how far it is.
    pub progress: UnitProgress,
}

/// Where a unit's outcome goes.
pub struct UnitEnd<'a> {
    /// The unit's port.
    pub location: &'a Location,
    /// What brings it back, if it stops.
    pub ways: Ways,
    /// What is said of it if the process ends now.
    pub held: HeldUnit,
    /// The outcome.
    pub outcome: &'a mut UnitOutcome,
}

impl UnitWork<'_> {
    fn prepare<'b>(&'b mut self, interrupt: Interrupt<'b>) -> Result<Opened<'b, Prepared>, Box<Stopped>> {
        run::prepare(self.port, self.plan, &self.options, &mut self.progress, interrupt)
    }
}

/// Makes the command to print again name a folder that has room, if the backup could not be saved: with the same folder it
/// would fail again.
fn give_room(origin: &mut InvokedCommand, error: &FlashError) {
    let FlashError::Folder(BackupFolderError::Save { path, .. } | BackupFolderError::Exists(path)) = error else {
        return;
    };
    let whole = |path: &Path| path.canonicalize().ok();
    let failed = path.parent().and_then(whole);
    let mut others = backup_place::elsewhere().into_iter().filter(|folder| failed.is_none() || whole(folder) != failed);
    if let Some(folder) = others.find(|folder| backup_folder::has_room(folder)) {
        origin.backup = vec![backup_place::option(&folder)];
    }
}

impl Writing {
    /// Writes each unit as soon as it is prepared, whatever happens to the others.
    pub fn each(&self, units: Vec<(UnitWork<'_>, UnitEnd<'_>)>) {
        at_once(units, &|(mut work, end): (UnitWork<'_>, UnitEnd<'_>)| {
            self.log_about(end.location);
            let prepared = work.prepare(self.interrupt);
            self.finish(end, prepared.and_then(Opened::confirm).and_then(Opened::write));
        });
    }

    /// Prepares all units, checks all again, then writes all. If one stops before, none is written.
    pub fn all_or_none(&self, units: Vec<(UnitWork<'_>, UnitEnd<'_>)>) {
        let (mut works, ends): (Vec<_>, Vec<_>) = units.into_iter().unzip();
        let places = ends.iter().map(|end| end.location);
        let prepared = at_once(works.iter_mut().zip(places).collect::<Vec<_>>(), &|(work, location)| {
            self.log_about(location);
            work.prepare(self.interrupt)
        });
        let Some((prepared, ends)) = self.unless_one_stopped(prepared, ends) else { return };
        let confirmed = at_once(prepared, &|unit| {
            self.log_about(unit.location());
            unit.confirm()
        });
        let Some((confirmed, ends)) = self.unless_one_stopped(confirmed, ends) else { return };
        let written = at_once(confirmed, &|unit| {
            self.log_about(unit.location());
            unit.write()
        });
        ends.into_iter().zip(written).for_each(|(end, written)| self.finish(end, written));
    }

    /// Returns the units if none has stopped. Otherwise gives those that haven't back to the system.
    fn unless_one_stopped<'u, 'e, Phase>(
        &self,
        units: Vec<Result<Opened<'u, Phase>, Box<Stopped>>>,
        ends: Vec<UnitEnd<'e>>,
    ) -> Option<(Vec<Opened<'u, Phase>>, Vec<UnitEnd<'e>>)> {
        let stopped = units.iter().zip(&ends).filter(|(unit, _)| unit.is_err());
        let because = stopped.map(|(_, end)| end.location.to_string()).collect::<Vec<_>>().join(", ");
        if because.is_empty() {
            return Some((units.into_iter().flatten().collect(), ends));
        }
        for (unit, end) in units.into_iter().zip(ends) {
            match unit {
                Ok(unit) => {
                    let refusal = Refusal::AllOrNone { device: end.location.to_string(), because: because.clone() };
                    end.held.let_go();
                    *end.outcome = UnitOutcome::Spared(unit.release(), refusal.into());
                }
                Err(stopped) => self.finish(end, Err(stopped)),
            }
        }
        None
    }

    fn finish(&self, end: UnitEnd<'_>, written: Result<FlashReport, Box<Stopped>>) {
        *end.outcome = match written {
            Ok(report) => {
                end.held.let_go();
                UnitOutcome::Written(report)
            }
            Err(stopped) => {
                let mut ways = end.ways;
                give_room(&mut ways.origin, &stopped.error);
                let standing = Standing::from(&*stopped);
                let failure = Arc::new(FlashFailure::new(stopped.error, standing, &ways));
                end.held.has_stopped(&failure);
                UnitOutcome::Stopped(stopped.report, failure)
            }
        };
    }

    fn log_about(&self, location: &Location) {
        log::about(self.names_units.then_some(location.to_string()).as_deref());
    }
}
