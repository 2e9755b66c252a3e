//! The report for people: a table and a bar chart.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;

use crate::bench::baseline::Change;
use crate::bench::{Integrity, Limit, Outcome, Path, ROUND_TRIP_US, Report, Row};
use crate::escape::Escape as _;

/// Columns that the longest bar of the chart takes.
const BAR_WIDTH: usize = 40;
/// Eighths of a column, from empty to full.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// The whole text, with colours as ANSI sequences: `anstream` takes them out where they do not belong.
pub fn render(report: &Report, changes: Option<&[Change]>) -> String {
    let mut text = String::new();
    let unit = &report.unit;
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "{} {} (serial {}), {}, behind it: {}",
        unit.device.shown().bold(),
        unit.usb_id.shown(),
        if unit.serial.is_empty() { "none" } else { &unit.serial }.shown(),
        unit.transport,
        unit.behind.shown()
    );
    if unit.is_virtual {
        let _ =
            writeln!(text, "{}", "This is a virtual bridge: the figures measure this machine, not a bridge.".yellow());
    }
    if let Some(integrity) = &report.integrity {
        integrity_lines(&mut text, integrity);
    }
    let _ = writeln!(text, "\n{}", table(&report.rows, changes));
    text.push('\n');
    chart(&mut text, &report.rows);
    text.push('\n');
    prediction_lines(&mut text, &report.rows);
    verdict_lines(&mut text, report);
    text
}

fn integrity_lines(text: &mut String, integrity: &Integrity) {
    let steps = [
        ("pattern written through WRITE(16)", &integrity.write16),
        ("pattern written through F2", &integrity.f2),
        ("read back through E4 at 0xF000", &integrity.e4),
        ("written to a GPU's memory, and back", &integrity.memory),
    ];
    for (step, outcome) in steps {
        if let Some(outcome) = outcome {
            let words = words(outcome);
            let words = match outcome {
                Outcome::Same => words.green().to_string(),
                Outcome::NoAnswer { .. } | Outcome::Refused { .. } => words.yellow().to_string(),
                _ => words.red().to_string(),
            };
            let _ = writeln!(text, "  {step:<35} {words}");
        }
    }
}

/// An outcome in words.
pub fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Same => "the same, every byte".to_owned(),
        Outcome::Differs { offset, expected, found } => {
            format!("differs first at {offset:#x}: expected {expected:02x}, found {found:02x}")
        }
        Outcome::Short { expected, found } => format!("short: {found} of {expected} bytes, with good status"),
        Outcome::NoAnswer { timeout_s } => format!("no answer in {timeout_s} s; the unit was recovered"),
        Outcome::NotRun { reason } => format!("not run: {reason}"),
        Outcome::Refused { reason } => format!("refused: {reason}"),
        Outcome::Measured(_) => "measured".to_owned(),
    }
}

fn table(rows: &[Row], changes: Option<&[Change]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["path", "bytes", "depth", "MB/s", "range", "commands/s", "p50 µs", "p99 µs", "p99.9 µs"];
    if changes.is_some() {
        header.push("baseline");
    }
    table.set_header(header);
    for row in rows {
        let mut cells = vec![row.path.to_string(), row.size.to_string(), row.depth.to_string()];
        if let Some(figures) = row.figures() {
            let (mb, rate) = (figures.mb_per_s, figures.commands_per_s);
            cells.push(figure(mb.median));
            cells.push(format!("{}–{}", figure(mb.min), figure(mb.max)));
            cells.push(format!("{:.0}", rate.median));
            cells.extend([figures.p50_us, figures.p99_us, figures.p99_9_us].map(figure));
        } else {
            cells.push("–".to_owned());
            cells.push(words(&row.outcome));
            cells.extend(std::iter::repeat_n(String::new(), 4));
        }
        if let Some(changes) = changes {
            let same = |change: &&Change| (change.path, change.size, change.depth) == (row.path, row.size, row.depth);
            cells.push(changes.iter().find(same).map_or_else(|| "–".to_owned(), ToString::to_string));
        }
        let is_measured = row.figures().is_some();
        table.add_row(cells.into_iter().enumerate().map(|(column, text)| {
            let alignment =
                if column == 0 || (column == 4 && !is_measured) { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(alignment)
        }));
    }
    table
}

/// Three digits that count.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.1 => format!("{value:.3}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.4}"),
    }
}

fn chart(text: &mut String, rows: &[Row]) {
    let medians = || rows.iter().filter_map(|row| Some((row, row.figures()?.mb_per_s.median)));
    let most = medians().map(|(_, median)| median).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    for (row, median) in medians() {
        let eighths = (median / most * (BAR_WIDTH * 8) as f64).round() as usize;
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(EIGHTHS[eighths % 8]);
        }
        let name = format!("{} {} ×{}", row.path, row.size, row.depth);
        let _ = writeln!(text, "  {name:<22} {} {} MB/s", bar.cyan(), figure(median));
    }
}

/// What silicon should reach: of each path and size the row with the most in flight, which waits least for the host.
fn prediction_lines(text: &mut String, rows: &[Row]) {
    let predicted = |row: &Row| row.figures().and_then(|figures| figures.predicted);
    let Some(clock) = rows.iter().find_map(predicted).map(|prediction| prediction.clock_mhz) else { return };
    let _ =
        writeln!(text, "  predicted for silicon at {clock} MHz, PCIe round trips of {ROUND_TRIP_US} µs, 10 Gbit/s:");
    for (index, row) in rows.iter().enumerate() {
        let is_last = rows[index + 1..].iter().all(|later| (later.path, later.size) != (row.path, row.size));
        let Some(prediction) = predicted(row).filter(|_| is_last) else { continue };
        let limit = match prediction.limit() {
            Limit::Cpu => "CPU",
            Limit::Pcie => "PCIe",
            Limit::Wire => "wire",
        };
        let most = if prediction.dma_bytes > 0.0 { "≤ " } else { "" };
        let name = format!("{} {}", row.path.name(), row.size);
        let _ = writeln!(
            text,
            "    {name:<17} {most:>2}{:>6} MB/s; CPU {:>6} µs, PCIe {:>6}, wire {:>6}: {limit}",
            figure(prediction.mb_per_s),
            figure(prediction.cpu_us),
            figure(prediction.pcie_us),
            figure(prediction.wire_us),
        );
    }
    if rows.iter().filter_map(predicted).any(|prediction| prediction.dma_bytes > 0.0) {
        let _ = writeln!(text, "    ≤: nobody knows how fast the DMA is; it is taken to keep up");
    }
    text.push('\n');
}

fn verdict_lines(text: &mut String, report: &Report) {
    for verdict in &report.verdict {
        let needed = figure(verdict.needed_mb_per_s);
        let line = match verdict.mb_per_s {
            Some(found) if verdict.meets => format!("{}: {} MB/s, at least {needed}", verdict.path, figure(found)),
            Some(found) => format!("{}: {} MB/s, below {needed}", verdict.path, figure(found)),
            None => format!("{}: no figure, {needed} MB/s expected", verdict.path),
        };
        let mark = if verdict.meets { "✓".green().to_string() } else { "✗".red().to_string() };
        let _ = writeln!(text, "  {mark} {line}");
    }
    let mut left_out: Vec<(Path, &str)> = Vec::new();
    for row in &report.rows {
        if let Outcome::NotRun { reason } = &row.outcome
            && left_out.iter().all(|(path, _)| *path != row.path)
        {
            left_out.push((row.path, reason));
        }
    }
    for (path, reason) in left_out {
        let _ = writeln!(text, "  – {path}: not run: {reason}");
    }
    let mut sources: Vec<&str> = report.verdict.iter().map(|verdict| verdict.source.as_str()).collect();
    sources.dedup();
    if !sources.is_empty() {
        let _ = writeln!(text, "  held against what a GPU runtime sees today: {}", sources.join("; "));
    }
}
