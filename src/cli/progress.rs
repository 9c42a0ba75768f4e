//! How far a verb has come, on a terminal; the only user of the `indicatif` crate.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::clock;
use crate::commands::output::Progress;

/// A line on standard error that is written over and over.
#[derive(Debug)]
pub struct Bar {
    bar: Option<ProgressBar>,
    begins: Instant,
    has_begun: bool,
}

/// What ends sooner than this shows no bar: it would only flicker.
const DELAY: Duration = Duration::from_millis(400);

impl Bar {
    /// A bar, if it is to be shown.
    #[must_use]
    pub fn new(shown: bool) -> Self {
        let now = clock::monotonic();
        let bar = shown.then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        Self { bar, begins: now.checked_add(DELAY).unwrap_or(now), has_begun: false }
    }

    /// Shows how far it has come.
    pub fn show(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else {
            return;
        };
        let Progress { count, unit, bytes_read, bytes_total } = *progress;
        if !self.has_begun {
            if clock::monotonic() < self.begins {
                return;
            }
            self.has_begun = true;
            bar.set_style(style(if bytes_total.is_some() { KNOWN } else { UNKNOWN }));
            bar.set_message(format!("{count} {unit}"));
            bytes_total.into_iter().for_each(|total| bar.set_length(total));
        }
        bar.set_message(format!("{count} {unit}"));
        bar.set_position(if bytes_total.is_some() { bytes_read } else { count });
    }

    /// Writes something else without the bar in its way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) if self.has_begun => bar.suspend(write),
            _ => write(),
        }
    }

    /// Takes the bar away for good.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Of a file whose size is known.
const KNOWN: &str = "{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left";
const UNKNOWN: &str = "{spinner} {msg}  {elapsed}";

fn style(template: &str) -> ProgressStyle {
    // A template that makes no sense would show the crate's own bar.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_make_sense() {
        for template in ["{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left", "{spinner} {msg}  {elapsed}"]
        {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
