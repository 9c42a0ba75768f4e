//! Output of the packet trace: above the line being edited, or on standard error before the editor starts.

use std::sync::{Arc, OnceLock};

use super::screen::Screen;

/// The destination of trace lines. Clones share it.
#[derive(Clone, Debug)]
pub struct TraceOutput {
    screen: Arc<OnceLock<Screen>>,
    words: fn(&str, bool),
    color: bool,
}

impl TraceOutput {
    /// `words` writes to standard error, with color if `color` is set.
    #[must_use]
    pub fn new(words: fn(&str, bool), color: bool) -> Self {
        Self { screen: Arc::default(), words, color }
    }

    /// Prints a line. Drops it if the terminal is too slow: the session must not wait for a trace.
    pub fn print(&self, line: String) {
        match self.screen.get() {
            Some(screen) => screen.print_if_room(line),
            None => (self.words)(&line, self.color),
        }
    }

    /// Sends the following lines to a screen.
    pub(super) fn attach(&self, screen: Screen) {
        // A process has one prompt, so the screen is set once.
        let _ = self.screen.set(screen);
    }
}
