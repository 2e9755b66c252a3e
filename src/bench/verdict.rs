//! Meaning of the figures for a GPU runtime: compares them with published ones.

use asm2464::firmware::BridgeState;
use asm2464_host::bridge::BusSpeed;

use super::path::Path;
use super::report::{BenchVerdict, Outcome, Row};

/// Source of the vendor's figures.
const VENDOR_SOURCE: &str = "USBGPU.md in github.com/tinygrad/asm2464pd-firmware, \"Speed Comparison\"";
/// Source of the open firmware's figures.
const OPEN_SOURCE: &str = "README of github.com/tinygrad/asm2464pd-firmware: measured on a unit at 10 Gbit/s";
const OPEN_SOURCE_5: &str = "tinygrad pull request 17663: copies to a GPU from a phone-class host";

/// The published figure of a path in MB/s, and its source; `None` if nobody has published one.
///
/// On the vendor's firmware: about 100 for 64 KiB writes; 1 to 5 for E4 at 255 bytes, of which E4 must reach the lower
/// end. READ(16) and the longer E4 are meant to replace that slow path, so they must reach its upper end. On the open firmware: F2 both ways, by the link's speed; F0 streams, which the firmware's loop
/// limits at any speed.
const fn published(path: Path, firmware: BridgeState, speed: BusSpeed) -> Option<(f64, &'static str)> {
    match (firmware, path, speed) {
        (BridgeState::Vendor, Path::Write16, _) => Some((100.0, VENDOR_SOURCE)),
        (BridgeState::Vendor, Path::E4Stock, _) => Some((1.0, VENDOR_SOURCE)),
        (BridgeState::Vendor, Path::E4Extended | Path::Read16, _) => Some((5.0, VENDOR_SOURCE)),
        (BridgeState::OpenFirmware, Path::F2Out | Path::F2In, BusSpeed::SuperPlus) => Some((700.0, OPEN_SOURCE)),
        (BridgeState::OpenFirmware, Path::F2Out, BusSpeed::Super) => Some((323.0, OPEN_SOURCE_5)),
        (BridgeState::OpenFirmware, Path::F0Write, _) => Some((3.6, OPEN_SOURCE)),
        (BridgeState::OpenFirmware, Path::F0Read, _) => Some((1.8, OPEN_SOURCE)),
        _ => None,
    }
}

/// One verdict for each path that was run and has a published figure, in the order of the rows.
pub fn judge(rows: &[Row], firmware: BridgeState, speed: BusSpeed) -> Vec<BenchVerdict> {
    let mut verdicts: Vec<BenchVerdict> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.outcome, Outcome::NotRun { .. })) {
        let Some((needed_mb_per_s, source)) = published(row.path, firmware, speed) else { continue };
        let median = row.figures().map(|figures| figures.mb_per_s.median);
        let index = verdicts.iter().position(|verdict| verdict.path == row.path).unwrap_or_else(|| {
            let source = source.to_owned();
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
    use crate::bench::report::{Figures, Spread};

    fn row(path: Path, mb_per_s: f64) -> Row {
        let spread = Spread { median: mb_per_s, min: mb_per_s, max: mb_per_s };
        let figures = Figures { mb_per_s: spread, ..Figures::default() };
        Row { path, size: path.max_len(), depth: 1, outcome: Outcome::Measured(figures.into()) }
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
