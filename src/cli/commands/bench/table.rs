//! The bench report as text: a table and a bar chart.

use std::collections::BTreeSet;

use crate::bench::comparison::RowChange;
use crate::bench::{BenchReport, BenchUnit, DataPath, Integrity, Outcome, Point, Row, Skip};
use crate::unit::facts::SLOW_GOVERNOR;
use asm2464::escape::Escape as _;
use comfy_table::CellAlignment;
use owo_colors::OwoColorize as _;

use crate::cli::words::{print, table, terminal};

/// Width of the chart's longest bar, in columns.
const BAR_WIDTH: usize = 40;
/// Width of lines of text, in columns.
const WIDTH: usize = 80;
/// Block characters from empty to full, in eighths of a column.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Prints the whole report. `sweep`: every size was measured at every depth, so only a summary fits.
pub fn show(report: &BenchReport, changes: Option<&[RowChange]>, sweep: bool) {
    unit_lines(&report.unit);
    if let Some(integrity) = &report.integrity {
        integrity_lines(integrity);
    }
    let rows = &report.rows;
    if rows.iter().any(|row| row.figures().is_some()) {
        let width = table::width();
        outln!("");
        print::out(if sweep { swept(rows, width) } else { measured(rows, width) });
        outln!("");
        let bars: Vec<&Row> = if sweep {
            DataPath::ALL.iter().filter_map(|path| report.best_row(*path)).collect()
        } else {
            rows.iter().collect()
        };
        print::out(chart(&bars, width));
    }
    outln!("");
    change_lines(changes.unwrap_or_default(), sweep);
    rows_without_figures(rows);
    verdict_lines(report);
    if let Some(line) = read_against_e4(report) {
        wrapped("  ", 4, &line);
    }
}

/// Returns the line that compares READ(16) with E4, or says why READ(16) can't be measured and what would help. Open
/// firmware has no READ(16): the line has F2 and E4. `None` if the plan has neither pair.
pub(super) fn read_against_e4(report: &BenchReport) -> Option<String> {
    let row = |path| report.rows.iter().find(|row| row.point.path == path);
    let best = |path| report.best(path);
    let shown = |row: &Row| match best(row.point.path) {
        Some(mb_per_s) => format!("{} MB/s", figure(mb_per_s)),
        None => row.outcome.to_string(),
    };
    let e4 = row(DataPath::E4Stock)?;
    let Some(read) = row(DataPath::Read16) else {
        let f2 = row(DataPath::F2Out)?;
        return Some(format!("to the dock by F2: {}; from it by E4: {}", shown(f2), shown(e4)));
    };
    let line = match (best(DataPath::Read16), best(DataPath::E4Stock), &read.outcome) {
        (Some(read), Some(e4), _) => {
            format!("{} MB/s against {} MB/s, ×{}", figure(read), figure(e4), figure(read / e4))
        }
        (.., Outcome::NotRun { reason: Skip::NoCompleter }) => format!(
            "not measured, because nothing completes a READ(16): the patch read16-sram would, or an SSD behind the dock; \
             E4: {}",
            shown(e4)
        ),
        (.., outcome) => format!("READ(16): {outcome}; E4: {}", shown(e4)),
    };
    Some(format!("READ(16) against E4: {line}"))
}

/// Prints the unit and what is behind it.
pub(super) fn unit_lines(unit: &BenchUnit) {
    let serial = if unit.serial.is_empty() { "none" } else { &unit.serial };
    outln!("{} {} (serial {}), {}", unit.device.shown().bold(), unit.usb_id.shown(), serial.shown(), unit.transport);
    wrapped("  behind it: ", 4, &unit.behind.shown().to_string());
    if unit.is_virtual {
        let note = "This is a virtual unit: the figures measure this machine, not a dock.";
        outln!("{}", note.yellow());
    }
    if let Some(note) = governor_note(unit) {
        outln!("{}", note.yellow());
    }
}

/// Returns the note on the CPU of the dock's host, if its governor is slow.
fn governor_note(unit: &BenchUnit) -> Option<String> {
    if !unit.cpu_governors.iter().any(|governor| governor == SLOW_GOVERNOR) {
        return None;
    }
    Some(format!("The CPU's governor is {SLOW_GOVERNOR}, which makes round trips longer."))
}

/// Prints words on lines of up to 80 columns, or as many as the terminal has. All but the first begin in this column.
pub(super) fn wrapped(first: &str, indent: usize, text: &str) {
    print::out(folded(first, indent, text, table::width().min(WIDTH)));
}

fn folded(first: &str, indent: usize, text: &str, width: usize) -> Vec<String> {
    let mut folded = String::new();
    // A line break in the text came from outside.
    terminal::fold_line(&format!("{first}{}", text.shown()), width, indent, &mut folded);
    folded.lines().map(str::to_owned).collect()
}

/// Prints what changed since the baseline; after a sweep only what is not noise.
fn change_lines(changes: &[RowChange], sweep: bool) {
    let (left_out, compared): (Vec<&RowChange>, Vec<&RowChange>) =
        changes.iter().partition(|change| change.is_left_out);
    for change in compared.iter().filter(|change| !sweep || !change.within_spread) {
        let mark = if change.is_worse { "✗".red().to_string() } else { " ".to_owned() };
        outln!("{mark} {:<24} {change} against the baseline", change.point.to_string());
    }
    let within = compared.iter().filter(|change| sweep && change.within_spread).count();
    if within > 0 {
        outln!("  {within} rows differ from the baseline within spread");
    }
    match &left_out[..] {
        [] => {}
        [only] => outln!("  {:<24} {only}", only.point.to_string()),
        more => outln!("  {} of the baseline's rows were not measured in this run", more.len()),
    }
}

fn integrity_lines(integrity: &Integrity) {
    for (check, outcome) in integrity.outcomes() {
        let words = match outcome {
            Outcome::Same => outcome.green().to_string(),
            Outcome::NoAnswer { .. } | Outcome::Refused { .. } => outcome.yellow().to_string(),
            _ => outcome.red().to_string(),
        };
        outln!("  {:<35} {words}", check.to_string());
    }
}

/// Returns the measured rows as a table, whose columns all fit 80.
fn measured(rows: &[Row], width: usize) -> Vec<String> {
    let header = ["path", "bytes", "depth", "MB/s", "from–to", "per s", "p50 µs", "p99 µs", "p99.9"];
    let mut lines = Vec::new();
    for (row, figures) in rows.iter().filter_map(|row| Some((row, row.figures()?))) {
        let (mb, rate) = (figures.mb_per_s, figures.commands_per_s);
        lines.push(vec![
            row.point.path.to_string(),
            row.point.size.to_string(),
            row.point.depth.to_string(),
            figure(mb.median),
            format!("{}–{}", figure(mb.min), figure(mb.max)),
            format!("{:.0}", rate.median),
            figure(figures.p50_us),
            figure(figures.p99_us),
            figure(figures.p99_9_us),
        ]);
    }
    figures_table(header.map(str::to_owned).into(), lines, width)
}

/// Returns the median of each size and depth: a line for each path and size, a column for each depth.
fn swept(rows: &[Row], width: usize) -> Vec<String> {
    let measured = || rows.iter().filter_map(|row| Some((row, row.figures()?.mb_per_s.median)));
    let depths: BTreeSet<usize> = measured().map(|(row, _)| row.point.depth).collect();
    let mut lines: Vec<(DataPath, usize)> = measured().map(|(row, _)| (row.point.path, row.point.size)).collect();
    lines.dedup();
    let mut header = vec!["MB/s at depth".to_owned(), "bytes".to_owned()];
    header.extend(depths.iter().map(usize::to_string));
    let mut cells_of = Vec::new();
    for (path, size) in lines {
        let mut cells = vec![path.to_string(), size.to_string()];
        for &depth in &depths {
            let found = measured().find(|(row, _)| row.point == Point { path, size, depth });
            cells.push(found.map_or_else(String::new, |(_, median)| figure(median)));
        }
        cells_of.push(cells);
    }
    figures_table(header, cells_of, width)
}

/// Formats figures as a table: the first column holds text, and all others are aligned to the right. Where not all columns
/// fit, leaves out the last ones and names them below: a broken figure can't be read.
pub(super) fn figures_table(mut header: Vec<String>, mut rows: Vec<Vec<String>>, width: usize) -> Vec<String> {
    let wanted = |header: &[String], rows: &[Vec<String>]| {
        let widest = |column: usize| {
            let cells = rows.iter().map(|row| &row[column]).chain([&header[column]]);
            cells.map(|cell| console::measure_text_width(cell)).max().unwrap_or_default() + 1
        };
        (0..header.len()).map(widest).sum::<usize>()
    };
    let mut left_out = Vec::new();
    while header.len() > 2 && wanted(&header, &rows) > width {
        left_out.extend(header.pop());
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    let mut table = table::of_width(width);
    table.set_header(header).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut lines: Vec<String> = table.trim_fmt().lines().map(str::to_owned).collect();
    if !left_out.is_empty() {
        left_out.reverse();
        lines.push(format!("  for a wider terminal, and --json: {}", left_out.join(", ")));
    }
    lines
}

/// Prints the rows without figures. Rows of one path that ended the same way share a line.
fn rows_without_figures(rows: &[Row]) {
    let mut listed: Vec<(DataPath, &Outcome)> = Vec::new();
    for row in rows.iter().filter(|row| row.figures().is_none()) {
        if listed.contains(&(row.point.path, &row.outcome)) {
            continue;
        }
        listed.push((row.point.path, &row.outcome));
        match &row.outcome {
            Outcome::NotRun { reason } => {
                let advice = advice(*reason).map(|advice| format!("; {advice}")).unwrap_or_default();
                wrapped(&format!("  – {}: ", row.point.path), 4, &format!("not run: {reason}{advice}"));
            }
            outcome => {
                wrapped(&format!("  {} {}: ", "✗".red(), row.point), 4, &outcome.to_string());
            }
        }
    }
}

/// What you can do so that a skipped path runs.
const fn advice(skip: Skip) -> Option<&'static str> {
    match skip {
        Skip::BulkOnly => Some("over UAS it does: `--transport uas`"),
        Skip::HighSpeed => Some("try a SuperSpeed port"),
        Skip::NoAddress => Some("add a path that writes, such as `--path tlp-write`, and it gets one"),
        Skip::NoBusNumbers => Some("add a path that writes, such as `--path tlp-write`, and they get numbers"),
        _ => None,
    }
}

/// Formats a value with three significant digits.
pub(super) fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.1 => format!("{value:.3}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.4}"),
    }
}

/// Draws a bar for each row on a logarithmic scale: the slowest path moves a ten-thousandth of the fastest.
fn chart(rows: &[&Row], width: usize) -> Vec<String> {
    let medians = || rows.iter().filter_map(|row| Some((row, row.figures()?.mb_per_s.median)));
    let (least, most) = medians()
        .filter(|(_, median)| *median > 0.0)
        .fold((f64::MAX, f64::MIN), |(least, most), (_, median)| (least.min(median), most.max(median)));
    if least > most {
        return Vec::new();
    }
    let decade = least.log10().floor();
    // A line has as much beside its bar.
    let longest = width.saturating_sub(WIDTH - BAR_WIDTH).min(BAR_WIDTH) as f64;
    let columns = (longest / (most.log10() - decade).max(1.0)).floor().min(longest / 2.0);
    let line = |(row, median): (&&Row, f64)| {
        let eighths = ((median.log10() - decade) * columns * 8.0).round().max(0.0) as usize;
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(EIGHTHS[eighths % 8]);
        }
        let point = row.point.to_string();
        format!("  {point:<24} {}{} {} MB/s", bar.cyan(), if bar.is_empty() { "▏" } else { "" }, figure(median))
    };
    let scale = format!("  bars from {} MB/s, ×10 each {columns} columns", 10_f64.powf(decade));
    std::iter::once(scale).chain(medians().map(line)).collect()
}

fn verdict_lines(report: &BenchReport) {
    for verdict in &report.verdict {
        let needed = figure(verdict.needed_mb_per_s);
        let line = match verdict.mb_per_s {
            Some(found) if verdict.meets => format!("{}: {} MB/s, at least {needed}", verdict.path, figure(found)),
            Some(found) => format!("{}: {} MB/s, below {needed}", verdict.path, figure(found)),
            None => format!("{}: no figure, {needed} MB/s expected", verdict.path),
        };
        let mark = if verdict.meets { "✓".green().to_string() } else { "✗".red().to_string() };
        outln!("  {mark} {line}");
    }
    let mut sources: Vec<&str> = report.verdict.iter().map(|verdict| verdict.source.as_str()).collect();
    sources.dedup();
    if !sources.is_empty() {
        wrapped("  ", 4, &format!("published figures: {}", sources.join("; ")));
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::{Figures, Spread};

    use super::*;

    #[test]
    fn a_slow_governor_is_noted_and_no_other() {
        let note = |governors: &[&str]| {
            let cpu_governors = governors.iter().map(|governor| (*governor).to_owned()).collect();
            governor_note(&BenchUnit { cpu_governors, ..BenchUnit::default() })
        };
        assert!(note(&["performance", "powersave"]).is_some_and(|note| note.contains("powersave")));
        assert_eq!((note(&["schedutil"]), note(&[])), (None, None));
    }

    #[test]
    fn words_from_outside_make_no_line_and_an_option_in_backticks_is_not_broken() {
        assert_eq!(folded("  read16: ", 4, "a\n    asmpatch flash f", 80), ["  read16: a\\n    asmpatch flash f"]);
        let lines = folded("  read16: ", 4, "over UAS it does: `--transport uas`", 40);
        assert_eq!(lines, ["  read16: over UAS it does:", "    `--transport uas`"]);
    }

    #[test]
    fn the_widest_figures_of_every_path_fit_80_columns() {
        let spread = Spread { median: 0.1234, min: 0.1234, max: 12_345.0 };
        let figures = Figures {
            mb_per_s: spread,
            commands_per_s: Spread { median: 1_234_567.0, ..spread },
            p50_us: 123_456.0,
            p99_us: 123_456.0,
            p99_9_us: 123_456.0,
            max_us: 0.0,
            commands: 1,
            mismatches: 0,
            compared: true,
        };
        let row = |path: &DataPath| Row {
            point: Point { path: *path, size: 524_288, depth: 32 },
            outcome: Outcome::Measured(figures.clone().into()),
        };
        let rows: Vec<Row> = DataPath::ALL.iter().map(row).collect();
        let fits =
            |lines: &[String], width| lines.iter().all(|line| console::strip_ansi_codes(line).chars().count() <= width);
        let text = measured(&rows, 80);
        assert!(fits(&text, 80), "{text:#?}");
        // No line is broken.
        assert_eq!(text.len(), 1 + rows.len(), "{text:#?}");
        let lines = chart(&rows.iter().collect::<Vec<_>>(), 80);
        assert!(fits(&lines, 80), "{lines:#?}");
        // A narrow terminal has fewer columns and shorter bars, and no broken figure.
        let text = measured(&rows, 60);
        assert!(fits(&text, 60) && fits(&chart(&rows.iter().collect::<Vec<_>>(), 60), 60), "{text:#?}");
        assert_eq!(text.len(), 1 + rows.len() + 1, "{text:#?}");
        assert!(text[0].contains("MB/s") && text.last().unwrap().ends_with("p99.9"), "{text:#?}");
        let depths = [1, 2, 4, 8, 16, 31];
        let at = |row: &Row, depth| Row { point: Point { depth, ..row.point }, ..row.clone() };
        let sweep: Vec<Row> = rows.iter().flat_map(|row| depths.map(|depth| at(row, depth))).collect();
        let text = swept(&sweep, 80);
        assert!(fits(&text, 80) && fits(&swept(&sweep, 60), 60), "{text:#?}");
        assert_eq!(text.len(), 1 + rows.len(), "a line for each path and size: {text:#?}");
    }

    #[test]
    fn every_row_that_moved_bytes_has_a_bar_and_a_faster_row_a_longer_one() {
        let spread = |median| Spread { median, min: median, max: median };
        let row = |median| Row {
            point: Point { path: DataPath::E4Stock, size: 255, depth: 1 },
            outcome: Outcome::Measured(Figures { mb_per_s: spread(median), ..Figures::default() }.into()),
        };
        let rows = [0.01, 0.013, 0.5, 3.0, 812.0].map(row);
        let lines = chart(&rows.iter().collect::<Vec<_>>(), 80);
        let bar = |line: &String| line.chars().filter(|char| *char == '█' || EIGHTHS[1..].contains(char)).count();
        let bars: Vec<usize> = lines[1..].iter().map(bar).collect();
        assert!(bars.iter().all(|bar| *bar > 0) && bars.is_sorted(), "{lines:#?}");
    }
}
