//! How the shell speaks: records, words and errors, on the screen or above the line that is being typed.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::screen::Screen;
use crate::commands::output::{Output, WatchEvent};
use crate::commands::{CommandError, Kind};
use crate::render::style::{Paint, paint};
use crate::render::{self, Format, Rendered, Style};
use crate::shell::rate_limit::Flood;
use crate::shell::shared_state::Live;

/// The streams, as the process edge gives them.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Puts bytes on standard output; with colour, if so.
    pub data: fn(&[u8], bool) -> io::Result<()>,
    /// Puts words on standard error; with colour, if so.
    pub words: fn(&str, bool),
    /// Prints lines where no line can be typed below them.
    pub above: fn(&str),
    /// Reads the monotonic clock.
    pub now: fn() -> Instant,
}

/// How the shell speaks. Clones share the screen, and the flood of what comes from the background.
#[derive(Clone, Debug)]
pub struct Printer {
    pub streams: Streams,
    pub live: Arc<Live>,
    screen: Screen,
    flood: Rc<RefCell<Flood>>,
    /// Whether the terminal takes colour.
    color: bool,
}

impl Printer {
    pub fn new(streams: Streams, live: Arc<Live>, screen: Screen, color: bool) -> Self {
        Self { streams, live, screen, flood: Rc::default(), color }
    }

    /// Says a line, now: nobody is typing.
    pub fn say(&self, line: &str) {
        (self.streams.words)(&format!("{line}\n"), false);
    }

    /// The same, but for eyes that look for it.
    pub fn say_dim(&self, line: &str) {
        (self.streams.words)(&format!("{}\n", paint(line, Paint::Dim, self.color)), self.color);
    }

    /// Prints text as it is, now.
    pub fn print(&self, text: &str) {
        // A terminal that is gone is told by the editor.
        let _ = (self.streams.data)(text.as_bytes(), false);
    }

    /// Begins a line of its own behind output that may have ended within one: blanks fill a row, and go over its
    /// edge only if something stood in it.
    pub fn begin_line(&self) {
        self.print(&format!("{}\r", " ".repeat(self.live.columns())));
    }

    /// Says what went wrong, now.
    pub fn fail(&self, error: &CommandError, style: &Style) {
        (self.streams.words)(&told(error, style), style.color_words);
    }

    /// Puts a record out, now.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn put(&self, output: &Output, style: &Style) -> io::Result<()> {
        let rendered = self.render(output, style);
        if rendered.data.is_empty() {
            return Ok(());
        }
        (self.streams.data)(&rendered.data, style.color_data)
    }

    /// A record's data, for whoever takes it elsewhere; its words are said now.
    pub fn render(&self, output: &Output, style: &Style) -> Rendered {
        self.see(output);
        let rendered = render::output(output, style);
        if !rendered.words.is_empty() {
            (self.streams.words)(&rendered.words, style.color_words);
        }
        rendered
    }

    /// Tells a line from the background.
    pub fn tell(&self, line: &str) {
        self.screen.tell(format!("{line}\n"));
    }

    /// Tells bad news from the background, so that they are not overlooked.
    pub fn alarm(&self, line: &str) {
        self.screen.tell(format!("\x07{}\n", paint(line, Paint::Wrong, self.color)));
    }

    /// Tells an error from the background.
    pub fn tell_failure(&self, before: &str, error: &CommandError, style: &Style) {
        self.screen.tell(format!("{before}{}", told(error, style)));
    }

    /// Tells a record from the background, unless there are too many.
    pub fn tell_record(&self, output: &Output, style: &Style) {
        self.see(output);
        let is_change = match output {
            // The loss of the connection is told once for all.
            Output::Watched { event: WatchEvent::Lost { .. }, .. } => return,
            Output::Watched { event: WatchEvent::Gap { .. } | WatchEvent::Skipped { .. }, .. } => false,
            Output::Watched { .. } => true,
            _ => false,
        };
        if is_change && !self.admits() {
            return;
        }
        // Bytes that are not text have no place above a line.
        let format = if style.format == Format::Raw { Format::Text } else { style.format };
        let rendered = render::output(output, &Style { format, ..*style });
        self.screen.tell(rendered.words);
        self.screen.tell(String::from_utf8_lossy(&rendered.data).into_owned());
    }

    /// Has the prompt show what is so by now.
    pub fn repaint(&self) {
        self.screen.repaint();
    }

    /// The same in a moment: with Ctrl-C the terminal throws away what is on its way to it, and that may be the prompt.
    pub fn repaint_soon(&self) {
        const MOMENT: Duration = Duration::from_millis(100);
        let voice = self.clone();
        tokio::task::spawn_local(async move {
            sleep(MOMENT).await;
            voice.repaint();
        });
    }

    fn admits(&self) -> bool {
        let now = (self.streams.now)();
        let was_due = self.flood.borrow().due();
        let admitted = self.flood.borrow_mut().admits(now);
        if was_due.is_none() && self.flood.borrow().due().is_some() {
            tokio::task::spawn_local(self.clone().sum_up());
        }
        admitted
    }

    async fn sum_up(self) {
        let Some(due) = self.flood.borrow().due() else { return };
        sleep_until(due.into()).await;
        let withheld = self.flood.borrow_mut().poll_summary((self.streams.now)().max(due));
        if let Some(withheld) = withheld {
            self.tell(&paint(&format!("and {withheld} more changes in this second"), Paint::Dim, self.color));
        }
    }

    /// Remembers the keys of a record for completion.
    fn see(&self, output: &Output) {
        let key = match output {
            Output::Got { key, .. }
            | Output::Set { key, .. }
            | Output::Deleted { key, .. }
            | Output::Locked { key, .. }
            | Output::LockHeld { key, .. }
            | Output::Unlocked { key, .. }
            | Output::Listed { key, .. }
            | Output::Holder { key, .. } => key,
            Output::Watched {
                event:
                    WatchEvent::Current { key, .. }
                    | WatchEvent::Set { key, .. }
                    | WatchEvent::Delete { key, .. }
                    | WatchEvent::Resync { key, .. },
                ..
            } => key,
            _ => return,
        };
        self.live.see_key(key.as_bytes());
    }
}

/// An error with what to try next, as it is typed here.
fn told(error: &CommandError, style: &Style) -> String {
    let here = |hint: &String| hint.strip_prefix("mqkv ").unwrap_or(hint).to_owned();
    let error = CommandError { hints: error.hints.iter().map(here).collect(), ..error.clone() };
    render::error::error(&error, code(error.kind), style)
}

fn code(kind: Kind) -> u8 {
    kind.code()
}
