//! Charts of the last ten minutes as inline SVG. The labels are HTML, so that they do not scale with the drawing.

use std::time::Duration;

use super::text;

/// Size of a drawing, in its own units. It is stretched to the width of the page.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;

/// The scale of a chart: from the bottom to the top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero.
    Linear { top: f64 },
    /// From `10^bottom` to `10^top`.
    Decades { bottom: i32, top: i32 },
}

impl Scale {
    /// Returns a scale from zero to a round number that no value exceeds.
    #[must_use]
    pub fn linear(greatest: f64) -> Self {
        let power = 10_f64.powf(greatest.max(1.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        Self::Linear { top: steps.into_iter().find(|top| *top >= greatest).unwrap_or(greatest) }
    }

    /// Returns a scale from zero to a power of two that no number of bytes exceeds.
    #[must_use]
    pub fn bytes(greatest: f64) -> Self {
        Self::Linear { top: greatest.max(1024.0).log2().ceil().exp2() }
    }

    /// Returns a scale of whole decades with all values, which are greater than zero.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm of a finite number is small")]
    pub fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let greatest = values.fold(0.0, f64::max);
        if greatest <= 0.0 {
            return Self::Decades { bottom: 0, top: 3 };
        }
        let bottom = least.max(0.1).log10().floor() as i32;
        let top = greatest.max(0.1).log10().ceil() as i32;
        Self::Decades { bottom, top: top.max(bottom.saturating_add(1)) }
    }

    /// Returns the values of the grid lines, from the top down.
    fn lines(self) -> Vec<f64> {
        match self {
            Self::Linear { top } => vec![top, top / 2.0, 0.0],
            Self::Decades { bottom, top } => (bottom..=top).rev().map(|power| 10_f64.powi(power)).collect(),
        }
    }

    /// Returns how far a value is from the top.
    fn y(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { top } => value / top,
            Self::Decades { bottom, top } => {
                (value.max(f64::MIN_POSITIVE).log10() - f64::from(bottom))
                    / f64::from(top.saturating_sub(bottom))
            }
        };
        HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend; empty if the chart has no other line.
    pub name: &'static str,
    /// Its present value.
    pub now: String,
    /// Ages and values, the oldest first. A value that is missing leaves a gap.
    pub points: Vec<(Duration, Option<f64>)>,
}

/// A chart with its title.
#[derive(Clone, Debug)]
pub struct Chart {
    pub id: &'static str,
    pub title: &'static str,
    /// Text alternative for screen readers.
    pub description: String,
    pub scale: Scale,
    pub format: fn(f64) -> String,
    pub span: Duration,
    /// At most two.
    pub lines: Vec<Line>,
}

impl Chart {
    /// Returns the chart as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let Self { id, title, description, scale, format, .. } = self;
        let values = scale.lines();
        let labels: String = values.iter().map(|value| format!("<span>{}</span>", format(*value))).collect();
        let grid: String =
            values.iter().map(|value| format!("M0 {y:.1}H{WIDTH}", y = scale.y(*value))).collect();
        let paths: String = (1..).zip(&self.lines).map(|(number, line)| self.path(number, line)).collect();
        let minutes = self.span.as_secs() / 60;
        format!(
            "<figure class=\"chart\">\n<figcaption><span class=\"title\">{title}</span>{}</figcaption>\n\
             <div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">{labels}</div>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"{id}-text\">\
             <title id=\"{id}-text\">{}</title><path class=\"grid\" d=\"{grid}\"/>{paths}</svg></div>\n\
             <div class=\"x\" aria-hidden=\"true\"><span>{minutes} min ago</span><span>{} min</span><span>now</span></div>\n\
             </figure>\n",
            self.legend(),
            text::escape(description.as_bytes()),
            minutes / 2,
        )
    }

    fn legend(&self) -> String {
        let entry = |(number, line): (u32, &Line)| {
            let sample = "<svg class=\"key\" viewBox=\"0 0 16 4\" aria-hidden=\"true\"><path class=\"line";
            let name = match line.name {
                "" => String::new(),
                name => format!("{sample} l{number}\" d=\"M0 2H16\"/></svg>{name} "),
            };
            format!("<span class=\"entry\">{name}<b>{}</b></span>", line.now)
        };
        (1..).zip(&self.lines).map(entry).collect()
    }

    fn path(&self, number: u32, line: &Line) -> String {
        let span_s = self.span.as_secs_f64();
        let mut data = String::new();
        let mut is_drawing = false;
        for (age, value) in &line.points {
            let Some(value) = value else {
                is_drawing = false;
                continue;
            };
            let x = WIDTH * (1.0 - age.as_secs_f64() / span_s).clamp(0.0, 1.0);
            let y = self.scale.y(*value);
            // A point between two gaps is drawn as a dot.
            let pen = if is_drawing { "L" } else { "M" };
            let dot = if is_drawing { "" } else { "h0" };
            data.push_str(&format!("{pen}{x:.1} {y:.1}{dot}"));
            is_drawing = true;
        }
        if data.is_empty() { data } else { format!("<path class=\"line l{number}\" d=\"{data}\"/>") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(u64, Option<f64>)]) -> String {
        let points = points.iter().map(|(age_s, value)| (Duration::from_secs(*age_s), *value)).collect();
        let chart = Chart {
            id: "c",
            title: "t",
            description: "<d>".to_owned(),
            scale,
            format: text::latency,
            span: Duration::from_secs(600),
            lines: vec![Line { name: "p50", now: "5 µs".to_owned(), points }],
        };
        chart.html()
    }

    #[test]
    fn the_top_of_a_scale_is_round_and_not_exceeded() {
        for (greatest, top) in
            [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (1.1, 2.0), (30.0, 50.0), (51.0, 100.0), (1e6, 1e6)]
        {
            assert_eq!(Scale::linear(greatest), Scale::Linear { top });
        }
        for (greatest, top) in [(0.0, 1024.0), (1024.0, 1024.0), (1025.0, 2048.0)] {
            assert_eq!(Scale::bytes(greatest), Scale::Linear { top });
        }
        for (values, bottom, top) in
            [(vec![], 0, 3), (vec![7.0], 0, 1), (vec![1.0, 10.0], 0, 1), (vec![20.0, 3_000.0], 1, 4)]
        {
            assert_eq!(Scale::decades(values.into_iter()), Scale::Decades { bottom, top });
        }
    }

    #[test]
    fn a_line_ends_at_the_right_and_has_gaps_where_values_are_missing() {
        let html = chart(
            Scale::Linear { top: 10.0 },
            &[(600, Some(0.0)), (450, Some(10.0)), (300, None), (150, Some(5.0)), (0, None)],
        );
        assert!(html.contains("d=\"M0.0 100.0h0L150.0 0.0M450.0 50.0h0\""), "{html}");
        assert!(html.contains("class=\"grid\" d=\"M0 0.0H600M0 50.0H600M0 100.0H600\""), "{html}");
        assert!(html.contains("&lt;d&gt;") && html.contains("<b>5 µs</b>"), "{html}");
    }

    #[test]
    fn decades_have_equal_heights_and_their_labels() {
        let html =
            chart(Scale::Decades { bottom: 1, top: 3 }, &[(0, Some(100.0)), (0, Some(1e9)), (0, Some(0.0))]);
        assert!(html.contains("<span>1 ms</span><span>100 µs</span><span>10 µs</span>"), "{html}");
        assert!(html.contains("d=\"M600.0 50.0h0L600.0 0.0L600.0 100.0\""), "{html}");
    }

    #[test]
    fn a_chart_without_points_has_no_line() {
        let html = chart(Scale::linear(0.0), &[(0, None)]);
        assert!(!html.contains("class=\"line l1\" d=\"M6"), "{html}");
    }
}
