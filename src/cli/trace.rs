//! `--trace`: packets as lines on standard error or in a file, written without delaying the verb.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::log::Log;
use super::report;
use crate::client::Tracer;
use crate::client::trace::{Packet, TraceEvent};
use crate::commands::{CommandError, trace};
use crate::platform::append_private;
use crate::render::Style;
use crate::render::escape::escape;

/// Maximum size of the lines that wait to be written: a verb can be faster than a terminal for a while.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Returns a tracer that prints each failed attempt to connect, with --verbose and --retries.
#[must_use]
pub fn attempts(retries: u32, style: &Style) -> Option<Tracer> {
    if retries == 0 || !style.verbose || !report::takes_warnings(style) {
        return None;
    }
    let (left, all) = (AtomicU32::new(retries), retries.saturating_add(1));
    Some(Tracer::new(true, move |traced, _| match traced {
        TraceEvent::Lost { cause, again_in: Some(delay) } => {
            let before = left.load(Ordering::Relaxed);
            if before > 0 {
                left.store(before.saturating_sub(1), Ordering::Relaxed);
                let (number, cause) = (all.saturating_sub(before), escape(cause.as_bytes()));
                let delay_ms = delay.as_millis();
                report::log(&format!(
                    "attempt {number} of {all} failed: {cause}; the next one in {delay_ms} ms"
                ));
            }
        }
        // Later losses are no attempts.
        TraceEvent::Received(Packet::ConnAck { .. }) => left.store(0, Ordering::Relaxed),
        _ => {}
    }))
}

/// A running trace.
#[derive(Debug)]
pub struct Tracing {
    /// Receives the packets.
    pub tracer: Tracer,
    log: Log,
}

impl Tracing {
    /// Starts a trace if `to` requests one: to a file, or to standard error.
    ///
    /// # Errors
    /// The file cannot be opened. A later write error ends the trace only.
    pub fn start(to: Option<&Option<PathBuf>>, style: &Style) -> Result<Option<Self>, CommandError> {
        Ok(match to {
            None => None,
            Some(None) => {
                let color = style.color_stderr;
                Some(Self::begin(*style, move |line| report::put_words(line, color))?)
            }
            Some(Some(path)) => Some(Self::to_file(path, style)?),
        })
    }

    /// Starts a trace to a file. A new file is readable by its owner only.
    pub fn to_file(path: &Path, style: &Style) -> Result<Self, CommandError> {
        let file = append_private(path);
        let mut file = Some(file.map_err(|error| CommandError::file("write the trace to", path, &error))?);
        let name = escape(path.as_os_str().as_encoded_bytes());
        Self::begin(Style { color_stderr: false, stderr_is_terminal: false, ..*style }, move |line| {
            let written = file.as_mut().map_or(Ok(()), |file: &mut File| file.write_all(line.as_bytes()));
            if let Err(error) = written {
                file = None;
                report::log(&format!("warning: the trace ends: cannot write {name}: {error}"));
            }
        })
    }

    fn begin(style: Style, mut write: impl FnMut(&str) + Send + 'static) -> Result<Self, CommandError> {
        let write_line = move |line: &str| match line.ends_with('\n') {
            true => write(line),
            false => write(&format!("{line}\n")),
        };
        let (log, _) = Log::to(write_line, WAITING_BYTES_MAX)?;
        let lines = log.clone();
        let tracer = Tracer::new(true, move |traced, at_ms| lines.write(trace::line(traced, at_ms, &style)));
        Ok(Self { tracer, log })
    }

    /// Waits until the lines so far are written, for as long as the writer makes progress.
    pub fn finish(&self) {
        self.log.flush();
    }
}
