//! Output: data to standard output, messages to standard error, each record flushed.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Seek, SeekFrom, Write};
use std::path::Path;

use anstream::{AutoStream, ColorChoice};

use super::file_permissions;
use super::progress::Bar;
use crate::commands::{CommandError, Exit};
use crate::platform;
use crate::render::escape::escape;
use crate::render::{Format, Record, Style, Widths, rendered};

/// Maximum size of held-back data.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Writes the output of the verbs.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    has_broken_pipe: bool,
    /// Data held back until [`Reporter::flush`]; `None` if each record is written at once.
    held: Option<Vec<u8>>,
    bar: Bar,
    data_on_terminal: bool,
    widths: Widths,
}

impl Reporter {
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self {
            style,
            has_broken_pipe: false,
            held: None,
            bar: Bar::new(false),
            data_on_terminal: false,
            widths: Widths::default(),
        }
    }

    /// Holds back data from now on until [`Reporter::flush`], and shows progress if `bar`.
    pub fn hold(&mut self, bar: bool) {
        self.held = Some(Vec::with_capacity(HELD_BYTES_MAX));
        self.bar = Bar::new(bar && !self.style.quiet);
        self.data_on_terminal = io::stdout().is_terminal();
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Standard output cannot be written. Errors of standard error are ignored: messages are not data.
    pub fn put(&mut self, record: &dyn Record) -> io::Result<()> {
        if let Some(progress) = record.progress() {
            self.bar.show(&progress);
            return Ok(());
        }
        let rendered = rendered(record, &self.style, &mut self.widths);
        self.data(&rendered.stdout)?;
        if !rendered.stderr.is_empty() {
            // Keeps the order of data and messages on a terminal: the message of a record is about its data.
            self.flush()?;
            self.bar.suspend(|| put_words(&rendered.stderr, self.style.color_stderr));
        }
        Ok(())
    }

    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(held) = &mut self.held else {
            let result = put_data(bytes, self.style.color_stdout);
            return self.note_broken_pipe(result);
        };
        let is_full = held.len().saturating_add(bytes.len()) > HELD_BYTES_MAX;
        held.extend_from_slice(bytes);
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Writes the held-back data.
    ///
    /// # Errors
    /// Standard output cannot be written; a file then ends with the last complete line.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(held) = self.held.as_mut().filter(|held| !held.is_empty()) else {
            return Ok(());
        };
        let bytes = std::mem::replace(held, Vec::with_capacity(HELD_BYTES_MAX));
        let color = self.style.color_stdout;
        if self.data_on_terminal {
            // The data itself shows the progress there.
            self.bar.clear();
        }
        let result =
            self.bar.suspend(|| if color { put_data(&bytes, color) } else { put_whole_lines(&bytes) });
        self.note_broken_pipe(result)
    }

    fn note_broken_pipe(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.has_broken_pipe |= result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        result
    }

    /// Removes the progress bar.
    pub fn clear(&mut self) {
        self.bar.clear();
    }

    /// Returns whether the reader of standard output has closed it, which is not a failure.
    #[must_use]
    pub fn has_broken_pipe(&self) -> bool {
        self.has_broken_pipe
    }

    #[must_use]
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns whether data is colored.
    #[must_use]
    pub fn has_color(&self) -> bool {
        self.style.color_stdout
    }

    /// Warns of unknown variables, each with the one that was probably meant.
    pub fn warn_of_names(&self, names: &[(String, String)]) {
        if !takes_warnings(&self.style) {
            return;
        }
        for (name, meant) in names {
            let name = escape(name.as_bytes());
            log(&format!("warning: unknown variable {name}; did you mean {meant}?"));
        }
    }

    /// Warns if other users can write the configuration file.
    pub fn warn_of_settings(&self, file: &Path) {
        if takes_warnings(&self.style) {
            file_permissions::warning_of_settings(file).iter().for_each(|line| log(line));
        }
    }

    /// Writes an error and returns its exit code.
    pub fn error(&self, error: &CommandError) -> Exit {
        put_words(&error.rendered(&self.style), self.style.color_stderr);
        Exit::Failed(error.kind)
    }
}

/// Returns whether warnings are written: not with --quiet, and not as text beside errors in JSON.
#[must_use]
pub fn takes_warnings(style: &Style) -> bool {
    !style.quiet && style.format != Format::Json
}

/// Writes a line to standard error; errors are ignored.
pub fn log(line: &str) {
    put_words(&format!("{line}\n"), false);
}

/// Writes to standard output.
pub fn put_data(bytes: &[u8], color: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if color {
        let mut stdout = AutoStream::new(stdout, ColorChoice::Always);
        stdout.write_all(bytes)?;
        return stdout.flush();
    }
    // No adapter between: a value is written byte for byte.
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes without a buffer, so that the number of written bytes is known when the disk is full.
fn put_whole_lines(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = platform::stdout_file()?;
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
        // The error of the write is reported, not that of the truncation.
        let _ = cut(&mut stdout, torn);
        return Err(error);
    }
    Ok(())
}

/// Removes the last bytes of standard output, if it is a file that no other process has appended to.
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

/// Writes to standard error; errors are ignored.
pub fn put_words(words: &str, color: bool) {
    if words.is_empty() {
        return;
    }
    let choice = if color { ColorChoice::Always } else { ColorChoice::Never };
    let mut stderr = AutoStream::new(io::stderr().lock(), choice);
    let _ = stderr.write_all(words.as_bytes());
    let _ = stderr.flush();
}
