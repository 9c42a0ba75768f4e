//! The way out: data to standard output, words to standard error, each record flushed.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};

use super::exit::Exit;
use crate::commands::{CommandError, Output};
use crate::render::{self, Style};

/// Puts out what the verbs say.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    closed: bool,
}

impl Reporter {
    /// A reporter for both streams.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self { style, closed: false }
    }

    /// Puts out one record.
    ///
    /// # Errors
    /// Standard output takes no more. Standard error may be closed: words are not worth failing for.
    pub fn put(&mut self, output: &Output) -> io::Result<()> {
        let rendered = render::output(output, &self.style);
        put_words(&rendered.words, self.style.color_words);
        self.data(&rendered.data)
    }

    /// Puts out bytes as they are.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let result = put_data(bytes, self.style.color_data);
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }

    /// Whether whoever read standard output has left: they have had enough, which is no failure.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether standard output takes colour.
    #[must_use]
    pub fn has_color(&self) -> bool {
        self.style.color_data
    }

    /// Puts out an error and says how the process ends.
    pub fn error(&self, error: &CommandError) -> Exit {
        let exit = Exit::from(error.kind);
        let words = render::error::error(error, exit.code(), &self.style);
        put_words(&words, self.style.color_words);
        exit
    }
}

/// Puts out a line for the operator. Standard error may be closed: nobody is served worse for it.
pub fn log(line: &str) {
    put_words(&format!("{line}\n"), false);
}

fn put_data(bytes: &[u8], color: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if color {
        let mut stdout = AutoStream::new(stdout, ColorChoice::Always);
        stdout.write_all(bytes)?;
        return stdout.flush();
    }
    // Nothing may stand between a value and the pipe.
    stdout.write_all(bytes)?;
    stdout.flush()
}

fn put_words(words: &str, color: bool) {
    if words.is_empty() {
        return;
    }
    let choice = if color { ColorChoice::Always } else { ColorChoice::Never };
    let mut stderr = AutoStream::new(io::stderr().lock(), choice);
    let _ = stderr.write_all(words.as_bytes());
    let _ = stderr.flush();
}
