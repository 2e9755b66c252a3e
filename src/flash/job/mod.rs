//! One run of a command that writes units: examine each, decide, ask, write all at once.
//!
//! [`examine`] reads each unit and plans: a [`FoundUnit`]. A [`FlashJob`] says what is written and how. It
//! [decides](FlashJob::decide) about each, which makes [`FlashUnit`]s, has the [questions](FlashJob::questions) that the
//! user must answer with yes, and then [writes](FlashJob::write) what was decided. A front end only shows and asks in
//! between, and follows the writes.

mod writing;

use std::collections::BTreeSet;
use std::sync::Arc;

use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::scsi::runtime::Variables;
use asm2464::{AnyFailure, Failure, Kind, Named};
use asm2464_host::bridge::{Behind, Location, Port, UnitInfo};

use self::writing::at_once;
use super::access::is_readable;
use super::backup_folder::{BackupPlaces, Filed, FiledBackup, UnreadBackup, UnreadKind};
use super::consent::{Allowed, Permission, Waiver};
use super::decide::{Decision, Terms, decide};
use super::examined::{Examined, Neighbours, NewFirmware};
use super::fitting::{self, Fit, FittingBackup, fitting};
use super::needs::{Loss, later_commands, without_backup};
use super::observe::Observation;
use super::offers::{self, offers};
use super::plan::FlashPlan;
use super::recovery::{Act, BackupFirst, FlashFailure, InvokedCommand, LaterCommands, NextStep, Why, Writes};
use super::run::{FlashOptions, FlashReport};
use super::serials::SerialSeries;
use super::wanted::{Wanted, WantedImage};
use crate::advice::Applicability;
use crate::bench::BenchReport;
use crate::devices::Devices;
use crate::failure::fenced;
use crate::image::Images;
use crate::runtimes::Runtime;
use crate::unit;

/// What was decided about a unit, and then done.
pub enum UnitOutcome {
    /// It will be written.
    Write,
    /// It already holds everything in the plan.
    Unchanged,
    /// It was not written.
    Refused(AnyFailure),
    /// It was prepared, and not written because of another unit.
    Spared(FlashReport, AnyFailure),
    /// It was written.
    Written(FlashReport),
    /// Writing it stopped.
    Stopped(FlashReport, Arc<FlashFailure>),
}

/// A question before a write. An answer other than yes must end the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteQuestion<'a> {
    /// Write this many units?
    Write(usize),
    /// Give this unit the known or a neutral identity, although this backup may have its own?
    KnownIdentity {
        /// The unit's port.
        device: &'a str,
        /// The backup.
        backup: &'a FittingBackup,
    },
    /// Give this unit the known or a neutral identity, although this backup may have its own and can't be read?
    UnreadBackup {
        /// The unit's port.
        device: &'a str,
        /// The backup.
        unread: &'a UnreadBackup,
    },
    /// Take this from the unit for good?
    Loss {
        /// The unit's port.
        device: &'a str,
        /// What it loses.
        loss: &'a Loss,
    },
    /// Go on, although nobody knows whether another unit has the same serial number?
    UnknownNeighbours {
        /// The unit's port.
        device: &'a str,
        /// Why nobody knows.
        why: &'a str,
    },
    /// Change the line of the version?
    OtherLine {
        /// The unit's port.
        device: &'a str,
        /// The version before.
        from: FirmwareVersion,
        /// The version after.
        to: FirmwareVersion,
    },
}

/// What a command writes to its units, and how.
pub struct FlashJob {
    /// What the command wants.
    pub wanted: Wanted,
    /// The image, and where it comes from.
    pub subject: NewFirmware,
    /// What is known of images in this run.
    pub images: Images,
    /// What GPU runtimes open.
    pub runtime: Runtime,
    /// The image or the backup, in words.
    pub source: String,
    /// The command that was run.
    pub invoked: Arc<InvokedCommand>,
    /// The USB IDs that count as units.
    pub devices: Arc<Devices>,
    /// What the user permits.
    pub allowed: Allowed,
    /// Whether to write no unit unless all can be written.
    pub all_or_none: bool,
    /// Where earlier backups are looked for.
    pub earlier_backups: BackupPlaces,
    /// The backup, or the copy of a flash, of which the image is taken: its configuration may be the unit's own.
    pub beside: Option<FiledBackup>,
    /// How each unit is written.
    pub options: FlashOptions,
    /// Stops the units at their next safe place.
    pub interrupt: Interrupt<'static>,
}

/// A unit that was found and examined, and about which nothing is decided.
pub struct FoundUnit {
    /// Its port, as `--device` takes it.
    pub device: String,
    /// Its port; `None` if it was not found.
    pub port: Option<Box<dyn Port>>,
    /// What was seen on it and would be written, or why it could not be examined.
    pub examined: Result<Examined, AnyFailure>,
}

/// A unit of a job: what was seen on it, what was decided, and what was done.
pub struct FlashUnit {
    /// Its port, as `--device` takes it.
    pub device: String,
    /// Its port; `None` if it was not found.
    pub port: Option<Box<dyn Port>>,
    /// What was seen on it, and what would be written; `None` if it could not be examined.
    pub examined: Option<Examined>,
    /// What the user must know about its write.
    pub terms: Terms,
    /// What was decided, and the outcome so far.
    pub outcome: UnitOutcome,
    /// What the commands after this one need.
    pub later: LaterCommands,
    /// The steps to take instead of a write that is refused or asked about.
    pub instead: Vec<NextStep>,
    /// The self-test after the write, if there was one.
    pub test: Option<Result<BenchReport, AnyFailure>>,
}

impl FlashUnit {
    /// A unit about which nothing is decided, so that nothing writes it. One that could not be examined is refused.
    fn undecided(FoundUnit { device, port, examined }: FoundUnit) -> Self {
        let (examined, outcome) = match examined {
            Ok(examined) => (Some(examined), UnitOutcome::Unchanged),
            Err(failure) => (None, UnitOutcome::Refused(failure)),
        };
        let (terms, later, instead) = (Terms::default(), LaterCommands::default(), Vec::new());
        Self { device, port, examined, terms, outcome, later, instead, test: None }
    }

    /// Whether it will be written.
    pub const fn is_to_be_written(&self) -> bool {
        matches!(self.outcome, UnitOutcome::Write)
    }

    /// The report of its write, if that is complete.
    pub const fn written(&self) -> Option<&FlashReport> {
        match &self.outcome {
            UnitOutcome::Written(report) => Some(report),
            _ => None,
        }
    }

    /// Returns its port, where it was last seen; `None` if it could not be examined.
    pub fn location(&self) -> Option<&Location> {
        match &self.outcome {
            UnitOutcome::Written(report) => Some(&report.location),
            UnitOutcome::Stopped(_, failure) => Some(&failure.unit.location),
            _ => Some(&self.examined.as_ref()?.seen.attached.location),
        }
    }

    /// Returns the step that brings back what was on the unit before it was written.
    pub fn way_back(&self) -> Option<NextStep> {
        let FlashReport { backup, restoring, .. } = self.written()?;
        let (folder, restoring) = (backup.clone()?, restoring.as_ref()?);
        Some(NextStep::back(Why::GoBack, folder, restoring, &self.later.back_when_done, true))
    }

    /// Returns what to do next with the unit, once it is written, in order.
    pub fn next(&self, job: &FlashJob) -> Vec<NextStep> {
        let Some(report) = self.written() else { return Vec::new() };
        // The unit was not read back, neither before its restart nor after.
        if report.after.is_none() && self.examined.as_ref().is_some_and(|examined| !examined.plan.reads_back()) {
            let image = job.invoked.image.clone();
            return image.map(|image| NextStep::new(Why::ReadBack, Act::Verify(image))).into_iter().collect();
        }
        if job.invoked.writes == Writes::Fields {
            return vec![NextStep::new(Why::SeeFields, Act::Fields)];
        }
        if !self.is_measurable(job) {
            return Vec::new();
        }
        let mut next = vec![NextStep::new(Why::CanStart, Act::Doctor)];
        if !matches!(self.test, Some(Ok(_))) {
            next.push(NextStep::new(Why::Measure, Act::Bench));
        }
        next
    }

    /// Whether the unit is back with what was written, and a bench can measure that.
    pub fn is_measurable(&self, job: &FlashJob) -> bool {
        let firmware = job.subject.firmware();
        // The bench must never write to an SSD.
        if let Some(unit) = &self.examined
            && matches!(unit.seen.behind(), Behind::Ssd(_))
        {
            return false;
        }
        // It needs writes that are answered without a device behind the bridge.
        let has_variables = firmware.version().is_some_and(|version| Variables::of(version).is_some());
        let answers = firmware.answers_writes() && has_variables;
        (answers || firmware.open().is_some()) && self.written().is_some_and(FlashReport::can_start)
    }

    /// Returns the next step that a command takes, whatever the unit's outcome.
    pub fn next_step(&self, job: &FlashJob) -> Option<NextStep> {
        let steps = match &self.outcome {
            UnitOutcome::Written(_) => return self.next(job).into_iter().next(),
            UnitOutcome::Stopped(_, failure) => &failure.steps,
            _ => &self.instead,
        };
        // A step under a doubt is for the user to decide.
        steps.iter().find(|step| step.is_sure() && step.applicability() == Applicability::Certain).cloned()
    }
}

/// A unit as the user named it, and its port if it was found.
pub type NamedPort = (String, Result<Box<dyn Port>, AnyFailure>);

/// Examines all units at once and makes their plans.
pub fn examine(
    ports: Vec<NamedPort>,
    wanted: &Wanted,
    images: &Images,
    interrupt: Interrupt<'static>,
) -> Vec<FoundUnit> {
    let look_at = |port: &mut dyn Port| {
        let seen = Observation::of(port, interrupt)?;
        let plan = wanted.plan(&seen, images)?;
        Ok(Examined::new(seen, plan))
    };
    let named = ports.into_iter().map(|(device, found)| (device.clone(), (device, found))).collect();
    at_once(named, &|(device, found): NamedPort| {
        let mut port = None;
        let examined = found.and_then(|found| {
            let port = port.insert(found);
            fenced(|| look_at(&mut **port))?
        });
        FoundUnit { device, port, examined }
    })
}

impl FlashJob {
    /// Plans again for each unit that was examined, with the next serial number of a series, which no backup and no other
    /// unit has. One for which no number is left is refused.
    ///
    /// # Errors
    /// Fails if a folder of earlier backups can't be read.
    fn number(&self, units: &mut [FoundUnit], image: &WantedImage, series: &SerialSeries) -> Result<(), AnyFailure> {
        let Filed { backups, unread } = self.earlier_backups.search();
        if let Some(unread) = unread.iter().find(|unread| unread.kind == UnreadKind::Folder) {
            return Err(unread.failure().into());
        }
        // If the system can't list the connected units, deciding refuses or asks.
        let in_use = numbers_in_use(&backups, &neighbours(units, unit::list(&self.devices)));
        let in_names: BTreeSet<String> =
            unread.iter().flat_map(|unread| unread.serials_in_name()).map(str::to_owned).collect();
        let own: Vec<Option<String>> = examined(units).map(|unit| unit.own().serial).collect();
        let serials = series.assign(&own, &in_use, &in_names);
        let examined = units.iter_mut().filter(|unit| unit.examined.is_ok());
        for (FoundUnit { device, examined, .. }, serial) in examined.zip(serials) {
            let Ok(Examined { seen, .. }) = examined else { continue };
            let plan = match serial {
                Some(serial) => image.plan(seen, Some(&serial)).map_err(AnyFailure::from),
                None => Err(no_serial_left(device, series)),
            };
            *examined = plan.map(|plan| Examined::new(seen.clone(), plan));
        }
        Ok(())
    }

    /// Decides about each unit that was examined. Those of a series get their numbers first.
    ///
    /// # Errors
    /// Fails on Ctrl-C, and if no series can be given because earlier backups can't be read. A refusal of one unit goes
    /// into its outcome.
    pub fn decide(&self, mut found: Vec<FoundUnit>) -> Result<Vec<FlashUnit>, AnyFailure> {
        if let Wanted::Image(image) = &self.wanted
            && let Some(series) = &image.series
        {
            self.number(&mut found, image, series)?;
        }
        let connected = neighbours(&found, unit::list(&self.devices));
        let mut all: Vec<UnitInfo> = examined(&found).map(|unit| unit.seen.attached.clone()).collect();
        all.extend(connected.iter().flatten().cloned());
        self.find_backups(&mut found, &all);
        for unit in examined(&found) {
            offers::prove_offered(&unit.backups, &self.images)?;
        }
        let mut units: Vec<FlashUnit> = found.into_iter().map(FlashUnit::undecided).collect();
        let seen: Vec<&Examined> = units.iter().filter_map(|unit| unit.examined.as_ref()).collect();
        let decisions = decide(&seen, &self.subject, self.allowed, &connected);
        let written: Vec<bool> = decisions.iter().map(|decision| matches!(decision, Decision::Write(_))).collect();
        let backs_up = self.invoked.backs_up;
        let later = |at| later_commands(&seen, at, &self.subject, &written, backs_up, &connected);
        let later: Vec<LaterCommands> = (0..seen.len()).map(later).collect();
        let examined = units.iter_mut().filter(|unit| unit.examined.is_some());
        for ((unit, decision), later) in examined.zip(decisions).zip(later) {
            let Some(examined) = &unit.examined else { continue };
            unit.instead = self.instead(&decision, examined, &later, &all)?;
            unit.later = later;
            unit.outcome = match decision {
                Decision::Write(terms) => match self.unlisted_id(&unit.device, &examined.plan) {
                    Some(failure) => UnitOutcome::Refused(failure.into()),
                    None => {
                        unit.terms = terms;
                        UnitOutcome::Write
                    }
                },
                Decision::Unchanged => UnitOutcome::Unchanged,
                Decision::NoBackup(failure)
                | Decision::OwnBackup(failure)
                | Decision::Lost(failure)
                | Decision::OthersBackup(failure)
                | Decision::Refused(failure) => UnitOutcome::Refused(failure.into()),
            };
        }
        let refused = units.iter().filter(|unit| matches!(unit.outcome, UnitOutcome::Refused(_)));
        let because = refused.map(|unit| unit.device.clone()).collect::<Vec<_>>().join(", ");
        if self.all_or_none && !because.is_empty() {
            for unit in units.iter_mut().filter(|unit| unit.is_to_be_written()) {
                unit.outcome = UnitOutcome::Refused(all_or_none(&unit.device, &because));
            }
        }
        Ok(units)
    }

    /// Finds the earlier backups of units that are not backed up, report no version, or would get another identity or the
    /// known or neutral blocks. `connected` are the units of this host.
    fn find_backups(&self, units: &mut [FoundUnit], connected: &[UnitInfo]) {
        let is_at_stake = |unit: &Examined| {
            self.allowed.no_backup
                || !is_readable(unit.seen.attached.state)
                || unit.seen.running.runs.version.is_none()
                || unit.own() != unit.planned()
                || unit.plan.blocks.iter().any(|block| block.source.stands_in())
        };
        if !examined(units).any(is_at_stake) {
            return;
        }
        let mut filed = self.earlier_backups.search();
        if let Some(beside) = &self.beside {
            filed.backups.retain(|backup| backup.folder != beside.folder);
            filed.backups.push(beside.clone());
        }
        let mut at_stake: Vec<&mut Examined> =
            units.iter_mut().filter_map(|unit| unit.examined.as_mut().ok()).collect();
        at_stake.retain(|unit| is_at_stake(unit));
        for Examined { seen, plan, backups, unread, .. } in at_stake {
            let given = if self.subject.serial_given { plan.planned_identity().serial } else { None };
            *backups = fitting(&seen.attached, &seen.blocks, given.as_deref(), &filed.backups, connected);
            unread.clone_from(&filed.unread);
            if let Some(beside) = &self.beside {
                fitting::add_named(backups, &seen.attached, &seen.blocks, beside);
            }
        }
    }

    /// Returns the steps to take instead of a write that is refused or asked about. `later` is what the command needs to be
    /// run again, and `connected` are the units of this host.
    fn instead(
        &self,
        decision: &Decision,
        unit: &Examined,
        later: &LaterCommands,
        connected: &[UnitInfo],
    ) -> Result<Vec<NextStep>, Interrupted> {
        Ok(match decision {
            Decision::NoBackup(_) => self.instead_of_own(unit, later, false),
            Decision::OwnBackup(_) | Decision::Lost(_) => self.instead_of_own(unit, later, true),
            Decision::Write(Terms { own_backups, unread, .. }) if !own_backups.is_empty() || !unread.is_empty() => {
                self.instead_of_own(unit, later, true)
            }
            Decision::OthersBackup(_) => self.instead_of_foreign(unit, later, connected)?,
            Decision::Write(_) | Decision::Unchanged | Decision::Refused(_) => Vec::new(),
        })
    }

    /// The steps to take instead of a write that could lose what is the unit's own. `is_at_stake` says whether that is
    /// its identity.
    fn instead_of_own(&self, unit: &Examined, later: &LaterCommands, is_at_stake: bool) -> Vec<NextStep> {
        let Examined { seen, backups, unread, .. } = unit;
        let attached = &seen.attached;
        let mut steps: Vec<NextStep> = unread.iter().map(NextStep::make_readable).collect();
        // If the user has not agreed to a change of the version's line, the command asks about it when it runs.
        let mut later = later.clone();
        for permissions in [&mut later.now, &mut later.with_blocks] {
            permissions.retain(|permission| *permission != Permission::OtherLine || self.allowed.other_line);
        }
        let InvokedCommand { writes, names_blocks, .. } = &*self.invoked;
        let has_blocks = *names_blocks || *writes == Writes::Backup;
        let without = later.now(BackupFirst::No);
        if has_blocks && !is_at_stake {
            return vec![NextStep::new(Why::WithoutBackup, without)];
        }
        steps.extend(offers(backups, Some((*writes, &later)), &attached.location, &self.images));
        // Only where nothing else is left: the user may know of a backup that asmpatch doesn't.
        let is_known = backups.iter().any(|backup| backup.fit != Fit::Unconnected);
        if *writes == Writes::Image && attached.state == BridgeState::BootLoader && !is_known {
            let (why, _) = without_backup(attached, backups, unread);
            steps.push(NextStep::new(why, without));
        }
        steps
    }

    /// The steps to take instead of a write of another unit's backup: this unit's own, or that backup's firmware with
    /// this unit's identity.
    fn instead_of_foreign(
        &self,
        unit: &Examined,
        later: &LaterCommands,
        connected: &[UnitInfo],
    ) -> Result<Vec<NextStep>, Interrupted> {
        let attached = &unit.seen.attached;
        let filed = self.earlier_backups.search();
        let mut steps = offers::restores(attached, &unit.seen.blocks, &filed, connected, &self.images)?;
        // The boot loader keeps no identity.
        if is_readable(attached.state)
            && let Some(image) = self.invoked.image.clone()
        {
            let why = if steps.is_empty() { Why::OnlyFirmware } else { Why::FirmwareAlone };
            let mut permissions = later.now.clone();
            permissions.retain(|permission| !matches!(permission, Permission::CloneIdentity(_)));
            let act = Act::Flash { image, permissions, blocks_from: None, backs_up: true };
            steps.push(NextStep::new(why, act));
        }
        Ok(steps)
    }

    /// Returns the failure of a unit that would come back under an ID that is not known.
    fn unlisted_id(&self, device: &str, plan: &FlashPlan) -> Option<Failure> {
        let id = plan.usb_id?;
        if self.devices.contains(id) {
            return None;
        }
        let label = Kind::Refused.code("asmpatch::flash::unlisted_id");
        let message =
            format!("{device}: the unit would come back as {id}, which is not known as an ASM2464PD unit's USB ID");
        Some(Failure::new(label, message).naming(Named::UsbId(id.to_string())))
    }

    /// Returns the questions to ask before the accepted units are written, in order. If
    /// [nobody can be asked](Allowed::unasked) there are none: units that need a question of their own are refused then.
    pub fn questions<'u>(&self, units: &'u [FlashUnit]) -> Vec<WriteQuestion<'u>> {
        let allowed = self.allowed;
        let units: Vec<&FlashUnit> = units.iter().filter(|unit| unit.is_to_be_written()).collect();
        if units.is_empty() || allowed.unasked {
            return Vec::new();
        }
        let mut questions = vec![WriteQuestion::Write(units.len())];
        for FlashUnit { device, terms, .. } in units {
            if let Some(backup) = terms.own_backups.first() {
                questions.push(WriteQuestion::KnownIdentity { device, backup });
            }
            if let Some(unread) = terms.unread.first() {
                questions.push(WriteQuestion::UnreadBackup { device, unread });
            }
            if terms.loss.waivers().any(|waiver| !allowed.clone_identity.has(waiver)) {
                questions.push(WriteQuestion::Loss { device, loss: &terms.loss });
            }
            if let Some(why) = &terms.unknown_neighbours
                && !allowed.clone_identity.has(Waiver::Neighbours)
            {
                questions.push(WriteQuestion::UnknownNeighbours { device, why });
            }
            if let Some((from, to)) = terms.other_line
                && !allowed.other_line
            {
                questions.push(WriteQuestion::OtherLine { device, from, to });
            }
        }
        questions
    }
}

/// The serial numbers that backups and connected units have.
fn numbers_in_use(backups: &[FiledBackup], connected: &Neighbours) -> BTreeSet<String> {
    let connected = connected.iter().flatten().map(|other| other.serial().to_owned());
    backups.iter().map(FiledBackup::serial).chain(connected).collect()
}

/// The units that were examined.
fn examined(units: &[FoundUnit]) -> impl Iterator<Item = &Examined> {
    units.iter().filter_map(|unit| unit.examined.as_ref().ok())
}

/// The failure of a unit that is not written because others (`because`) are not, and all or none are to be.
fn all_or_none(device: &str, because: &str) -> AnyFailure {
    let label = Kind::Refused.code("asmpatch::flash::all_or_none");
    Failure::new(label, format!("{device}: not written, because {because} is not")).into()
}

fn no_serial_left(device: &str, series: &SerialSeries) -> AnyFailure {
    let label = Kind::Refused.code("asmpatch::flash::serials_end");
    Failure::new(label, format!("{device}: no serial number of this width is left from {} on", series.start())).into()
}

/// The units on this machine's buses (`listed`) that are not among `units`.
fn neighbours<E: ToString>(units: &[FoundUnit], listed: Result<Vec<UnitInfo>, E>) -> Neighbours {
    let mut others = listed.map_err(|error| error.to_string())?;
    others.retain(|other| units.iter().all(|unit| unit.device != other.location.to_string()));
    Ok(others)
}

#[cfg(test)]
mod tests;
