//! Progress bar of verbs that work through many lines, on standard error.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::clock;
use crate::commands::process::stdout::stderr_columns;
use crate::render::Progress;

/// A verb that ends sooner shows no bar: it would only flicker.
const DELAY: Duration = Duration::from_millis(400);
/// Redraws per second.
const REFRESH_HZ: u8 = 20;
/// The columns of a terminal whose width is unknown.
const COLUMNS: u16 = 80;
/// Columns of the text beside a bar: most texts fit.
const TEXT_COLUMNS: u16 = 60;
const UNKNOWN_TOTAL: &str = "{spinner} {msg}  {elapsed}";

/// A progress bar, or none.
#[derive(Debug, Default)]
pub struct Bar {
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    since: Instant,
    terminal: fn() -> Box<dyn TermLike>,
    is_total_known: Cell<bool>,
}

impl Bar {
    /// Returns a bar that is visible after a moment, if `is_shown`.
    #[must_use]
    pub fn new(is_shown: bool) -> Self {
        let terminal = || -> Box<dyn TermLike> { Box::new(BarTerminal::default()) };
        Self { shown: is_shown.then(|| Shown::begin(clock::monotonic(), terminal)) }
    }

    pub fn show(&self, progress: &Progress<'_>) {
        if let Some(shown) = &self.shown {
            shown.update(progress, clock::monotonic());
        }
    }

    /// Calls `write`, which writes to the terminal, while the bar is not there.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.shown {
            Some(shown) => shown.bar.suspend(write),
            None => write(),
        }
    }

    /// Removes the bar for good.
    pub fn clear(&mut self) {
        if let Some(shown) = self.shown.take() {
            shown.bar.finish_and_clear();
        }
    }
}

impl Shown {
    fn begin(now: Instant, terminal: fn() -> Box<dyn TermLike>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { bar, since: now, terminal, is_total_known: Cell::default() }
    }

    fn update(&self, progress: &Progress<'_>, now: Instant) {
        let Progress { done, total, text } = *progress;
        if !self.is_due(total.is_some(), now) {
            return;
        }
        if let Some(total) = total {
            // A file that grows can be read beyond the size that it had at the start.
            self.bar.set_length(total.max(done));
        }
        self.bar.set_message(text.to_string());
        self.bar.set_position(done);
    }

    /// Returns whether the bar is visible; it becomes so after a moment.
    fn is_due(&self, is_total_known: bool, now: Instant) -> bool {
        if self.bar.is_hidden() && now.saturating_duration_since(self.since) < DELAY {
            return false;
        }
        // The preparation of a bench has no total, its measurement has one.
        if self.bar.is_hidden() || self.is_total_known.replace(is_total_known) != is_total_known {
            self.is_total_known.set(is_total_known);
            let terminal = (self.terminal)();
            self.bar.set_style(style(is_total_known, terminal.width()));
            // A new target would not erase what the former one has drawn.
            if self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(terminal, REFRESH_HZ));
            }
        }
        true
    }
}

fn style(is_total_known: bool, columns: u16) -> ProgressStyle {
    let template = if is_total_known {
        let bar = columns.saturating_sub(TEXT_COLUMNS).clamp(10, 30);
        format!("{{bar:{bar}}} {{percent:>3}}%  {{msg}}  {{elapsed}}, {{eta}} left")
    } else {
        UNKNOWN_TOTAL.to_owned()
    };
    // The templates are valid: a test renders them.
    let style = ProgressStyle::with_template(&template);
    style.unwrap_or_else(|_| ProgressStyle::default_spinner()).progress_chars("█░")
}

/// Standard error. After each frame the cursor is in the first column: the terminal's echo of Ctrl-C is then in the row of the bar,
/// and is removed with it. At the end of the row the echo would begin another one, and the bar would stay.
#[derive(Debug, Default)]
struct BarTerminal {
    frame: Mutex<String>,
}

impl BarTerminal {
    fn move_cursor(&self, count: usize, direction: char) -> io::Result<()> {
        // Zero would move it by one.
        if count > 0 { self.write_str(&format!("\x1b[{count}{direction}")) } else { Ok(()) }
    }
}

impl TermLike for BarTerminal {
    fn width(&self) -> u16 {
        stderr_columns().and_then(|columns| u16::try_from(columns).ok()).unwrap_or(COLUMNS)
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.write_str("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.frame.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.frame.lock().unwrap_or_else(PoisonError::into_inner));
        io::stderr().write_all(format!("\r{frame}\r").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text written to the terminals of this file's tests.
    static WRITTEN: Mutex<String> = Mutex::new(String::new());
    /// One test at a time.
    static TURN: Mutex<()> = Mutex::new(());

    #[derive(Debug)]
    struct TestTerminal;

    impl TermLike for TestTerminal {
        fn width(&self) -> u16 {
            100
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)?;
            self.write_str("\n")
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            WRITTEN.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            WRITTEN.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn progress(done: u64, total: Option<u64>) -> Progress<'static> {
        Progress { done, total, text: &"12 keys" }
    }

    /// Returns what the terminal shows after the progress, and the bar.
    fn shown(progress: &Progress<'_>, after: Duration) -> (String, Shown) {
        WRITTEN.lock().unwrap().clear();
        let begin = clock::monotonic();
        let shown = Shown::begin(begin, || Box::new(TestTerminal));
        shown.update(progress, begin + after);
        let written = WRITTEN.lock().unwrap().clone();
        (written.trim_end().to_owned(), shown)
    }

    #[test]
    fn a_bar_shows_the_part_that_is_done() {
        let _turn = TURN.lock().unwrap();
        let bar = |read, total| shown(&progress(read, Some(total)), DELAY).0;
        let cells = |full: usize| ["█".repeat(full), "░".repeat(30 - full)].concat();
        let begins = |text: String, begin: &str| assert!(text.starts_with(begin), "{text:?}, not {begin:?}");
        begins(bar(100, 300), &format!("{}  33%  12 keys  ", cells(10)));
        begins(bar(300, 300), &format!("{} 100%  12 keys  ", cells(30)));
        begins(bar(0, 300), &format!("{}   0%  12 keys  ", cells(0)));
        assert!(bar(100, 300).ends_with(" left"));
    }

    #[test]
    fn a_file_that_grows_or_is_empty_is_read_completely() {
        let _turn = TURN.lock().unwrap();
        for (read, total) in [(400, 300), (0, 0)] {
            let (text, _) = shown(&progress(read, Some(total)), DELAY);
            assert!(text.contains(" 100%  12 keys  "), "{text:?}");
        }
    }

    #[test]
    fn a_spinner_replaces_the_bar_if_the_total_is_unknown() {
        let _turn = TURN.lock().unwrap();
        let (text, _) = shown(&progress(5, None), DELAY);
        assert!(text.contains(" 12 keys  ") && !text.contains(['%', '░']), "{text:?}");
    }

    #[test]
    fn a_bar_replaces_the_spinner_when_the_total_is_known() {
        let _turn = TURN.lock().unwrap();
        let (_, shown) = shown(&progress(5, None), DELAY);
        WRITTEN.lock().unwrap().clear();
        shown.update(&progress(3000, Some(10_000)), shown.since + 2 * DELAY);
        shown.bar.tick();
        let text = WRITTEN.lock().unwrap().trim_end().to_owned();
        assert!(text.contains("  30%  12 keys  ") && text.ends_with(" left"), "{text:?}");
    }

    #[test]
    fn a_verb_that_ends_soon_shows_no_bar() {
        let _turn = TURN.lock().unwrap();
        assert_eq!(shown(&progress(1, None), DELAY - Duration::from_millis(1)).0, "");
        let (text, shown) = shown(&progress(1, None), DELAY);
        assert_ne!(text, "");
        Bar { shown: Some(shown) }.clear();
        assert_eq!(*WRITTEN.lock().unwrap(), "", "nothing is left of the bar");
    }
}
