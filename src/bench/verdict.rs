//! Meaning of the figures for a GPU runtime: compares them with published ones.

use asm2464::firmware::BridgeState;
use asm2464_host::bridge::BusSpeed;

use super::report::{BenchVerdict, Outcome, Row};

/// One verdict for each path that was run and has a published figure, in the order of the rows.
pub fn judge(rows: &[Row], firmware: BridgeState, speed: BusSpeed) -> Vec<BenchVerdict> {
    let mut verdicts: Vec<BenchVerdict> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.outcome, Outcome::NotRun { .. })) {
        let Some(published) = row.path.published(firmware, speed) else { continue };
        let median = row.figures().map(|figures| figures.mb_per_s.median);
        let index = verdicts.iter().position(|verdict| verdict.path == row.path).unwrap_or_else(|| {
            let (needed_mb_per_s, source) = (published.mb_per_s, published.source.to_owned());
            verdicts.push(BenchVerdict { path: row.path, mb_per_s: None, needed_mb_per_s, meets: false, source });
            verdicts.len() - 1
        });
        let verdict = &mut verdicts[index];
        if median > verdict.mb_per_s {
            verdict.mb_per_s = median;
            verdict.meets = median.is_some_and(|median| median >= verdict.needed_mb_per_s);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::path::Path;
    use crate::bench::report::{Figures, Spread};

    fn row(path: Path, mb_per_s: f64) -> Row {
        let spread = Spread { median: mb_per_s, min: mb_per_s, max: mb_per_s };
        let figures = Figures { mb_per_s: spread, ..Figures::default() };
        Row { path, size: path.max_len(), depth: 1, outcome: Outcome::Measured(figures.into()) }
    }

    #[test]
    fn a_path_is_judged_by_its_best_row_wherever_that_stands() {
        for rates in [[2.0, 0.5, 0.7], [0.5, 2.0, 0.7], [0.5, 0.7, 2.0]] {
            let rows = rates.map(|rate| row(Path::E4Stock, rate));
            let verdicts = judge(&rows, BridgeState::Vendor, BusSpeed::Super);
            assert_eq!((verdicts[0].mb_per_s, verdicts[0].meets), (Some(2.0), true), "{rates:?}");
            let enough = [row(Path::E4Stock, verdicts[0].needed_mb_per_s)];
            assert!(judge(&enough, BridgeState::Vendor, BusSpeed::Super)[0].meets, "the published figure itself");
        }
    }

    #[test]
    fn each_firmware_is_held_against_its_own_figures() {
        let rows = [row(Path::E4Stock, 2.0), row(Path::F0Write, 3.5), row(Path::F0Read, 1.9), row(Path::F2Out, 400.0)];
        let judged = |firmware, speed| {
            let verdicts = judge(&rows, firmware, speed).into_iter();
            verdicts.map(|verdict| (verdict.path, verdict.meets)).collect::<Vec<_>>()
        };
        assert_eq!(judged(BridgeState::Vendor, BusSpeed::Super), [(Path::E4Stock, true)]);
        let streams = [(Path::F0Write, false), (Path::F0Read, true)];
        let open = |speed| judged(BridgeState::OpenFirmware, speed);
        assert_eq!(open(BusSpeed::SuperPlus), [&streams[..], &[(Path::F2Out, false)]].concat());
        assert_eq!(open(BusSpeed::Super), [&streams[..], &[(Path::F2Out, true)]].concat());
        assert_eq!(open(BusSpeed::High), streams, "no figure is published for F2 at 480 Mbit/s");
    }
}
