//! `bench --soak`: how many errors a unit, its cable and its host make in an hour.

use std::time::{Duration, Instant};

use crate::bench::soak::{self, Ended, ErrorKind, ErrorRegisters, LeftOut, PcieErrors, SoakPlan, SoakReport, UsbLink};
use crate::bench::{BenchUnit, Outcome};
use crate::unit::{Purpose, Unit};
use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::atomic;
use indicatif::ProgressBar;
use owo_colors::OwoColorize as _;

use super::table::{figure, figures_table, unit_lines, wrapped};
use super::{Args, Exit, ShownProgress, broken, corrupt, leave, seed, svg};
use crate::cli::given::context::Deadlines;
use crate::cli::words::interrupt;
use crate::cli::words::print;
use crate::cli::words::table;

/// Maximum width of the throughput over time, in columns.
const COLUMNS: usize = 60;
/// Block characters from low to high.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Time between two attempts to open a unit that is away.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl print::Document for SoakReport {
    const VERSION: u32 = soak::SOAK_SCHEMA;
}

/// Parses the length of a soak: `90s`, `10m`, `12h`.
pub(super) fn parse_length(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.1..=604_800.0).contains(&(number * unit)) => Ok(Duration::from_secs_f64(number * unit)),
        _ => Err("expected a time from 0.1s to 168h, as in 90s, 10m or 12h".to_owned()),
    }
}

/// Soaks the unit, prints the report, and checks it.
///
/// # Errors
/// Fails as a bench does, before the soak has begun; then if there are too many errors, or the unit is gone for good.
pub(super) fn run(args: &Args, duration: Duration, mut unit: Unit, bar: &ProgressBar) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let plan = SoakPlan { duration, timeout: args.timeout, seed: seed() };
    let mut shown = ShownProgress { bar, effort: args.effort(), is_initialised: false };
    // A unit that comes back at another speed is on another bus, and still behind this controller.
    let place = unit.info.location.clone();
    let link_before = UsbLink::count(&place);
    let who = BenchUnit::from(&unit.info);
    let transport = args.device.transport.into();
    let open = unit.open(Purpose::Bench, transport)?;
    let mut reopen = || {
        wait_for(interrupt, || {
            unit.find_again()?;
            unit.open(Purpose::Bench, transport)
        })
    };
    let report = soak::soak(open, who, plan, &mut reopen, interrupt, &mut shown);
    bar.finish_and_clear();
    leave(unit, shown.is_initialised);
    let mut report = report?;
    let link_after = UsbLink::count(&place);
    report.usb_link = link_before.zip(link_after).map(|(before, after)| UsbLink { before, after });
    if args.json {
        print::json(&report);
    } else {
        print_report(&report);
    }
    if let Some(path) = &args.svg {
        atomic::write(path, svg::draw_soak(&report)?.as_bytes())?;
    }
    check(&report, args)?;
    Ok(Exit::Done)
}

/// Opens a unit again, as soon as it is back; `None` at the deadline, or after Ctrl-C.
fn wait_for<T>(interrupt: Interrupt<'_>, mut open: impl FnMut() -> Result<T, AnyFailure>) -> Option<T> {
    let until = Instant::now() + Deadlines::of_this_run().come_back;
    loop {
        match open() {
            Ok(unit) => return Some(unit),
            Err(_) if interrupt.is_requested() || Instant::now() >= until => return None,
            Err(error) => tracing::debug!("soak: {}", error.coded()),
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn check(report: &SoakReport, args: &Args) -> Result<(), Failure> {
    if report.ended == Ended::Vanished {
        let message = format!("{} left the bus or stopped answering, and did not come back", report.unit.device);
        return Err(Failure::new(Kind::Gone.code("asmpatch::bench::vanished"), message));
    }
    let differs = |left: &LeftOut| matches!(left.outcome, Outcome::Differs { .. });
    if report.count(ErrorKind::Differs) > 0 || report.left_out.iter().any(differs) {
        return Err(corrupt());
    }
    let (count, per_hour) = (report.error_count, report.errors_per_hour);
    if let Some(most) = args.max_errors_per_hour
        && per_hour > most
    {
        let errors = if count == 1 { "error" } else { "errors" };
        let message = format!("{count} {errors}, {per_hour:.1} an hour: expected at most {most} an hour");
        return Err(Failure::new(Kind::CheckFailed.code("asmpatch::bench::errors"), message));
    }
    // A path that was left out has not passed.
    match report.left_out.first() {
        Some(left) => Err(broken(left.path, &left.outcome)),
        None => Ok(()),
    }
}

pub(super) fn progress_line(elapsed: Duration, duration: Duration, bytes: u64, errors: u64) -> String {
    let left = time(duration.saturating_sub(elapsed).as_secs_f64());
    let rate = if elapsed.is_zero() { 0.0 } else { bytes as f64 / 1e6 / elapsed.as_secs_f64() };
    format!("soaking: {} MB/s, {errors} errors, {left} left", figure(rate))
}

/// A time in words of up to two units.
fn time(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

fn print_report(report: &SoakReport) {
    unit_lines(&report.unit);
    let (megabytes, rate) = (figure(report.bytes as f64 / 1e6), figure(report.mb_per_s));
    outln!("  soaked for {}, {}: {megabytes} MB, {rate} MB/s", time(report.elapsed_s), report.ended);
    for left in &report.left_out {
        wrapped(&format!("  {} {}: ", "✗".red(), left.path), 4, &format!("left out, {}", left.outcome));
    }
    let header = ["path", "transfers", "MB", "compared", "errors"].map(str::to_owned);
    let mut rows = Vec::new();
    let megabytes = |bytes: u64| figure(bytes as f64 / 1e6);
    for path in &report.paths {
        rows.push(vec![
            path.path.to_string(),
            path.transfers.to_string(),
            megabytes(path.bytes),
            megabytes(path.compared_bytes),
            path.errors.to_string(),
        ]);
    }
    outln!("");
    print::out(figures_table(header.into(), rows, table::width()));
    outln!("");
    over_time(report).iter().for_each(|line| outln!("{line}"));
    let rate = figure(report.errors_per_hour);
    let errors = match report.error_count {
        0 if !report.left_out.is_empty() => "no error in the paths that were not left out".red().to_string(),
        0 => "no errors".green().to_string(),
        1 => format!("1 error, {rate} an hour").red().to_string(),
        count => format!("{count} errors, {rate} an hour").red().to_string(),
    };
    outln!("");
    outln!("  {errors}");
    for error in &report.errors {
        let (count, kind, first) = (error.count, error.kind, error.first.shown());
        let after = format!("{} and {} transfers", time(error.first_s), error.first_after);
        wrapped("    ", 6, &format!("{kind}: {count}, the first after {after}: {first}"));
    }
    pcie_lines(&report.pcie);
    if let Some(why) = &report.pcie_unread {
        wrapped("  PCIe: ", 4, &format!("error registers could not be read before the soak: {}", why.shown()));
    }
    if let Some(link) = report.usb_link {
        wrapped("  USB link: ", 4, &usb_link(link));
    }
}

/// Draws throughput over time, and below it where errors were.
fn over_time(report: &SoakReport) -> Vec<String> {
    let slices = &report.over_time;
    let most = slices.iter().map(|slice| slice.mb_per_s).fold(0.0, f64::max);
    if most <= 0.0 {
        return Vec::new();
    }
    let (mut heights, mut errors) = (String::new(), String::new());
    for group in slices.chunks(slices.len().div_ceil(COLUMNS)) {
        let mean = group.iter().map(|slice| slice.mb_per_s).sum::<f64>() / group.len() as f64;
        let height = (mean / most * HEIGHTS.len() as f64) as usize;
        heights.push(HEIGHTS[height.min(HEIGHTS.len() - 1)]);
        errors.push(match group.iter().map(|slice| slice.errors).sum::<u64>() {
            0 => ' ',
            count @ 1..=9 => char::from(b'0' + count as u8),
            _ => '+',
        });
    }
    let mut lines = vec![format!("  MB/s   {} up to {}", heights.cyan(), figure(most))];
    if report.error_count > 0 {
        lines.push(format!("  errors {}", errors.trim_end().red()));
    }
    lines
}

/// What the host controller's count of link errors says.
fn usb_link(link: UsbLink) -> String {
    let (new, before) = (link.new_errors(), link.before);
    format!("the host controller counted {new} link errors (modulo 65536), {before} before; information, not a verdict")
}

fn pcie_lines(functions: &[PcieErrors]) {
    for PcieErrors { at, id, before, after } in functions {
        let first = format!("  PCIe {at} {id}: ");
        let Some(after) = after else {
            wrapped(&first, 4, "error registers can't be read any more");
            continue;
        };
        let (new, old) = (named(after, before), named(before, &ErrorRegisters::default()));
        let new = if new.is_empty() { "no new error bits".to_owned() } else { new.join(", ") };
        let old = if old.is_empty() { String::new() } else { format!("; set before: {}", old.join(", ")) };
        wrapped(&first, 4, &format!("{new}{old}"));
    }
}

/// Names of bits. Source: PCI Express base specification 4.0, 7.8.4.2, 7.8.4.5 and 7.5.3.5.
type Bits = &'static [(u32, &'static str)];
const UNCORRECTABLE: Bits = &[
    (4, "data link protocol error"),
    (5, "surprise down"),
    (12, "poisoned TLP"),
    (13, "flow control error"),
    (14, "completion time-out"),
    (15, "completer abort"),
    (16, "unexpected completion"),
    (17, "receiver overflow"),
    (18, "malformed TLP"),
    (19, "ECRC error"),
    (20, "unsupported request"),
    (21, "ACS violation"),
    (22, "uncorrectable internal error"),
];
const CORRECTABLE: Bits = &[
    (0, "receiver error"),
    (6, "bad TLP"),
    (7, "bad DLLP"),
    (8, "replay number rollover"),
    (12, "replay timer time-out"),
    (13, "advisory non-fatal error"),
    (14, "corrected internal error"),
    (15, "header log overflow"),
];
const DEVICE_STATUS: Bits = &[
    (0, "correctable error seen"),
    (1, "non-fatal error seen"),
    (2, "fatal error seen"),
    (3, "unsupported request seen"),
];

/// Names the bits that are set in `now` and not in `before`.
fn named(now: &ErrorRegisters, before: &ErrorRegisters) -> Vec<String> {
    let new = |now: Option<u32>, before: Option<u32>| now.unwrap_or(0) & !before.unwrap_or(0);
    let names = |bits: u32, names: Bits| {
        let named = names.iter().filter(move |(bit, _)| bits >> bit & 1 != 0);
        named.map(|(_, name)| (*name).to_owned()).collect::<Vec<_>>()
    };
    let device = [now, before].map(|registers| registers.device_status.map(u32::from));
    let mut all = names(new(now.uncorrectable, before.uncorrectable), UNCORRECTABLE);
    all.extend(names(new(now.correctable, before.correctable), CORRECTABLE));
    all.extend(names(new(device[0], device[1]), DEVICE_STATUS));
    let lanes = new(now.lanes, before.lanes);
    all.extend((0..32).filter(|lane| lanes >> lane & 1 != 0).map(|lane| format!("lane {lane} error")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_number_of_seconds_minutes_or_hours() {
        for (text, seconds) in [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("168h", 604_800.0)] {
            assert_eq!(parse_length(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "m", "-1s", "0", "169h", "10x", "NaN", "1e99h"] {
            assert!(parse_length(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_progress_line_has_a_rate_from_the_first_moment_on() {
        let line = |elapsed, bytes| progress_line(elapsed, Duration::from_secs(10), bytes, 2);
        assert_eq!(line(Duration::ZERO, 0), "soaking: 0 MB/s, 2 errors, 10.0 s left");
        assert_eq!(line(Duration::ZERO, 1_000_000), "soaking: 0 MB/s, 2 errors, 10.0 s left");
        assert_eq!(line(Duration::from_secs(4), 8_000_000), "soaking: 2.00 MB/s, 2 errors, 6.0 s left");
    }

    #[test]
    fn the_controllers_count_may_have_begun_anew() {
        for (before, after, new) in [(7, 7, 0), (7, 87, 80), (0xFFFF, 2, 3)] {
            let line = usb_link(UsbLink { before, after });
            assert!(line.contains(&format!("counted {new} link errors")), "{line}");
        }
    }

    #[test]
    fn only_bits_that_were_clear_before_count_as_new() {
        let before = ErrorRegisters { correctable: Some(1), lanes: Some(0), ..ErrorRegisters::default() };
        let after = ErrorRegisters { correctable: Some(0x41), lanes: Some(4), ..before };
        assert_eq!(named(&after, &before), ["bad TLP", "lane 2 error"]);
        assert_eq!(named(&before, &ErrorRegisters::default()), ["receiver error"]);
        assert!(named(&after, &after).is_empty());
    }
}
