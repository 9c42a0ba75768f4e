//! Output while a line is being edited: printed above it, in order.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::shared_state::SharedState;

/// Moves the cursor up a line and down again. It changes nothing, but the editor paints its prompt anew after it.
const NOTHING: &str = "\x1b[A\n";

/// How many droppable lines may wait for the terminal.
const WAITING_MAX: usize = 1024;

/// Prints a text above the line that is being edited.
pub type PrintAbove = Box<dyn FnMut(String) -> io::Result<()> + Send>;

/// The queue of the printing thread. Clones share it.
#[derive(Clone)]
pub struct Screen {
    messages: Sender<Message>,
    /// The number of droppable lines in the queue.
    waiting: Arc<AtomicUsize>,
}

enum Message {
    Text(String),
    /// A droppable line; counted in `waiting`.
    Droppable(String),
    Repaint,
}

impl Screen {
    /// Starts the printing thread. It is a thread because the editor blocks it while the line cannot be disturbed.
    /// Without `above`, texts are written by `words`.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        above: Option<PrintAbove>,
        words: fn(&str, bool),
        state: Arc<SharedState>,
    ) -> io::Result<Self> {
        let (messages, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        let run = move || run(&receiver, &counter, above, words, &state);
        thread::Builder::new().name("screen".to_owned()).spawn(run)?;
        Ok(Self { messages, waiting })
    }

    /// Prints lines, unless too many droppable ones wait already.
    pub fn print_if_room(&self, text: String) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            let _ = self.messages.send(Message::Droppable(text));
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Prints lines; each ends with a line feed.
    pub fn print(&self, text: String) {
        if !text.is_empty() {
            // The thread runs until the process exits.
            let _ = self.messages.send(Message::Text(text));
        }
    }

    /// Repaints the prompt with the current state.
    pub fn repaint(&self) {
        let _ = self.messages.send(Message::Repaint);
    }
}

fn run(
    messages: &Receiver<Message>,
    waiting: &AtomicUsize,
    mut above: Option<PrintAbove>,
    words: fn(&str, bool),
    state: &SharedState,
) {
    while let Ok(message) = messages.recv() {
        let text = match message {
            Message::Text(text) => text,
            Message::Droppable(text) => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                text
            }
            Message::Repaint if state.is_editing() => NOTHING.to_owned(),
            Message::Repaint => continue,
        };
        let is_printed = match &mut above {
            Some(print) => print(text).is_ok(),
            None => {
                words(&text, true);
                true
            }
        };
        if !is_printed {
            above = None;
        }
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Screen").finish_non_exhaustive()
    }
}
