//! What is printed while a line is being typed: above it, in order, without disturbing it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::editor::Above;
use crate::shell::shared_state::Live;

/// Goes up a line and down again: nothing is left of it, but the prompt is painted anew.
const NOTHING: &str = "\x1b[A\n";

/// Where what runs in the background is told. Clones share it.
#[derive(Clone)]
pub struct Screen {
    said: Sender<Said>,
    /// How many lines wait that there may be too many of.
    waiting: Arc<AtomicUsize>,
}

/// How many such lines may wait; what comes on top is lost.
const WAITING_MAX: usize = 1024;

enum Said {
    Text(String),
    /// One of the lines that are counted.
    Counted(String),
    Repaint,
}

impl Screen {
    /// Starts the printer: a thread, for it waits while the line cannot be disturbed.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(above: Option<Above>, plain: fn(&str), live: Arc<Live>) -> io::Result<Self> {
        let (said, heard) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&waiting);
        let run = move || run(&heard, &counted, above, plain, &live);
        thread::Builder::new().name("screen".to_owned()).spawn(run)?;
        Ok(Self { said, waiting })
    }

    /// Prints lines, unless too many of this kind wait already.
    pub fn tell_if_room(&self, text: String) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            let _ = self.said.send(Said::Counted(text));
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Prints lines; each ends with its line feed.
    pub fn tell(&self, text: String) {
        if !text.is_empty() {
            // The printer ends with the process.
            let _ = self.said.send(Said::Text(text));
        }
    }

    /// Has the prompt show what is so by now.
    pub fn repaint(&self) {
        let _ = self.said.send(Said::Repaint);
    }
}

fn run(
    heard: &Receiver<Said>,
    waiting: &AtomicUsize,
    mut above: Option<Above>,
    plain: fn(&str),
    live: &Live,
) {
    while let Ok(said) = heard.recv() {
        let text = match said {
            Said::Text(text) => text,
            Said::Counted(text) => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                text
            }
            Said::Repaint if live.is_editing() => NOTHING.to_owned(),
            Said::Repaint => continue,
        };
        let printed = match &mut above {
            Some(print) => print(text).is_ok(),
            None => {
                plain(&text);
                true
            }
        };
        if !printed {
            above = None;
        }
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Screen").finish_non_exhaustive()
    }
}
