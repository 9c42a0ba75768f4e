//! Lines of a log or trace, written by a thread of its own: a slow reader does not block the writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::report;
use crate::commands::CommandError;

/// Maximum size of the lines that wait to be written; further lines are dropped and counted.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Time to wait for progress of the writer at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Sender of lines: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Log {
    lines: Sender<Message>,
    counts: Arc<Counts>,
    waiting_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Answered when all lines before it are written.
    Flush(Sender<()>),
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    done: Receiver<()>,
}

impl Log {
    /// Starts a thread that writes to standard error; `unread` returns the line for the number of dropped lines.
    pub fn start(unread: impl Fn(u64) -> String + Send + 'static) -> Result<(Self, Writer), CommandError> {
        Self::with(report::log, WAITING_BYTES_MAX, unread)
    }

    /// Formats the number of dropped lines.
    #[must_use]
    pub fn unread(count: u64) -> String {
        match count {
            1 => "1 more line was dropped: it was not read in time".to_owned(),
            count => format!("{count} more lines were dropped: they were not read in time"),
        }
    }

    /// Starts a thread that writes with `write`.
    pub fn to(
        write: impl FnMut(&str) + Send + 'static,
        waiting_bytes_max: usize,
    ) -> Result<(Self, Writer), CommandError> {
        Self::with(write, waiting_bytes_max, Self::unread)
    }

    fn with(
        mut write: impl FnMut(&str) + Send + 'static,
        waiting_bytes_max: usize,
        unread: impl Fn(u64) -> String + Send + 'static,
    ) -> Result<(Self, Writer), CommandError> {
        let (lines, waiting) = channel();
        let (ended, done) = channel();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let write = move || {
            for message in waiting {
                match message {
                    Message::Line(line) => {
                        write(&line);
                        counted.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    }
                    Message::Flush(flushed) => drop(flushed.send(())),
                }
                let dropped = counted.dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    write(&unread(dropped));
                }
            }
            // An error means that the process no longer waits for the end.
            let _ = ended.send(());
        };
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write);
        thread.map_err(|error| CommandError::system("start a thread", &error))?;
        Ok((Self { lines, counts, waiting_bytes_max }, Writer { done }))
    }

    /// Queues a line, or drops and counts it if too many bytes wait already.
    pub fn write(&self, line: String) {
        let len = line.len();
        let waiting = self.counts.waiting_bytes.fetch_add(len, Ordering::Relaxed);
        let has_room = waiting.saturating_add(len) <= self.waiting_bytes_max;
        if !has_room || self.lines.send(Message::Line(line)).is_err() {
            self.counts.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the lines so far are written, for as long as the writer makes progress.
    pub fn flush(&self) {
        let (flush, flushed) = channel();
        if self.lines.send(Message::Flush(flush)).is_err() {
            return;
        }
        let mut waiting = usize::MAX;
        loop {
            let left = self.counts.waiting_bytes.load(Ordering::Relaxed);
            if left >= waiting || flushed.recv_timeout(FLUSH_TIMEOUT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            waiting = left;
        }
    }
}

impl Writer {
    /// Waits until everything is written, but not longer than a moment. Every [`Log`] must have been dropped before.
    pub fn finish(self) {
        let _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}
