//! `--trace`: lines to standard error or to a file, written beside what the verb does and never in its way.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::log::Log;
use super::report;
use crate::client::Tracer;
use crate::commands::CommandError;
use crate::render::escape::escape;
use crate::render::{Style, trace};

/// How many bytes of lines may wait: a verb may be faster than a terminal, for a while.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A trace that is written.
#[derive(Debug)]
pub struct Tracing {
    /// What is told of it.
    pub tracer: Tracer,
    log: Log,
}

impl Tracing {
    /// Begins a trace, if one is asked for: to a file, or to standard error.
    ///
    /// # Errors
    /// The file cannot be opened. One that takes no more, later on, ends nothing but the trace.
    pub fn start(to: Option<&Option<PathBuf>>, style: &Style) -> Result<Option<Self>, CommandError> {
        Ok(match to {
            None => None,
            Some(None) => {
                let color = style.color_words;
                Some(Self::begin(*style, move |line| report::put_words(line, color))?)
            }
            Some(Some(path)) => Some(Self::to_file(path, style)?),
        })
    }

    /// Begins a trace to a file, which is made if it is not there, for its owner alone to read.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn to_file(path: &Path, style: &Style) -> Result<Self, CommandError> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let mut file = Some(file.map_err(|error| CommandError::file("write the trace to", path, &error))?);
        let name = escape(path.as_os_str().as_encoded_bytes());
        Self::begin(Style { color_words: false, ..*style }, move |line| {
            let written = file.as_mut().map_or(Ok(()), |file: &mut File| file.write_all(line.as_bytes()));
            if let Err(error) = written {
                file = None;
                report::log(&format!("the trace in {name} ends here: {error}"));
            }
        })
    }

    fn begin(style: Style, mut write: impl FnMut(&str) + Send + 'static) -> Result<Self, CommandError> {
        let write_line = move |line: &str| match line.ends_with('\n') {
            true => write(line),
            false => write(&format!("{line}\n")),
        };
        let (log, _) = Log::to(write_line, WAITING_BYTES_MAX)?;
        let told = log.clone();
        let tracer = Tracer::new(true, move |traced, at_ms| told.tell(trace::line(traced, at_ms, &style)));
        Ok(Self { tracer, log })
    }

    /// Waits until all of it is written, but not for one who does not read.
    pub fn finish(&self) {
        self.log.flush();
    }
}
