//! Output while a line is being edited: printed above it, in order.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::shared_state::SharedState;

/// Moves the cursor up a line and down again. It changes nothing, but the editor paints its prompt anew after it. In the first row of
/// a screen, where the cursor cannot move up, the prompt moves down a row.
const NOTHING: &str = "\x1b[A\n";

/// How many texts may wait for the terminal before droppable ones are dropped.
const WAITING_MAX: usize = 1024;

/// The same while another program has the terminal.
const HELD_WAITING_MAX: usize = 50;

/// Access to the line that is being edited.
pub struct LineOnScreen {
    /// Prints a text above the line, or at the cursor while there is no line.
    pub print: Box<dyn FnMut(String) -> io::Result<()> + Send>,
    /// Returns whether a line is being edited.
    pub is_edited: Box<dyn Fn() -> bool + Send>,
    /// Paints prompt and line anew, with a prompt of another width.
    pub restart: Box<dyn Fn() + Send>,
}

/// The queue of the printing thread. Clones share it.
#[derive(Clone)]
pub struct Screen {
    messages: Sender<Message>,
    /// The number of texts in the queue.
    waiting: Arc<AtomicUsize>,
    hold: Arc<Hold>,
}

/// Whether another program has the terminal.
#[derive(Debug, Default)]
struct Hold {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Hold {
    fn set(&self, is_held: bool) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
        self.released.notify_all();
    }

    fn is_held(&self) -> bool {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.released.wait_while(is_held, |is_held| *is_held));
    }
}

/// Keeps the output in the queue until it is dropped.
#[derive(Debug)]
pub struct HeldScreen(Arc<Hold>);

impl Drop for HeldScreen {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

enum Message {
    Text(String),
    Repaint,
}

impl Screen {
    /// Starts the printing thread. It is a thread because the editor blocks it while the line cannot be disturbed.
    /// Without `line`, texts are written by `words`.
    pub fn start(
        line: Option<LineOnScreen>,
        words: fn(&str, bool),
        state: Arc<SharedState>,
    ) -> io::Result<Self> {
        let (messages, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let hold = Arc::new(Hold::default());
        let (counter, holder) = (Arc::clone(&waiting), Arc::clone(&hold));
        let run = move || run(&receiver, &counter, &holder, line, words, &state);
        thread::Builder::new().name("screen".to_owned()).spawn(run)?;
        Ok(Self { messages, waiting, hold })
    }

    /// Returns whether the terminal keeps up with the output.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let max = if self.hold.is_held() { HELD_WAITING_MAX } else { WAITING_MAX };
        self.waiting.load(Ordering::Relaxed) < max
    }

    /// Keeps the output in the queue while another program has the whole terminal.
    #[must_use]
    pub fn hold(&self) -> HeldScreen {
        self.hold.set(true);
        HeldScreen(Arc::clone(&self.hold))
    }

    /// Prints lines, unless the terminal does not keep up.
    pub fn print_if_room(&self, text: String) {
        if self.has_room() {
            self.print(text);
        }
    }

    /// Prints lines; each ends with a line feed.
    pub fn print(&self, text: String) {
        if !text.is_empty() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
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
    hold: &Hold,
    mut line: Option<LineOnScreen>,
    words: fn(&str, bool),
    state: &SharedState,
) {
    while let Ok(message) = messages.recv() {
        hold.wait();
        let is_edited = line.as_ref().is_some_and(|line| (line.is_edited)());
        let text = match message {
            Message::Text(text) => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                text
            }
            Message::Repaint if is_edited => NOTHING.to_owned(),
            Message::Repaint => continue,
        };
        let Some(on_screen) = &mut line else {
            words(&text, true);
            continue;
        };
        if (on_screen.print)(text).is_err() {
            line = None;
        } else if is_edited && state.is_prompt_outdated() {
            (on_screen.restart)();
        }
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Screen").finish_non_exhaustive()
    }
}
