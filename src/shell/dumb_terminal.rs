//! Lines of a terminal in which none can be edited: it gives them whole, and clears them itself at Ctrl-C.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::editor::Typed;
use super::line::is_open;
use crate::shell::printer::Streams;
use crate::shell::shared_state::Live;

/// Reads lines in one thread, and has them begun again from another.
pub struct Plain {
    live: Arc<Live>,
    streams: Streams,
    /// What was entered of a text that goes on is not wanted any more.
    is_cleared: AtomicBool,
}

impl Plain {
    /// Reads standard input.
    #[must_use]
    pub fn new(live: Arc<Live>, streams: Streams) -> Self {
        Self { live, streams, is_cleared: AtomicBool::new(false) }
    }

    /// Reads a line, and those that follow within its quotes, on a terminal of so many columns.
    pub fn read(&self, columns: usize) -> Typed {
        self.is_cleared.store(false, Ordering::SeqCst);
        self.put(&self.live.begin_prompt(columns));
        let mut text = Vec::new();
        loop {
            let before = text.len();
            match io::stdin().lock().read_until(b'\n', &mut text) {
                Ok(0) => return Typed::End,
                Ok(_) => {}
                Err(_) => return Typed::Broken,
            }
            if self.is_cleared.swap(false, Ordering::SeqCst) {
                text.drain(..before);
            }
            if !is_open(&text) {
                text.pop_if(|last| *last == b'\n');
                return String::from_utf8(text).map_or(Typed::Garbled, Typed::Line);
            }
        }
    }

    /// After a Ctrl-C: forgets what was entered of a text that goes on, and shows the prompt anew.
    pub fn begin_again(&self) {
        self.is_cleared.store(true, Ordering::SeqCst);
        // The terminal has shown ^C, and the cursor stands behind it.
        self.put(&format!("\n{}", self.live.begin_prompt(self.live.columns())));
    }

    fn put(&self, text: &str) {
        // A terminal that is gone is told by the next line.
        let _ = (self.streams.data)(text.as_bytes(), false);
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plain").field("is_cleared", &self.is_cleared).finish_non_exhaustive()
    }
}
