//! The way out: data to standard output, words to standard error, each record flushed.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
#[cfg(unix)]
use tokio::io::{Interest, unix::AsyncFd};

use super::exit::Exit;
use crate::commands::session::Waiting;
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

    /// How output is shown.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style
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

/// Resolves when whoever read standard output has left: a watch that has nothing to say would not notice otherwise.
///
/// Never, where standard output is a file or the system cannot tell.
#[must_use]
#[cfg_attr(unix, expect(deprecated, reason = "its successor is unsafe; standard output stays what it is"))]
pub fn output_closed() -> Waiting {
    Box::pin(async {
        #[cfg(unix)]
        if let Ok(stdout) = AsyncFd::with_interest(io::stdout(), Interest::ERROR) {
            while let Ok(mut guard) = stdout.ready(Interest::ERROR).await {
                if guard.ready().is_error() || guard.ready().is_write_closed() {
                    return;
                }
                guard.clear_ready();
            }
        }
        std::future::pending().await
    })
}

/// Puts out a line for the operator. Standard error may be closed: nobody is served worse for it.
pub fn log(line: &str) {
    put_words(&format!("{line}\n"), false);
}

/// Puts bytes on standard output.
///
/// # Errors
/// It takes no more.
pub fn put_data(bytes: &[u8], color: bool) -> io::Result<()> {
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

/// Puts words on standard error, which may be closed.
pub fn put_words(words: &str, color: bool) {
    if words.is_empty() {
        return;
    }
    let choice = if color { ColorChoice::Always } else { ColorChoice::Never };
    let mut stderr = AutoStream::new(io::stderr().lock(), choice);
    let _ = stderr.write_all(words.as_bytes());
    let _ = stderr.flush();
}
