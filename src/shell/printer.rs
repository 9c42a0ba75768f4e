//! Printer of the prompt: records, messages and errors, at the cursor or above the line being edited.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::error_hints::at_prompt;
use super::rate_limit::{RateLimit, Summary};
use super::screen::{HeldScreen, Screen};
use super::shared_state::SharedState;
use super::streams::Streams;
use crate::clock;
use crate::commands::{CommandError, Hint};
use crate::render::style::{Paint, paint};
use crate::render::{Format, Record, Rendered, Style, Widths, rendered};

/// The time between two attempts to print to a terminal that does not keep up.
const SLOW_TERMINAL_DELAY: Duration = Duration::from_millis(200);

/// Prints at the cursor while no line is edited, or, with `background_*`, above the line at any time. Clones share the
/// screen and the rate limit.
#[derive(Clone, Debug)]
pub struct Printer {
    pub state: Arc<SharedState>,
    streams: Streams,
    screen: Screen,
    rate_limit: Rc<RefCell<RateLimit>>,
    widths: Rc<Cell<Widths>>,
    /// The columns of all watches in the background.
    background_widths: Rc<Cell<Widths>>,
    color: bool,
}

impl Printer {
    pub fn new(streams: Streams, state: Arc<SharedState>, screen: Screen, color: bool) -> Self {
        Self {
            streams,
            state,
            screen,
            rate_limit: Rc::default(),
            widths: Rc::default(),
            background_widths: Rc::default(),
            color,
        }
    }

    /// Prints a message, followed by a line feed.
    pub fn message(&self, line: &str) {
        (self.streams.words)(&format!("{line}\n"), false);
    }

    /// Prints a secondary message in gray.
    pub fn dim_message(&self, line: &str) {
        (self.streams.words)(&format!("{}\n", paint(line, Paint::Dim, self.color)), self.color);
    }

    /// Prints a text to standard output as it is.
    pub fn text(&self, text: &str) {
        // If the terminal is gone, the editor reports it.
        let _ = (self.streams.data)(text.as_bytes(), false);
    }

    /// Starts a new line if the cursor is not in the first column. A row of blanks wraps only if something precedes it.
    pub fn begin_line(&self) {
        self.text(&format!("{}\r", " ".repeat(self.state.columns())));
    }

    pub fn error(&self, error: &CommandError, style: &Style) {
        (self.streams.words)(&self.rendered_error(error, style), style.color_stderr);
    }

    pub fn record(&self, record: &dyn Record, style: &Style) -> io::Result<()> {
        self.remember_key(record);
        let rendered = formatted(record, style, &self.widths);
        if !rendered.stdout.is_empty() {
            (self.streams.data)(&rendered.stdout, style.color_stdout)?;
        }
        self.words_of(&rendered, style);
        Ok(())
    }

    /// Prints the messages of a record and returns its data, for a redirection.
    pub fn render(&self, record: &dyn Record, style: &Style) -> Rendered {
        self.remember_key(record);
        let rendered = formatted(record, style, &self.widths);
        self.words_of(&rendered, style);
        rendered
    }

    fn words_of(&self, rendered: &Rendered, style: &Style) {
        if !rendered.stderr.is_empty() {
            (self.streams.words)(&rendered.stderr, style.color_stderr);
        }
    }

    /// Keeps what is printed in the background until the result is dropped.
    pub fn hold_background(&self) -> HeldScreen {
        self.screen.hold()
    }

    pub fn background_message(&self, line: &str) {
        self.screen.print(format!("{line}\n"));
    }

    /// Prints a message in red and rings the bell.
    pub fn background_alert(&self, line: &str) {
        self.screen.print(format!("\x07{}\n", paint(line, Paint::Error, self.color)));
    }

    /// Prints an error with a text in front of it.
    pub fn background_error(&self, before: &str, error: &CommandError, style: &Style) {
        self.screen.print(format!("{before}{}", self.rendered_error(error, style)));
    }

    /// Prints a record of a watch, within the rate limit.
    pub fn background_record(&self, record: &dyn Record, style: &Style) {
        self.remember_key(record);
        // The connection status reports a loss, once for all watches.
        if record.is_connection_loss() {
            return;
        }
        // Raw bytes would disturb the line that is being edited.
        let format = if style.format == Format::Raw { Format::Text } else { style.format };
        let Rendered { stdout, stderr } =
            formatted(record, &Style { format, ..*style }, &self.background_widths);
        let text = [stderr, String::from_utf8_lossy(&stdout).into_owned()].concat();
        match record.key() {
            Some(key) => self.background_event(key.as_bytes(), text),
            None => {
                self.flush();
                self.screen.print(text);
            }
        }
    }

    /// Repaints the prompt with the current state.
    pub fn repaint(&self) {
        self.screen.repaint();
    }

    /// Repaints the prompt in a moment. On Ctrl-C the terminal discards pending output, which may include the prompt.
    pub fn repaint_soon(&self) {
        const DELAY: Duration = Duration::from_millis(100);
        let printer = self.clone();
        tokio::task::spawn_local(async move {
            sleep(DELAY).await;
            printer.repaint();
        });
    }

    /// Prints what is withheld of a burst of events.
    pub fn flush(&self) {
        let summary = self.rate_limit.borrow_mut().take_summary(clock::monotonic());
        summary.into_iter().for_each(|summary| self.print_summary(summary));
    }

    fn background_event(&self, key: &[u8], text: String) {
        let was_due = self.rate_limit.borrow().due();
        let now = clock::monotonic();
        let shown = self.rate_limit.borrow_mut().offer(now, key, text, self.screen.has_room());
        shown.into_iter().for_each(|text| self.screen.print(text));
        if was_due.is_none() && self.rate_limit.borrow().due().is_some() {
            tokio::task::spawn_local(self.clone().print_summary_when_due());
        }
    }

    async fn print_summary_when_due(self) {
        loop {
            let Some(due) = self.rate_limit.borrow().due() else { return };
            sleep_until(due.into()).await;
            if !self.screen.has_room() {
                // The terminal is stopped or slow: the stored events stay bounded, the queue of the screen would not.
                sleep(SLOW_TERMINAL_DELAY).await;
                continue;
            }
            let summary = self.rate_limit.borrow_mut().poll_summary(clock::monotonic());
            summary.into_iter().for_each(|summary| self.print_summary(summary));
        }
    }

    fn print_summary(&self, Summary { omitted, last, is_incomplete }: Summary) {
        let changes = if omitted == 1 { "1 more change" } else { &format!("{omitted} more changes") };
        let note = match (omitted, last.is_empty()) {
            (0, _) => None,
            (_, true) => Some(format!("and {changes}")),
            _ if is_incomplete => {
                Some(format!("and {changes}, not all keys are shown; the last of each key:"))
            }
            _ => Some(format!("and {changes}; the last of each key:")),
        };
        note.into_iter().for_each(|note| self.background_message(&paint(&note, Paint::Dim, self.color)));
        self.screen.print(last.concat());
    }

    fn rendered_error(&self, error: &CommandError, style: &Style) -> String {
        let hints = error.hints.iter().map(|hint| at_prompt(hint, self.state.definition())).collect();
        let style = Style { columns: Some(self.state.columns()), ..*style };
        CommandError { hints, ..error.clone() }.rendered(&style)
    }

    /// Remembers the key of a record for completion.
    fn remember_key(&self, record: &dyn Record) {
        if let Some(key) = record.key() {
            self.state.remember_key(key.as_bytes());
        }
    }
}

fn formatted(record: &dyn Record, style: &Style, widths: &Cell<Widths>) -> Rendered {
    let mut grown = widths.get();
    let rendered = match record.hint() {
        // Lines of the prompt have no program name.
        Some(hint) => rendered(&Hint(hint.replace(": mqkv ", ": ")), style, &mut grown),
        None => rendered(record, style, &mut grown),
    };
    widths.set(grown);
    rendered
}
