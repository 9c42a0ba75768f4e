//! What a server tells its operator, and a trace its reader, written by a thread of its own: whoever does not read it
//! holds nobody up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::report;
use crate::commands::CommandError;

/// How many bytes of lines may wait to be written; what comes on top is counted, not kept.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// How long the last lines may take at the end.
const FAREWELL: Duration = Duration::from_millis(200);

/// The way to the operator: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Log {
    lines: Sender<Said>,
    counts: Arc<Counts>,
    waiting_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    untold: AtomicU64,
}

#[derive(Debug)]
enum Said {
    Line(String),
    /// Everything before it is written.
    Flush(Sender<()>),
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    done: Receiver<()>,
}

impl Log {
    /// Starts the thread; `unread` says in a line how many were not written.
    ///
    /// # Errors
    /// The system starts no other thread.
    pub fn start(unread: fn(u64) -> String) -> Result<(Self, Writer), CommandError> {
        Self::with(report::log, WAITING_BYTES_MAX, unread)
    }

    /// Says how many lines were not written.
    #[must_use]
    pub fn unread(count: u64) -> String {
        format!("{count} more lines were not written: nobody read them in time")
    }

    /// Starts a thread that writes lines elsewhere, of which so many bytes may wait.
    ///
    /// # Errors
    /// The system starts no other thread.
    pub fn to(
        write: impl FnMut(&str) + Send + 'static,
        waiting_bytes_max: usize,
    ) -> Result<(Self, Writer), CommandError> {
        Self::with(write, waiting_bytes_max, Self::unread)
    }

    fn with(
        mut write: impl FnMut(&str) + Send + 'static,
        waiting_bytes_max: usize,
        unread: fn(u64) -> String,
    ) -> Result<(Self, Writer), CommandError> {
        let (lines, waiting) = channel();
        let (ended, done) = channel();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let write = move || {
            for said in waiting {
                match said {
                    Said::Line(line) => {
                        write(&line);
                        counted.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    }
                    Said::Flush(flushed) => drop(flushed.send(())),
                }
                let untold = counted.untold.swap(0, Ordering::Relaxed);
                if untold > 0 {
                    write(&unread(untold));
                }
            }
            // Nobody may wait for it any more.
            let _ = ended.send(());
        };
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write);
        thread.map_err(|error| CommandError::system("start a thread", &error))?;
        Ok((Self { lines, counts, waiting_bytes_max }, Writer { done }))
    }

    /// Tells the operator, if there is room.
    pub fn tell(&self, line: String) {
        let len = line.len();
        let waiting = self.counts.waiting_bytes.fetch_add(len, Ordering::Relaxed);
        let has_room = waiting.saturating_add(len) <= self.waiting_bytes_max;
        if !has_room || self.lines.send(Said::Line(line)).is_err() {
            self.counts.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            self.counts.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was told so far is written, but not for one who does not read: there must be progress.
    pub fn flush(&self) {
        let (flush, flushed) = channel();
        if self.lines.send(Said::Flush(flush)).is_err() {
            return;
        }
        let mut waiting = usize::MAX;
        loop {
            let left = self.counts.waiting_bytes.load(Ordering::Relaxed);
            if left >= waiting || flushed.recv_timeout(FAREWELL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            waiting = left;
        }
    }
}

impl Writer {
    /// Waits until everything is written, if every [`Log`] is gone, but not for one who does not read.
    pub fn finish(self) {
        let _ = self.done.recv_timeout(FAREWELL);
    }
}
