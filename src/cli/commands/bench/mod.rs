//! The `asmpatch bench` command: measures a unit after checking that data survives the trip.

pub(in crate::cli) mod soak;
mod svg;
mod table;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bench::comparison::{self, AskedRows, RowChange};
use crate::bench::{self, BenchEvent, BenchPlan, BenchReport, BenchUnit, DataPath, Effort, Integrity, Outcome, Point};
use crate::devices::Devices;
use crate::flash::access::Access;
use crate::flash::observe::ObservedFirmware;
use crate::image::{Firmware, Images};
use crate::pcap::Capture;
use crate::unit::facts::RunningFirmware;
use crate::unit::{self, Purpose, Selector, Unit};
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::{AnyFailure, Failure, Kind, TransportKind};
use asm2464_files::atomic;
use asm2464_host::bridge::UnitInfo;
use indicatif::{HumanDuration, ProgressBar};
use serde::Serialize;

use crate::cli::commands::reset;
use crate::cli::given::arguments::{DeviceArgs, PatchDirs};
use crate::cli::given::context::Context;
use crate::cli::given::user_files;
use crate::cli::words::errors::Exit;
use crate::cli::words::interrupt;
use crate::cli::words::print;

/// Measure a unit, after checking that data survives the trip.
///
/// Asks what is behind the bridge, writes a pattern and reads it back, then measures each path, a way for data to go
/// through the unit: MB/s, commands a second, latency. If a path doesn't answer in time, the unit is recovered, and the
/// path's row says so.
///
/// On the vendor's firmware the paths are WRITE(16) and READ(16), SCSI's own commands; E4, the vendor command that
/// reads the chip's memory; and single PCIe requests (TLPs). READ(16) needs an SSD or a device that completes it, the
/// patch read16-sram, or `--path read16`. On the open firmware they are its control requests: E4, F0 (PCIe requests,
/// singly and as streams) and F2 (DMA).
///
/// Never writes if an SSD could be behind the bridge. Without one, initialises vendor firmware as a GPU runtime does,
/// and restarts the unit at the end. Writes a GPU's memory only in its frame buffer, and assigns missing bus numbers
/// and addresses.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch bench\n  asmpatch bench --sweep --svg bench.svg\n  \
asmpatch bench --json > before.json; asmpatch bench --baseline before.json\n  \
asmpatch bench --check --min-mb-s write16=100 --min-mb-s e4-255=1\n  \
asmpatch bench --soak 10m --max-errors-per-hour 10 --svg soak.svg\n\nJSON keys and method: `asmpatch help bench.md`.")]
pub struct Args {
    /// Measure only these paths: e4-255, config-read, tlp-read, tlp-write; on the vendor's firmware e4-4096, write16,
    /// read16; on the open firmware f0-write, f0-read, f2-out.
    #[arg(long = "path", value_name = "PATH", value_delimiter = ',')]
    paths: Vec<DataPath>,

    /// Bytes per command, such as 512, 4K or 64K; a path skips what it can't move [default: each path's largest].
    #[arg(long = "size", value_name = "BYTES", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<usize>,

    /// Commands in flight; capped at what the transport takes [default: as many as it takes].
    #[arg(long = "depth", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    depths: Vec<u16>,

    /// Measure every size at every depth.
    #[arg(long)]
    sweep: bool,

    /// Seconds per repetition.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = parse_seconds)]
    seconds: Duration,

    /// Repetitions per row, after a warm-up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,

    /// Seconds after which a command counts as unanswered.
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    timeout: Duration,

    /// Fail with status 1 unless the path's best row reaches N MB/s.
    #[arg(long = "min-mb-s", value_name = "PATH=N", value_parser = parse_floor)]
    floors: Vec<(DataPath, f64)>,

    /// Fail with status 1 also if the unit refuses a path, or moves too few bytes or wrong ones: by itself, only a path
    /// without an answer fails the bench.
    #[arg(long)]
    check: bool,

    /// Restart the unit first: for one that a GPU runtime has initialised.
    #[arg(long)]
    restart: bool,

    /// Instead, move data for this long without a pause, as a GPU runtime does, and count the errors: 90s, 10m, 12h.
    /// Ctrl-C ends it with what was measured.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = soak::parse_length,
        conflicts_with_all = [
            "paths", "sizes", "depths", "sweep", "seconds", "repetitions", "floors", "check", "baseline",
        ]
    )]
    soak: Option<Duration>,

    /// With --soak: fail with status 1 above this many errors an hour.
    #[arg(long, value_name = "N", requires = "soak", value_parser = parse_rate)]
    max_errors_per_hour: Option<f64>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Also draw throughput over size and depth, or with --soak over time, into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Compare with the JSON of an earlier run. Fail with status 1 if a row that it measured has no figures now, or if
    /// its fastest repetition is slower than the earlier run's slowest one by more than --max-slower allows. Rows that
    /// --path, --size and --depth leave out don't count.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// How much slower than the baseline a row may be, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "10", requires = "baseline", value_parser = parse_percent)]
    max_slower: f64,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Parses a throughput that a path must reach, in MB/s.
fn parse_floor(text: &str) -> Result<(DataPath, f64), String> {
    let (path, floor) = text.split_once('=').ok_or("expected PATH=N, as in write16=100")?;
    let path = path.parse::<DataPath>().map_err(|error| error.to_string())?;
    match floor.parse() {
        Ok(mb_per_s) if f64::is_finite(mb_per_s) && mb_per_s >= 0.0 => Ok((path, mb_per_s)),
        _ => Err(format!("{floor:?} is no number of MB/s")),
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    match digits.parse::<usize>().ok().and_then(|count| count.checked_mul(unit)) {
        Some(size) if DataPath::ALL.iter().any(|path| path.takes(size)) => Ok(size),
        _ => Err("no path moves that much in one command: E4 up to 4096 bytes, streams multiples of 4 up to 64K, \
                  READ(16) and WRITE(16) multiples of 512 up to 64K, F2 up to 512K"
            .to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    parse_within(text, 0.0..=100.0, "a percentage from 0 to 100")
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_within(text, 0.0..=f64::MAX, "a number of errors, 0 or more")
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_within(text, 0.001..=3600.0, "seconds from 0.001 to 3600").map(Duration::from_secs_f64)
}

fn parse_within(text: &str, range: RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| format!("expected {expected}"))
}

/// The failure of a bench whose bytes came back changed.
fn corrupt() -> Failure {
    let label = Kind::CheckFailed.code("asmpatch::bench::corrupt");
    Failure::new(label, "bytes came back different from what was written")
}

/// The failure of a path that doesn't work.
fn broken(path: DataPath, outcome: &Outcome) -> Failure {
    Failure::new(Kind::CheckFailed.code("asmpatch::bench::failed"), format!("{path} does not work: {outcome}"))
}

/// The JSON of `--json`: the report and, with a baseline, what changed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct BenchJson<'a> {
    #[serde(flatten)]
    report: &'a BenchReport,
    /// With --baseline: each row that the earlier run measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [RowChange]>,
}

impl print::Document for BenchJson<'_> {
    const VERSION: u32 = bench::SCHEMA;
}

impl Args {
    fn plan(&self, state: BridgeState) -> BenchPlan {
        let paths = if self.paths.is_empty() { DataPath::of(state).collect() } else { self.paths.clone() };
        BenchPlan {
            sizes: self.sizes.clone(),
            depths: self.depths(),
            sweep: self.sweep,
            reads_without_ssd: self.paths.contains(&DataPath::Read16),
            ..BenchPlan::new(paths, self.effort(), seed())
        }
    }

    fn depths(&self) -> Vec<usize> {
        self.depths.iter().map(|depth| usize::from(*depth)).collect()
    }

    fn effort(&self) -> Effort {
        // A warm-up of half a repetition is long enough to fill every queue.
        Effort {
            warm_up: self.seconds / 2,
            repetition: self.seconds,
            repetitions: self.repetitions,
            timeout: self.timeout,
        }
    }
}

/// The pattern's seed: another one for each run, unless the clock is before 1970.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, the unit runs no firmware, an SSD is behind it, a transfer fails, or the
/// figures don't meet what an option requires.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    // Read the baseline first: a bad file must not cost a whole run.
    let before = match &args.baseline {
        Some(path) => Some(comparison::parse(&user_files::read_text(path)?)?),
        None => None,
    };
    if let Some(path) = &args.svg {
        user_files::refuse_irregular(path)?;
    }
    let recording = args.device.port.pcap.start()?;
    let unit = if args.restart {
        restarted(args, recording.capture(), interrupt::install())?
    } else {
        args.device.port.choose(recording.capture())?
    };
    let bar = context.spinner();
    if let Some(duration) = args.soak {
        return soak::run(args, duration, unit, &bar);
    }
    let plan = args.plan(unit.info.state);
    let info = unit.info.clone();
    let report = measured(unit, &plan, args.device.transport.into(), &bar);
    bar.finish_and_clear();
    let report = report?;

    let depths = args.depths();
    let asked = AskedRows { paths: &args.paths, sizes: &args.sizes, depths: &depths, sweep: args.sweep };
    let changes = before.map(|before| comparison::compare(&before, &report.rows, asked, args.max_slower));
    if args.json {
        print::json(&BenchJson { report: &report, changes: changes.as_deref() });
    } else {
        table::show(&report, changes.as_deref(), args.sweep);
    }
    if let Some(path) = &args.svg {
        atomic::write(path, svg::draw(&report)?.as_bytes())?;
    }
    if report.is_silent(DataPath::Write16)
        && !report.is_corrupt()
        && let Some(firmware) = answers_no_write(&info, args, recording.capture())
    {
        let message = format!("{} runs {firmware}, which never answers WRITE(16) over UAS", info.location);
        return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::stock"), message).into());
    }
    check(&report, changes.as_deref(), args)?;
    if !args.json && report.failed_row().is_some() {
        outln!("next:");
        outln!("    {}", context.invocation.at(&info.location).other("doctor"));
    }
    Ok(Exit::Done)
}

/// The firmware that the unit runs, if that is known and answers no WRITE(16). A unit that can't be asked any more may
/// run any.
fn answers_no_write(info: &UnitInfo, args: &Args, capture: Option<&Capture>) -> Option<Firmware> {
    let ask = || {
        let mut unit = unit::again(&args.device.port.ids.load()?, info, capture)?;
        let mut access = Access::open(unit.port())?;
        let images = Images::from(PatchDirs::default().load()?);
        Ok::<_, AnyFailure>(ObservedFirmware::of(&mut access, info.state)?.running_firmware(&images))
    };
    match ask() {
        Ok(RunningFirmware::Flashed(firmware)) if !firmware.answers_writes() => Some(firmware),
        _ => None,
    }
}

/// Measures the unit, and restarts it if it was initialised.
fn measured(
    mut unit: Unit,
    plan: &BenchPlan,
    transport: Option<TransportKind>,
    bar: &ProgressBar,
) -> Result<BenchReport, AnyFailure> {
    let mut shown = ShownProgress { bar, effort: plan.effort, is_initialised: false };
    let who = BenchUnit::from(&unit.info);
    let mut open = unit.open(Purpose::Bench, transport)?;
    let report = bench::run(open.benched(), who, plan, interrupt::install(), &mut shown);
    // Only one handle can claim a unit, and the restart needs one.
    drop(open);
    leave(unit, shown.is_initialised);
    report
}

/// Progress that is shown on a bar.
struct ShownProgress<'a> {
    bar: &'a ProgressBar,
    effort: Effort,
    /// Whether the unit was initialised as by a GPU runtime.
    is_initialised: bool,
}

impl Progress<BenchEvent> for ShownProgress<'_> {
    fn event(&mut self, event: BenchEvent) {
        self.is_initialised |= event == BenchEvent::Initialising;
        self.bar.set_message(progress_line(self.effort, event));
    }
}

/// Measures a unit that came back after a flash: a short bench of READ(16) against E4. `writes` says whether its vendor
/// firmware answers WRITE(16). Only reads if an SSD could be behind the bridge.
///
/// # Errors
/// As for [`run`].
pub fn self_test(
    unit: &UnitInfo,
    writes: bool,
    devices: &Arc<Devices>,
    capture: Option<&Capture>,
    context: &Context,
) -> Result<BenchReport, AnyFailure> {
    let bar = context.spinner();
    let measure = |paths: &[DataPath]| {
        let plan = BenchPlan::new(paths.iter().copied(), Effort::SELF_TEST, seed());
        measured(unit::again(devices, unit, capture)?, &plan, None, &bar)
    };
    let reads: Vec<DataPath> = DataPath::scsi().into_iter().filter(|path| !path.writes()).collect();
    let report = match unit.state {
        BridgeState::OpenFirmware => measure(&[DataPath::E4Stock, DataPath::F2Out]),
        _ if !writes => measure(&reads),
        _ => measure(&DataPath::scsi()).or_else(|failure| match failure.kind() {
            // An SSD may be behind it, and nothing was written.
            Kind::Refused => measure(&reads),
            _ => Err(failure),
        }),
    };
    bar.finish_and_clear();
    report
}

/// Prints a self-test: all of it, or of one of several units only the line that compares READ(16) with E4.
pub fn show_self_test(device: &str, report: &BenchReport, several: bool) {
    if several {
        table::wrapped(&format!("{}: ", device.shown()), 4, &table::read_against_e4(report).unwrap_or_default());
    } else {
        table::show(report, None, false);
    }
}

/// Checks that bytes survived.
///
/// # Errors
/// Fails if bytes came back different from what was written.
pub fn check_bytes(report: &BenchReport) -> Result<(), Failure> {
    if report.is_corrupt() { Err(corrupt()) } else { Ok(()) }
}

/// Restarts a unit that was initialised: this one, not another that has taken its place.
fn leave(mut unit: Unit, is_initialised: bool) {
    // A virtual unit loses its power when this process ends.
    if !is_initialised || unit.info.location.is_virtual() {
        return;
    }
    let mut restart = || {
        unit.find_again()?;
        reset::restart(unit.port(), Interrupt::never())
    };
    if restart().is_err() {
        errln!("the unit is still initialised as by a GPU runtime: unplug it before anything else uses it");
    }
}

/// Restarts the unit, waits until it is back, and selects it where it is now. It may have another identity, so only its
/// connector identifies it.
fn restarted(args: &Args, capture: Option<&Capture>, interrupt: Interrupt<'_>) -> Result<Unit, AnyFailure> {
    let mut port = args.device.port.port(capture)?;
    reset::restart(&mut *port, interrupt)?;
    let place = port.location();
    drop(port);
    unit::choose(&args.device.port.ids.load()?, Some(&Selector::from(&place)), capture)
}

fn progress_line(effort: Effort, progress: BenchEvent) -> String {
    match progress {
        BenchEvent::Checking => "asking what is behind the bridge, checking that bytes survive".to_owned(),
        BenchEvent::Initialising => "initialising the bridge as a GPU runtime does".to_owned(),
        BenchEvent::Soaking { elapsed, of, bytes, errors } => soak::progress_line(elapsed, of, bytes, errors),
        BenchEvent::Row { index, of, point: Point { path, size, depth } } => {
            let Effort { warm_up, repetition, repetitions, .. } = effort;
            let rows = u32::try_from(of - index).unwrap_or(u32::MAX);
            let left = HumanDuration((warm_up + repetition * repetitions).saturating_mul(rows));
            format!("{}/{of}: {path}, {size} bytes, {depth} in flight, {left} left", index + 1)
        }
    }
}

/// Checks the figures against what they must be in any case, and what the options require.
fn check(report: &BenchReport, changes: Option<&[RowChange]>, args: &Args) -> Result<(), Failure> {
    check_bytes(report)?;
    if let Some(row) = report.silent_rows().next() {
        return Err(broken(row.point.path, &row.outcome));
    }
    if args.check {
        if let Some(row) = report.failed_row() {
            return Err(broken(row.point.path, &row.outcome));
        }
        let mut checked = report.integrity.iter().flat_map(Integrity::outcomes);
        if let Some((_, outcome)) = checked.find(|(_, outcome)| outcome.is_failure()) {
            let message = format!("the pattern could not be written and read back: {outcome}");
            return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::integrity"), message));
        }
    }
    for &(path, floor) in &args.floors {
        let best = report.best(path);
        if best.is_none_or(|best| best < floor) {
            let found = best.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2} MB/s"));
            let message = format!("{path}: {found}, expected at least {floor} MB/s");
            return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::floor"), message));
        }
    }
    let Some(changes) = changes else { return Ok(()) };
    if changes.iter().all(|change| change.is_left_out) {
        let label = Kind::CheckFailed.code("asmpatch::bench::nothing_compared");
        return Err(Failure::new(label, "this run measured none of the baseline's rows"));
    }
    let (unsteady, worse): (Vec<&RowChange>, Vec<&RowChange>) = changes
        .iter()
        .filter(|change| change.is_worse)
        .partition(|change| change.is_unsteady && change.now_mb_per_s.is_some());
    if worse.is_empty()
        && let Some(change) = unsteady.first()
    {
        let (count, are) = (unsteady.len(), if unsteady.len() == 1 { "is slower" } else { "are slower" });
        let message = format!(
            "{count} of the baseline's rows {are}, but the repetitions of a run are themselves far apart, first {}: {change}",
            change.point
        );
        return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::unsteady"), message));
    }
    if let Some(change) = worse.first() {
        let (count, are) = (worse.len(), if worse.len() == 1 { "is worse" } else { "are worse" });
        let first = format!("{}: {change}", change.point);
        let message = format!("{count} of the baseline's rows {are}, first {first}");
        return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::worse"), message));
    }
    Ok(())
}
