//! The report as an SVG: throughput over size, with a line for each path and depth.

use std::collections::BTreeMap;

use asm2464::escape::Escape as _;
use asmpatch_core::bench::{BenchReport, Path, Row};
use plotters::prelude::*;
use thiserror::Error;

/// Size of the image: wide enough for a README, and tall enough for both panels.
const SIZE: (u32, u32) = (960, 720);

/// Reasons the report could not be drawn.
#[derive(Debug, Error)]
pub enum SvgError {
    /// No row was measured.
    #[error("no path was measured, so there is nothing to draw")]
    Nothing,
    /// The drawing library failed.
    #[error("the chart could not be drawn: {0}")]
    Draw(String),
}

asm2464::coded!(SvgError {
    Nothing => "asmpatch::bench::nothing_to_draw",
    Draw => "asmpatch::bench::svg",
});

/// A point: its position on the axis, and its throughput as minimum, median and maximum.
type PlotPoint = (f64, [f64; 3]);

/// Draws the report. Above: throughput over bytes a command at the greatest depth. Below: throughput over commands in
/// flight at the greatest size. Bars show the range over the repetitions.
///
/// # Errors
/// [`SvgError`].
pub fn draw(report: &BenchReport) -> Result<String, SvgError> {
    let over_size = series(report, |row| (row.size, row.depth));
    let over_depth = series(report, |row| (row.depth, row.size));
    if over_size.is_empty() {
        return Err(SvgError::Nothing);
    }
    let mut svg = String::new();
    let drawn = (|| -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let kind = if report.unit.is_virtual { " (a virtual bridge: the figures measure the host)" } else { "" };
        let title = format!("asmpatch bench: {} over {}{kind}", report.unit.device.shown(), report.unit.transport);
        let root = root.titled(&title, ("sans-serif", 18))?;
        let (upper, lower) = root.split_vertically(SIZE.1 / 2 - 16);
        panel(&upper, "bytes a command", "greatest depth", &over_size)?;
        panel(&lower, "commands in flight", "greatest size", &over_depth)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| SvgError::Draw(error.to_string()))?;
    Ok(svg)
}

/// Draws throughput over a row's size or depth, for the rows at the path's greatest value of the other. `split` returns
/// both, the one on the axis first.
fn series(report: &BenchReport, split: impl Fn(&Row) -> (usize, usize)) -> BTreeMap<Path, Vec<PlotPoint>> {
    let measured = || report.rows.iter().filter_map(|row| Some((row.path, split(row), row.figures()?.mb_per_s)));
    let mut lines: BTreeMap<Path, Vec<PlotPoint>> = BTreeMap::new();
    for (path, (over, held), spread) in measured() {
        let greatest = measured().filter(|(other, ..)| *other == path).map(|(_, (_, held), _)| held).max();
        if greatest == Some(held) {
            lines.entry(path).or_default().push((over as f64, [spread.min, spread.median, spread.max]));
        }
    }
    for line in lines.values_mut() {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Colour of a path, from Okabe and Ito's palette, which people with any colour vision can distinguish. Paths that no
/// firmware has together share a colour.
const fn colour(path: Path) -> RGBColor {
    match path {
        Path::Write16 | Path::F2Out => RGBColor(0xD5, 0x5E, 0x00),
        Path::Read16 | Path::F2In => RGBColor(0x00, 0x72, 0xB2),
        Path::E4Stock => RGBColor(0x9A, 0x9A, 0x9A),
        Path::E4Extended | Path::F0Read => RGBColor(0x00, 0x9E, 0x73),
        Path::F0Write | Path::E5Dma => RGBColor(0xE6, 0x9F, 0x00),
        Path::ConfigRead => RGBColor(0xCC, 0x79, 0xA7),
        Path::TlpRead => RGBColor(0x56, 0xB4, 0xE9),
        Path::TlpWrite => RGBColor(0x00, 0x00, 0x00),
    }
}

fn panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    x_label: &str,
    held: &str,
    lines: &BTreeMap<Path, Vec<PlotPoint>>,
) -> Result<(), Box<dyn std::error::Error>>
where
    DB::ErrorType: 'static,
{
    let points = || lines.values().flatten();
    let (left, right) = points().fold((f64::MAX, f64::MIN), |(l, r), point| (l.min(point.0), r.max(point.0)));
    let least = points().map(|point| point.1[0]).fold(f64::MAX, f64::min).max(1e-4);
    let most = points().map(|point| point.1[2]).fold(1e-3, f64::max);
    // A single column still needs an axis with some width. The room on the right is for the lines' names.
    let room = ((right / left).max(2.0)).powf(0.16);
    let x = (left / 1.2..right * room).log_scale().base(2.0);
    let y = (least / 2.0..most * 2.0).log_scale();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("throughput over {x_label}, at the {held} of each path"), ("sans-serif", 14))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("MB/s")
        .light_line_style(WHITE)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if *y < 1.0 { format!("{y:.2}") } else { format!("{y:.0}") })
        .draw()?;
    for (path, line) in lines {
        let colour = colour(*path);
        let style = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.iter().map(|(x, y)| (*x, y[1])), style))?;
        let name = TextStyle::from(("sans-serif", 13)).color(&colour);
        chart.draw_series(
            line.last().map(|(x, y)| EmptyElement::at((*x, y[1])) + Text::new(path.to_string(), (8, -6), name)),
        )?;
        chart.draw_series(
            line.iter()
                .map(|(x, [min, median, max])| ErrorBar::new_vertical(*x, *min, *median, *max, style.filled(), 6)),
        )?;
    }
    Ok(())
}
