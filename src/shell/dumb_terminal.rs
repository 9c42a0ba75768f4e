//! Line input on a dumb terminal, where no line can be edited: the terminal delivers whole lines.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::input::Input;
use super::line::is_open;
use super::shared_state::SharedState;
use super::streams::Streams;

/// Prompt for a line that continues a quote, as in a POSIX shell (PS2).
const CONTINUATION: &str = "> ";

/// Reads lines in one thread; another thread restarts the input after Ctrl-C.
pub struct DumbTerminal {
    state: Arc<SharedState>,
    streams: Streams,
    /// Ctrl-C was pressed: the lines of an unfinished quote that were read so far are dropped.
    is_cleared: AtomicBool,
}

impl DumbTerminal {
    #[must_use]
    pub fn new(state: Arc<SharedState>, streams: Streams) -> Self {
        Self { state, streams, is_cleared: AtomicBool::new(false) }
    }

    /// Reads a line from standard input, and the lines that continue its quotes.
    pub fn read(&self, columns: usize) -> Input {
        self.is_cleared.store(false, Ordering::SeqCst);
        self.write(&self.state.begin_prompt(columns));
        let mut text = Vec::new();
        loop {
            let before = text.len();
            match io::stdin().lock().read_until(b'\n', &mut text) {
                Ok(0) => return Input::End,
                Ok(_) => {}
                Err(_) => return Input::Lost,
            }
            if self.is_cleared.swap(false, Ordering::SeqCst) {
                text.drain(..before);
            }
            if !is_open(&text) {
                text.pop_if(|last| *last == b'\n');
                return String::from_utf8(text).map_or(Input::InvalidUtf8, Input::Line);
            }
            // Shows that the line was read: a Ctrl-C from now on drops it.
            self.write(CONTINUATION);
        }
    }

    /// Drops the lines of an unfinished quote and prints the prompt again, after a Ctrl-C.
    pub fn restart(&self) {
        self.is_cleared.store(true, Ordering::SeqCst);
        // The terminal has echoed ^C, and the cursor is behind it.
        self.write(&format!("\n{}", self.state.begin_prompt(self.state.columns())));
    }

    fn write(&self, text: &str) {
        // If the terminal is gone, the next read reports it.
        let _ = (self.streams.data)(text.as_bytes(), false);
    }
}

impl fmt::Debug for DumbTerminal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DumbTerminal").field("is_cleared", &self.is_cleared).finish_non_exhaustive()
    }
}
