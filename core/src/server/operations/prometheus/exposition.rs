//! Writer of the text format of Prometheus.

use std::fmt::{Display, Write};

use crate::server::metrics::{BOUNDS_US, Histogram};

/// Samples with their descriptions.
#[derive(Debug, Default)]
pub struct Text(String);

/// Names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }

    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help, [(&[][..], value)]);
    }

    pub fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, impl Display)>,
    ) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    pub fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let cumulative = histogram.cumulative();
        let bucket = format!("{name}_bucket");
        for (bound_us, count) in BOUNDS_US.iter().zip(&cumulative) {
            let bound = format!("{}", std::time::Duration::from_micros(*bound_us).as_secs_f64());
            self.sample(&bucket, &[labels, &[("le", bound.as_str())]].concat(), count);
        }
        let count = cumulative.last().copied().unwrap_or(0);
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, histogram.sum_s());
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// Writes a sample. The label values contain no characters that must be escaped.
    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
