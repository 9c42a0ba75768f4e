//! The way out: data to standard output, words to standard error, each record flushed.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

use anstream::{AutoStream, ColorChoice};

use super::exit::Exit;
use super::progress::Bar;
use crate::commands::{CommandError, Output};
use crate::render::escape::escape;
use crate::render::{self, Format, Style};

/// How much may be held back before it is written.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Puts out what the verbs say.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    closed: bool,
    /// Data held back until [`Reporter::flush`]; none: each record is written at once.
    held: Option<Vec<u8>>,
    bar: Bar,
    data_on_terminal: bool,
}

impl Reporter {
    /// A reporter for both streams.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self { style, closed: false, held: None, bar: Bar::new(false), data_on_terminal: false }
    }

    /// From now on data is held back until [`Reporter::flush`], and progress is shown if `bar`.
    pub fn hold(&mut self, bar: bool) {
        self.held = Some(Vec::with_capacity(HELD_BYTES_MAX));
        self.bar = Bar::new(bar && !self.style.quiet);
        self.data_on_terminal = io::stdout().is_terminal();
    }

    /// Puts out one record.
    ///
    /// # Errors
    /// Standard output takes no more. Standard error may be closed: words are not worth failing for.
    pub fn put(&mut self, output: &Output) -> io::Result<()> {
        if let Output::Progress(progress) = output {
            self.bar.show(progress);
            return Ok(());
        }
        let rendered = render::output(output, &self.style);
        if !rendered.stderr.is_empty() {
            // What was said before goes first.
            self.flush()?;
            self.bar.suspend(|| put_words(&rendered.stderr, self.style.color_stderr));
        }
        self.data(&rendered.stdout)
    }

    /// Puts out bytes as they are.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(held) = &mut self.held else {
            let result = put_data(bytes, self.style.color_stdout);
            return self.note(result);
        };
        let is_full = held.len().saturating_add(bytes.len()) > HELD_BYTES_MAX;
        held.extend_from_slice(bytes);
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Writes what was held back.
    ///
    /// # Errors
    /// Standard output takes no more; a file then ends with the last line that it took whole.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(held) = self.held.as_mut().filter(|held| !held.is_empty()) else {
            return Ok(());
        };
        let bytes = std::mem::replace(held, Vec::with_capacity(HELD_BYTES_MAX));
        let color = self.style.color_stdout;
        if self.data_on_terminal {
            // What is shown there is progress enough.
            self.bar.clear();
        }
        let result =
            self.bar.suspend(|| if color { put_data(&bytes, color) } else { put_whole_lines(&bytes) });
        self.note(result)
    }

    fn note(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        result
    }

    /// Takes the progress away.
    pub fn clear(&mut self) {
        self.bar.clear();
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

    /// Whether output and errors are objects.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.style.format == Format::Json
    }

    /// Whether standard output takes colour.
    #[must_use]
    pub fn has_color(&self) -> bool {
        self.style.color_stdout
    }

    /// Tells which variables may have been meant by others.
    pub fn warn_of_names(&self, names: &[(String, String)]) {
        if !takes_warnings(&self.style) {
            return;
        }
        for (name, meant) in names {
            let name = escape(name.as_bytes());
            log(&format!("warning: {name} means nothing here; is {meant} meant?"));
        }
    }

    /// Puts out an error and says how the process ends.
    pub fn error(&self, error: &CommandError) -> Exit {
        let exit = Exit::from(error.kind);
        let words = render::error::error(error, exit.code(), &self.style);
        put_words(&words, self.style.color_stderr);
        exit
    }
}

/// Whether warnings are to be told: where errors are objects, nobody reads words.
#[must_use]
pub fn takes_warnings(style: &Style) -> bool {
    !style.quiet && style.format != Format::Json
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

/// Writes without a buffer in between, so that it is known what a full disk has taken.
fn put_whole_lines(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut rest = bytes;
    while !rest.is_empty() {
        let error = match stdout.write(rest) {
            Ok(0) => ErrorKind::WriteZero.into(),
            Ok(len) => {
                rest = rest.get(len..).unwrap_or_default();
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let written = bytes.len().saturating_sub(rest.len());
        let whole = bytes.get(..written).and_then(|bytes| bytes.iter().rposition(|byte| *byte == b'\n'));
        let torn = written.saturating_sub(whole.map_or(0, |last| last.saturating_add(1)));
        // The error that matters is the one of writing.
        let _ = cut(&mut stdout, torn);
        return Err(error);
    }
    Ok(())
}

/// Takes the last bytes off a file, if it is one, and nobody else has written behind them.
fn cut(stdout: &mut File, torn: usize) -> io::Result<()> {
    let metadata = stdout.metadata()?;
    let end = stdout.stream_position()?;
    if metadata.is_file() && metadata.len() == end {
        let len = end.saturating_sub(u64::try_from(torn).unwrap_or(0));
        stdout.set_len(len)?;
        stdout.seek(SeekFrom::Start(len))?;
    }
    Ok(())
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
