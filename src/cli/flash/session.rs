//! One run of a command that writes units: prepare each, show, ask, write all at once, report.

use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::screen::{Screen, UnitProgress};
use super::{WritingArgs, ask, show};
use crate::bridge::{Attached, Port};
use crate::cli::Context;
use crate::cli::deadlines::Deadlines;
use crate::failure::{AnyFailure, Exit, Failure, fenced};
use crate::flash::guard::{self, Refusal};
use crate::flash::plan::{Plan, UnitBlocks};
use crate::flash::read;
use crate::flash::recovery::{FlashFailure, Origin};
use crate::flash::run::{self, Options, Report};
use crate::interrupt::{self, Interrupt};
use crate::unit;

/// The units of one run.
pub struct Session<'a> {
    args: &'a WritingArgs,
    context: &'a Context,
    interrupt: Interrupt<'static>,
    ports: Vec<Box<dyn Port>>,
}

/// Units with what will be written to each.
pub struct Prepared<'a> {
    args: &'a WritingArgs,
    context: &'a Context,
    interrupt: Interrupt<'static>,
    units: Vec<(Box<dyn Port>, Plan)>,
}

impl<'a> Session<'a> {
    /// Finds the units: the one named, the only one, or with `all` every one. From here on Ctrl-C is a request.
    ///
    /// # Errors
    /// No unit, several and no choice.
    pub fn open(args: &'a WritingArgs, all: bool, context: &'a Context) -> Result<Self, AnyFailure> {
        let interrupt = interrupt::install();
        let ports = match (args.device.as_slice(), all) {
            ([], true) => unit::ports()?,
            ([], false) => vec![unit::port(None)?],
            (named, all) if named.len() == 1 || all => {
                named.iter().map(|selector| unit::port(Some(selector))).collect::<Result<_, _>>()?
            }
            (named, _) => {
                let devices = named.iter().map(ToString::to_string).collect();
                return Err(Refusal::SeveralUnits { devices }.into());
            }
        };
        Ok(Self { args, context, interrupt, ports })
    }

    /// Reads all units at once and makes their plans. Nothing is written yet.
    ///
    /// # Errors
    /// What keeps any of them from being written: then none is.
    pub fn prepare(
        self,
        make: impl Fn(Attached, UnitBlocks) -> Result<Plan, AnyFailure> + Sync,
    ) -> Result<Prepared<'a>, AnyFailure> {
        let Self { args, context, interrupt, ports } = self;
        let prepare_one = |mut port: Box<dyn Port>| {
            interrupt.check()?;
            let attached = port.attached()?;
            guard::backup_is_possible(&port.device(), attached.state, !args.no_backup)?;
            // Given back to the system while the question is asked.
            let blocks = read::blocks(&mut port.open()?, attached.state)?;
            let plan = make(attached, blocks)?;
            Ok((port, plan))
        };
        let prepared =
            at_once(ports, &|port| fenced(|| prepare_one(port)).unwrap_or_else(|panicked| Err(panicked.into())));
        let units = prepared.into_iter().collect::<Result<Vec<_>, AnyFailure>>()?;
        let named: Vec<(String, &Plan)> = units.iter().map(|(port, plan)| (port.device(), plan)).collect();
        guard::serials_differ(named.iter().map(|(device, plan)| (device.as_str(), *plan)))?;
        Ok(Prepared { args, context, interrupt, units })
    }
}

impl Prepared<'_> {
    /// Shows the plans, asks, writes all units at once, and reports each.
    ///
    /// # Errors
    /// Where the answer is no. What stops a write is reported here and decides the status.
    pub fn write(self, source: &str, origin: &Origin) -> Result<Exit, AnyFailure> {
        let Self { args, context, interrupt, units } = self;
        let backup_into = (!args.no_backup).then_some(args.backup_dir.as_path());
        if !args.json {
            for (port, plan) in &units {
                show::plan(&port.device(), plan, source, backup_into);
            }
        }
        if !args.yes {
            let which = if units.len() == 1 { "this unit".to_owned() } else { format!("these {} units", units.len()) };
            ask::confirm(&format!("Write {which}?"), interrupt)?;
        }

        interrupt::on_request(|| {
            errln!(
                "\nstopping at the next safe place: a write that has begun is finished and read back first, which \
                 takes some seconds; a second Ctrl-C ends asmpatch at once, and may leave the unit without firmware"
            );
        });
        let screen = Screen::start(context, !args.json, units.len() > 1);
        let units = units.into_iter().enumerate().map(|(index, (port, plan))| {
            let progress = screen.unit(index, port.device());
            (port, plan, progress)
        });
        let is_attended = !args.yes && std::io::stderr().is_terminal();
        let outcomes =
            at_once(units.collect(), &|(mut port, plan, mut progress): (Box<dyn Port>, Plan, UnitProgress)| {
                write_one(&mut *port, &plan, backup_into, is_attended, &mut progress, origin, interrupt)
            });
        screen.finish();

        if args.json {
            show::json(&outcomes);
        }
        let mut exit = Exit::Done;
        for (report, failure) in outcomes {
            match failure {
                None if args.json => {}
                None => show::done(&report),
                Some(failure) => {
                    exit = exit.max(failure.exit());
                    let way_out = failure.way_out();
                    context.report(&failure.into());
                    way_out.iter().for_each(|line| errln!("        {line}"));
                }
            }
        }
        Ok(exit)
    }
}

/// Works on each on a thread of its own; gives the outcomes in the same order.
fn at_once<T: Send, O: Send>(all: Vec<T>, work: &(impl Fn(T) -> O + Sync)) -> Vec<O> {
    thread::scope(|scope| {
        let running: Vec<_> = all.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        // A unit's thread does not panic; if it did, that panic is this process's.
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn write_one(
    port: &mut dyn Port,
    plan: &Plan,
    backup_into: Option<&Path>,
    is_attended: bool,
    progress: &mut UnitProgress,
    origin: &Origin,
    interrupt: Interrupt<'_>,
) -> (Report, Option<FlashFailure>) {
    // Nobody plugs a virtual bridge in, and nobody who reads no messages plugs in a real one.
    let is_attended = is_attended && !port.device().starts_with("virtual:");
    let Deadlines { come_back, replug } = Deadlines::of_this_run();
    let options = Options {
        backup_into: backup_into.map(Path::to_owned),
        return_deadline: come_back,
        replug_deadline: if is_attended { replug } else { Duration::ZERO },
    };
    match run::run(port, plan, &options, progress, interrupt) {
        Ok(report) => (report, None),
        Err(stopped) => {
            let report = stopped.report.clone();
            (report, Some(FlashFailure::new(*stopped, origin)))
        }
    }
}
