//! Metrics in Prometheus' text format, as node_exporter's textfile collector reads them.
//!
//! Source: Prometheus' documentation, "Exposition formats", text format 0.0.4.

use std::fmt::{Display, Write as _};

use crate::escape::Escape as _;

/// A document: a series of gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposition {
    text: String,
}

/// One value of a gauge, with its labels. A label with an empty value is left out, which means the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    labels: Vec<String>,
    value: f64,
}

impl Sample {
    /// Creates a value without labels.
    pub const fn new(value: f64) -> Self {
        Self { labels: Vec::new(), value }
    }

    /// Adds a label.
    #[must_use]
    pub fn with(mut self, label: &str, value: impl Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.labels.push(format!("{label}=\"{}\"", quoted(&value)));
        }
        self
    }
}

impl From<bool> for Sample {
    fn from(is_so: bool) -> Self {
        Self::new(f64::from(u8::from(is_so)))
    }
}

impl Exposition {
    /// What every document that asmpatch writes begins with.
    pub const START: &'static str = "# HELP asmpatch_";

    /// Adds a gauge: its name, its help text and its values. The name begins with `asmpatch_` and must not be in the
    /// document yet. Without values the gauge is left out.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing into a String cannot fail.
        let _ = write!(self.text, "# HELP {name} {}\n# TYPE {name} gauge\n", escaped(help));
        for Sample { labels, value } in samples {
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }

    /// Returns the document.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Quotes a label's value. It may come from a device, so anything that would move a terminal's cursor is escaped first.
fn quoted(value: &str) -> String {
    escaped(&value.shown().to_string()).replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_has_its_help_its_type_and_a_line_a_value() {
        let mut metrics = Exposition::default();
        metrics.gauge("asmpatch_units", "Units.", [Sample::new(2.0)]);
        let samples = [Sample::from(true).with("device", "3-1.2").with("serial", ""), Sample::new(0.000_035)];
        metrics.gauge("asmpatch_unit_x", "Backslash \\ and\nline end.", samples);
        metrics.gauge("asmpatch_unit_y", "Nothing.", []);
        assert_eq!(
            metrics.as_str(),
            "# HELP asmpatch_units Units.\n# TYPE asmpatch_units gauge\nasmpatch_units 2\n\
             # HELP asmpatch_unit_x Backslash \\\\ and\\nline end.\n# TYPE asmpatch_unit_x gauge\n\
             asmpatch_unit_x{device=\"3-1.2\"} 1\nasmpatch_unit_x 0.000035\n"
        );
        assert!(metrics.as_str().starts_with(Exposition::START));
    }

    #[test]
    fn a_hostile_label_stays_in_its_quotes_and_its_line() {
        let mut metrics = Exposition::default();
        let sample = Sample::new(1.0).with("serial", "a\"} 7\nasmpatch_forged 1\\\u{1b}[2J");
        metrics.gauge("asmpatch_unit_info", "Who.", [sample]);
        let last = metrics.as_str().lines().last().unwrap();
        assert_eq!(last, r#"asmpatch_unit_info{serial="a\"} 7\\nasmpatch_forged 1\\\\u{1b}[2J"} 1"#);
    }

    proptest::proptest! {
        #[test]
        fn each_value_is_one_line_whatever_its_label(label: String) {
            let mut metrics = Exposition::default();
            metrics.gauge("asmpatch_x", "X.", [Sample::new(1.0).with("l", &label)]);
            proptest::prop_assert_eq!(metrics.as_str().lines().count(), 3);
            proptest::prop_assert!(metrics.as_str().ends_with(" 1\n"));
        }
    }
}
