//! How far a verb has come, on a terminal; the only user of the `indicatif` crate.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::commands::output::Progress;

/// A line on standard error that is written over and over.
#[derive(Debug)]
pub struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar, if it is to be shown.
    #[must_use]
    pub fn new(shown: bool) -> Self {
        Self { bar: shown.then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())) }
    }

    /// Shows how far it has come.
    pub fn show(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else {
            return;
        };
        let Progress { count, unit, bytes_read, bytes_total } = *progress;
        match bytes_total {
            Some(total) if bar.length().is_none() => {
                bar.set_length(total);
                bar.set_style(style("{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left"));
            }
            None if bar.message().is_empty() => {
                bar.set_style(style("{spinner} {msg}  {elapsed}"));
            }
            _ => {}
        }
        bar.set_message(format!("{count} {unit}"));
        bar.set_position(if bytes_total.is_some() { bytes_read } else { count });
    }

    /// Writes something else without the bar in its way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away: for good, if something else needs the terminal.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

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
