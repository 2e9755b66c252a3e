//! The bench report as text: a table and a bar chart.

use asm2464::escape::Escape as _;
use asmpatch_core::bench::baseline::Change;
use asmpatch_core::bench::{BenchReport, Integrity, Outcome, Path, ROUND_TRIP_US, Row};
use comfy_table::{CellAlignment, Table};
use owo_colors::OwoColorize as _;

use crate::cli::table;

/// Width of the chart's longest bar, in columns.
const BAR_WIDTH: usize = 40;
/// Block characters from empty to full, in eighths of a column.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Prints the whole report.
pub fn show(report: &BenchReport, changes: Option<&[Change]>) {
    let unit = &report.unit;
    outln!(
        "{} {} (serial {}), {}, behind it: {}",
        unit.device.shown().bold(),
        unit.usb_id.shown(),
        if unit.serial.is_empty() { "none" } else { &unit.serial }.shown(),
        unit.transport,
        unit.behind.shown()
    );
    if unit.is_virtual {
        outln!("{}", "This is a virtual bridge: the figures measure this machine, not a bridge.".yellow());
    }
    if let Some(integrity) = &report.integrity {
        integrity_lines(integrity);
    }
    if report.rows.iter().any(|row| row.figures().is_some()) {
        outln!("\n{}\n", measured(&report.rows).trim_fmt());
        chart(&report.rows).iter().for_each(|line| outln!("{line}"));
    }
    out!("\n");
    for change in changes.unwrap_or_default() {
        outln!("  {:<24} {change} against the baseline", name(change.path, change.size, change.depth));
    }
    rows_without_figures(&report.rows);
    prediction_lines(report);
    verdict_lines(report);
}

fn integrity_lines(integrity: &Integrity) {
    let steps = [
        ("pattern written through WRITE(16)", &integrity.write16),
        ("pattern written through F2", &integrity.f2),
        ("read back through E4 at 0xF000", &integrity.e4),
        ("written to a GPU's memory, and back", &integrity.memory),
    ];
    for (step, outcome) in steps {
        if let Some(outcome) = outcome {
            let words = match outcome {
                Outcome::Same => outcome.green().to_string(),
                Outcome::NoAnswer { .. } | Outcome::Refused { .. } => outcome.yellow().to_string(),
                _ => outcome.red().to_string(),
            };
            outln!("  {step:<35} {words}");
        }
    }
}

/// Returns the measured rows as a table of 80 columns.
fn measured(rows: &[Row]) -> Table {
    let mut table = table::new();
    table.set_header(["path", "bytes", "depth", "MB/s", "from–to", "per s", "p50 µs", "p99 µs", "p99.9"]);
    for (row, figures) in rows.iter().filter_map(|row| Some((row, row.figures()?))) {
        let (mb, rate) = (figures.mb_per_s, figures.commands_per_s);
        let [p50, p99, p99_9] = [figures.p50_us, figures.p99_us, figures.p99_9_us].map(figure);
        table.add_row([
            row.path.to_string(),
            row.size.to_string(),
            row.depth.to_string(),
            figure(mb.median),
            format!("{}–{}", figure(mb.min), figure(mb.max)),
            format!("{:.0}", rate.median),
            p50,
            p99,
            p99_9,
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints the rows without figures. Rows of one path that ended the same way share a line.
fn rows_without_figures(rows: &[Row]) {
    let mut told: Vec<(Path, &Outcome)> = Vec::new();
    for row in rows.iter().filter(|row| row.figures().is_none()) {
        if told.contains(&(row.path, &row.outcome)) {
            continue;
        }
        told.push((row.path, &row.outcome));
        match &row.outcome {
            outcome @ Outcome::NotRun { .. } => outln!("  – {}: {outcome}", row.path),
            outcome => outln!("  {} {}: {outcome}", "✗".red(), name(row.path, row.size, row.depth)),
        }
    }
}

/// Returns a row's name in the chart.
fn name(path: Path, size: usize, depth: usize) -> String {
    format!("{path} {size} ×{depth}")
}

/// Formats a value with three significant digits.
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

fn chart(rows: &[Row]) -> Vec<String> {
    let medians = || rows.iter().filter_map(|row| Some((row, row.figures()?.mb_per_s.median)));
    let most = medians().map(|(_, median)| median).fold(0.0, f64::max);
    let line = |(row, median): (&Row, f64)| {
        let eighths = (median / most * (BAR_WIDTH * 8) as f64).round() as usize;
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(EIGHTHS[eighths % 8]);
        }
        format!("  {:<24} {} {} MB/s", name(row.path, row.size, row.depth), bar.cyan(), figure(median))
    };
    medians().filter(|_| most > 0.0).map(line).collect()
}

/// Prints what silicon should reach: for each path and size the row with the most commands in flight, which waits least
/// for the host.
fn prediction_lines(report: &BenchReport) {
    let rows = &report.rows;
    let predicted = |row: &Row| row.figures().and_then(|figures| figures.predicted);
    let Some(clock) = rows.iter().find_map(predicted).map(|prediction| prediction.clock_mhz) else { return };
    outln!("  predicted for silicon at {clock} MHz, PCIe round trips of {ROUND_TRIP_US} µs, 10 Gbit/s:");
    for (index, row) in rows.iter().enumerate() {
        let is_last = rows[index + 1..].iter().all(|later| (later.path, later.size) != (row.path, row.size));
        let Some(prediction) = predicted(row).filter(|_| is_last) else { continue };
        let most = if prediction.dma_bytes > 0.0 { "≤ " } else { "" };
        let name = format!("{} {}", row.path.name(), row.size);
        outln!(
            "    {name:<17} {most:>2}{:>6} MB/s; CPU {:>6} µs, PCIe {:>6}, wire {:>6}: {}",
            figure(prediction.mb_per_s),
            figure(prediction.cpu_us),
            figure(prediction.pcie_us),
            figure(prediction.wire_us),
            prediction.limit()
        );
    }
    if rows.iter().filter_map(predicted).any(|prediction| prediction.dma_bytes > 0.0) {
        outln!("    ≤: nobody knows how fast the DMA is; it is taken to keep up");
    }
    gain_lines(report);
    out!("\n");
}

/// Prints what each patch, and each path that needs no patch, gains over E4 as every firmware answers it.
fn gain_lines(report: &BenchReport) {
    let best = |path| report.best(path, |figures| Some(figures.predicted?.mb_per_s));
    let Some(stock) = best(Path::E4Stock) else { return };
    let read16 = if report.read16_sram { "the patch read16-sram" } else { "a device that completes it" };
    for (path, by) in [
        (Path::E4Extended, "the patch e4-length-16"),
        (Path::Read16, read16),
        (Path::E5Dma, "a device that completes it"),
    ] {
        if let Some(found) = best(path) {
            outln!("    {path}: ×{} of {}, by {by}", figure(found / stock), Path::E4Stock);
        }
    }
    if best(Path::Write16).is_some() {
        outln!("    {}: answered at all by the patch status-0x2a12", Path::Write16);
    }
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
        outln!("  held against what a GPU runtime sees today: {}", sources.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use asmpatch_core::bench::{Figures, Spread};

    use super::*;

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
            predicted: None,
        };
        let row = |path: &Path| Row {
            path: *path,
            size: 524_288,
            depth: 32,
            outcome: Outcome::Measured(figures.clone().into()),
        };
        let rows: Vec<Row> = Path::ALL.iter().map(row).collect();
        let text = measured(&rows).trim_fmt();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // No line is broken.
        assert_eq!(text.lines().count(), 1 + rows.len(), "{text}");
        let lines = chart(&rows);
        assert!(lines.iter().all(|line| console::strip_ansi_codes(line).chars().count() <= 80), "{lines:?}");
    }
}
