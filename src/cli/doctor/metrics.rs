//! `doctor --prometheus`: a diagnosis as metrics. docs/monitoring.md describes them.

use super::diagnose::{Diagnosis, TopicLine, Verdict};
use crate::doctor::Examination;
use crate::prometheus::{Exposition, Sample};

/// Adds the diagnosis of the unit at `device`.
pub fn add(metrics: &mut Exposition, device: &str, seen: &Examination, diagnosis: &Diagnosis) {
    let of_unit = |value: f64| [Sample::new(value).with("device", device)];
    metrics.gauge(
        "asmpatch_doctor_runtime_can_start",
        "Whether a GPU runtime could start on the bridge.",
        [Sample::from(diagnosis.runtime.is_some()).with("device", device)],
    );
    metrics.gauge(
        "asmpatch_doctor_check",
        "Verdict on each thing that a GPU runtime needs: 1 for the one that holds, 0 for the others.",
        checks(&diagnosis.lines).into_iter().flat_map(|(check, found)| {
            Verdict::ALL.map(|(verdict, name)| {
                Sample::from(verdict == found).with("device", device).with("check", check).with("verdict", name)
            })
        }),
    );
    let supply = seen.supply.as_ref().and_then(|supply| supply.as_ref().ok()?.as_ref());
    if let Some(supply) = supply {
        metrics.gauge(
            "asmpatch_doctor_supply_fault",
            "Whether the bridge's board reports a fault of its supply.",
            [Sample::from(supply.has_fault).with("device", device)],
        );
    }
    if let Some(supply) = supply.and_then(|supply| supply.measured) {
        metrics.gauge(
            "asmpatch_doctor_supply_volts",
            "Voltage of the bridge's 12 V supply.",
            of_unit(f64::from(supply.voltage_mv) / 1e3),
        );
        metrics.gauge(
            "asmpatch_doctor_supply_amperes",
            "Current of the bridge's 12 V supply.",
            of_unit(f64::from(supply.current_ma) / 1e3),
        );
    }
    let of_requests = |microseconds: fn(&crate::doctor::Timing) -> u64| {
        seen.timings.iter().map(move |timing| {
            Sample::new(microseconds(timing) as f64 / 1e6).with("device", device).with("request", &timing.what)
        })
    };
    metrics.gauge(
        "asmpatch_doctor_request_median_seconds",
        "Median time of one request, of those that doctor sends one after the other.",
        of_requests(|timing| timing.median_us),
    );
    metrics.gauge(
        "asmpatch_doctor_request_max_seconds",
        "Longest time of one request, of those that doctor sends one after the other.",
        of_requests(|timing| timing.longest_us),
    );
}

/// Lists each topic once, with the worst verdict of its lines.
fn checks(lines: &[TopicLine]) -> Vec<(&'static str, Verdict)> {
    let mut checks: Vec<(&'static str, Verdict)> = Vec::new();
    for line in lines {
        match checks.iter_mut().find(|(topic, _)| *topic == line.topic) {
            Some((_, worst)) => *worst = line.verdict.max(*worst),
            None => checks.push((line.topic, line.verdict)),
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_with_several_lines_counts_once_with_the_worst_of_them() {
        let line = |topic, verdict| TopicLine { topic, verdict, found: String::new(), advice: None };
        let lines = [line("GPU", Verdict::Good), line("bench", Verdict::Good), line("bench", Verdict::Bad)];
        assert_eq!(checks(&lines), [("GPU", Verdict::Good), ("bench", Verdict::Bad)]);
        let lines = [line("GPU", Verdict::Unknown), line("GPU", Verdict::Note), line("GPU", Verdict::Good)];
        assert_eq!(checks(&lines), [("GPU", Verdict::Unknown)]);
    }
}
