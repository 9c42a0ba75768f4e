//! What is printed while a line is being typed: above it, in order, without disturbing it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::editor::Above;
use super::live::Live;

/// Goes up a line and down again: nothing is left of it, but the prompt is painted anew.
const NOTHING: &str = "\x1b[A\n";

/// Where what runs in the background is told. Clones share it.
#[derive(Clone)]
pub struct Screen {
    said: Sender<Said>,
}

enum Said {
    Text(String),
    Repaint,
}

impl Screen {
    /// Starts the printer: a thread, for it waits while the line cannot be disturbed.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(above: Option<Above>, plain: fn(&str), live: Arc<Live>) -> io::Result<Self> {
        let (said, heard) = channel();
        thread::Builder::new().name("screen".to_owned()).spawn(move || run(&heard, above, plain, &live))?;
        Ok(Self { said })
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

fn run(heard: &Receiver<Said>, mut above: Option<Above>, plain: fn(&str), live: &Live) {
    while let Ok(said) = heard.recv() {
        let text = match said {
            Said::Text(text) => text,
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
