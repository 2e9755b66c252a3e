//! The report as an SVG: throughput over size and over depth, with a line for each path.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bench::soak::SoakReport;
use crate::bench::{BenchReport, BenchUnit, DataPath, Row};
use asm2464::escape::Escape as _;
use asm2464::{Failure, Kind};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::table::figure;

/// Size of the image in pixels: wide enough for a README, and tall enough for both panels.
const SIZE: (u32, u32) = (960, 720);

/// Width of the names to the right of a panel, in pixels.
const NAMES_WIDTH: u32 = 110;
/// The colour of the lines from points to their names.
const LEADER: RGBColor = RGBColor(200, 200, 200);
/// Height of a name, in pixels.
const NAME_SIZE: i32 = 13;

/// A point: its position on the axis, and its throughput as minimum, median and maximum.
type PlotPoint = (f64, [f64; 3]);

/// Draws the report. Above: throughput over bytes a command at the greatest depth. Below: throughput over commands in
/// flight at the greatest size. Bars show the range over the repetitions.
///
/// # Errors
/// Fails if no row was measured, or if the drawing library does.
pub fn draw(report: &BenchReport) -> Result<String, Failure> {
    let over_size = series(report, |row| (row.point.size, row.point.depth));
    let over_depth = series(report, |row| (row.point.depth, row.point.size));
    if over_size.is_empty() {
        let label = Kind::CheckFailed.code("asmpatch::bench::nothing_to_draw");
        return Err(Failure::new(label, "no path was measured, so there is nothing to draw"));
    }
    picture(&report.unit, "bench", SIZE.1, |root| {
        let (upper, lower) = root.split_vertically(SIZE.1 / 2 - 16);
        panel(&upper, "bytes a command", "greatest depth", &over_size)?;
        panel(&lower, "commands in flight", "greatest size", &over_depth)
    })
}

/// Draws a soak: throughput over time, and the errors.
///
/// # Errors
/// Fails if the drawing library does.
pub fn draw_soak(report: &SoakReport) -> Result<String, Failure> {
    picture(&report.unit, "bench --soak", SIZE.1 / 2, |root| {
        let slices = &report.over_time;
        let most = slices.iter().map(|slice| slice.mb_per_s).fold(1e-3, f64::max) * 1.1;
        let (end, unit) = match report.elapsed_s {
            ..120.0 => (1.0, "seconds"),
            ..7200.0 => (60.0, "minutes"),
            _ => (3600.0, "hours"),
        };
        let errors = format!("{} errors, {} an hour", report.error_count, figure(report.errors_per_hour));
        let mut chart = ChartBuilder::on(root)
            .caption(format!("throughput over time; {errors}, in red"), ("sans-serif", 14))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..report.elapsed_s / end, 0.0..most)?;
        chart.configure_mesh().x_desc(unit).y_desc("MB/s").light_line_style(WHITE).draw()?;
        for slice in slices.iter().filter(|slice| slice.errors > 0) {
            let at = slice.at_s / end;
            chart.draw_series(LineSeries::new([(at, 0.0), (at, most)], RED.mix(0.4)))?;
            let style = TextStyle::from(("sans-serif", 11)).color(&RED);
            chart.draw_series([Text::new(slice.errors.to_string(), (at, most), style)])?;
        }
        let style = colour(DataPath::Read16).stroke_width(2);
        // Each slice as a step: its throughput is that of the whole slice.
        let ends = slices.iter().skip(1).map(|slice| slice.at_s).chain([report.elapsed_s]);
        let steps =
            slices.iter().zip(ends).flat_map(|(slice, to)| [slice.at_s, to].map(|at| (at / end, slice.mb_per_s)));
        chart.draw_series(LineSeries::new(steps, style))?;
        Ok(())
    })
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws a picture of this height below a title that names the unit.
fn picture(
    unit: &BenchUnit,
    what: &str,
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn,
) -> Result<String, Failure> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let kind = if unit.is_virtual { " (a virtual unit: the figures measure the host)" } else { "" };
        let title = format!("asmpatch {what}: {} over {}{kind}", unit.device.shown(), unit.transport);
        let root = root.titled(&title, ("sans-serif", 18))?;
        draw(&root)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| {
        let label = Kind::BadInput.code("asmpatch::bench::svg");
        Failure::new(label, format!("the chart could not be drawn: {error}"))
    })?;
    Ok(svg)
}

/// Returns each path's points: throughput over size or depth, from the rows at the path's greatest value of the other.
/// `split` returns a row's size and depth, the one on the axis first.
fn series(report: &BenchReport, split: impl Fn(&Row) -> (usize, usize)) -> BTreeMap<DataPath, Vec<PlotPoint>> {
    let measured = || report.rows.iter().filter_map(|row| Some((row.point.path, split(row), row.figures()?.mb_per_s)));
    let mut lines: BTreeMap<DataPath, Vec<PlotPoint>> = BTreeMap::new();
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

fn colour(path: DataPath) -> RGBColor {
    let [red, green, blue] = path.colour();
    RGBColor(red, green, blue)
}

fn panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    x_label: &str,
    held: &str,
    lines: &BTreeMap<DataPath, Vec<PlotPoint>>,
) -> Drawn
where
    DB::ErrorType: 'static,
{
    let points = || lines.values().flatten();
    let (left, right) = points().fold((f64::MAX, f64::MIN), |(l, r), point| (l.min(point.0), r.max(point.0)));
    let least = points().map(|point| point.1[0]).fold(f64::MAX, f64::min).max(1e-4);
    let most = points().map(|point| point.1[2]).fold(1e-3, f64::max);
    // A single column still needs an axis with some width.
    let x = (left / 1.2..right.max(left * 2.0) * 1.05).log_scale().base(2.0);
    let y = decades(least, most).log_scale();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("throughput over {x_label}, at the {held} of each path"), ("sans-serif", 14))
        .margin(10)
        .margin_right(NAMES_WIDTH)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("MB/s")
        .light_line_style(WHITE)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| ((y * 1e6).round() / 1e6).to_string())
        .draw()?;
    for (path, line) in lines {
        let colour = colour(*path);
        let style = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.iter().map(|(x, y)| (*x, y[1])), style))?;
        chart.draw_series(
            line.iter()
                .map(|(x, [min, median, max])| ErrorBar::new_vertical(*x, *min, *median, *max, style.filled(), 6)),
        )?;
    }
    names(area, &chart, lines)
}

/// The whole decades around these values. plotters puts ticks only from a power of ten on, so an axis without one has
/// no ticks at all. The ends lie a little further out, so that rounding can't lose the power.
fn decades(least: f64, most: f64) -> Range<f64> {
    let low = least.log10().floor();
    let high = most.log10().ceil().max(low + 1.0);
    0.999 * 10f64.powf(low)..1.001 * 10f64.powf(high)
}

/// Writes each line's name to the right of the panel, at the height of its last point, or below the name above it.
fn names<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    chart: &ChartContext<'_, DB, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>,
    lines: &BTreeMap<DataPath, Vec<PlotPoint>>,
) -> Drawn
where
    DB::ErrorType: 'static,
{
    let plot = chart.plotting_area();
    let ((left, top), (right, bottom)) =
        (plot.get_base_pixel(), (plot.get_pixel_range().0.end, plot.get_pixel_range().1.end));
    let (origin_x, origin_y) = area.get_base_pixel();
    let mut ends: Vec<(i32, DataPath, (i32, i32))> = lines
        .iter()
        .filter_map(|(path, line)| {
            line.last().map(|(x, y)| plot.map_coordinate(&(*x, y[1]))).map(|at| (at.1, *path, at))
        })
        .collect();
    ends.sort_unstable();
    let heights = spaced(ends.iter().map(|end| end.0).collect(), top, bottom);
    for ((_, path, (x, y)), height) in ends.into_iter().zip(heights) {
        let colour = colour(path);
        let (x, y) = (x.max(left) - origin_x, y - origin_y);
        let (to, height) = (right - origin_x + 8, height - origin_y);
        // From the point to its name: thin, grey and at right angles, so that nobody takes it for a measurement.
        let bend = right - origin_x + 2;
        let leader = vec![(x + 4, y), (bend, y), (bend, height), (to, height)];
        area.draw(&PathElement::new(leader, LEADER))?;
        let style = TextStyle::from(("sans-serif", NAME_SIZE)).color(&colour).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(path.to_string(), (to + 4, height), style))?;
    }
    Ok(())
}

/// Moves heights apart, so that names there don't overprint: each at least a line below the one above it, and all
/// between `top` and `bottom`. `heights` ascend.
fn spaced(mut heights: Vec<i32>, top: i32, bottom: i32) -> Vec<i32> {
    let mut least = top;
    for height in &mut heights {
        *height = (*height).max(least);
        least = *height + NAME_SIZE + 2;
    }
    let mut most = bottom;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(most);
        most = *height - NAME_SIZE - 2;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_axis_has_ticks_however_little_its_values_differ() {
        for (least, most) in [(2.0, 2.3), (0.35, 2.3), (1.0, 1.0), (10.0, 10.0), (0.001, 0.001), (0.02, 900.0)] {
            let axis: LogCoord<f64> = decades(least, most).log_scale().into();
            let ticks = axis.key_points(11);
            assert!(ticks.len() >= 2, "{least} to {most}: {ticks:?}");
            assert!(ticks[0] <= least * 1.01 && *ticks.last().unwrap() >= most * 0.99, "{least} to {most}: {ticks:?}");
        }
    }

    #[test]
    fn names_of_lines_that_end_close_together_do_not_overprint() {
        let heights = spaced(vec![100, 101, 102, 198, 200], 0, 200);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > NAME_SIZE), "{heights:?}");
        assert_eq!((heights[0], heights[4]), (100, 200));
    }
}
