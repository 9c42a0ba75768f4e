//! What a server tells its operator, written by a thread of its own: whoever does not read it holds nobody up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use super::report;
use crate::commands::{CommandError, Kind};

/// How many lines may wait to be written; what comes on top is counted, not kept.
const LINES_MAX: usize = 1024;
/// How long the last lines may take at the end.
const FAREWELL: Duration = Duration::from_millis(200);

/// The way to the operator: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<String>,
    untold: Arc<AtomicU64>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    done: Receiver<()>,
}

impl Log {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts no other thread.
    pub fn start() -> Result<(Self, Writer), CommandError> {
        let (lines, waiting) = sync_channel::<String>(LINES_MAX);
        let (ended, done) = channel();
        let untold = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&untold);
        let write = move || {
            for line in waiting {
                report::log(&line);
                let untold = counted.swap(0, Ordering::Relaxed);
                if untold > 0 {
                    report::log(&format!("{untold} more lines were not written: nobody read them in time"));
                }
            }
            // Nobody may wait for it any more.
            let _ = ended.send(());
        };
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write);
        thread.map_err(|error| CommandError::new(Kind::Bug, format!("cannot start a thread: {error}")))?;
        Ok((Self { lines, untold }, Writer { done }))
    }

    /// Tells the operator, if there is room.
    pub fn tell(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Waits until everything is written, if every [`Log`] is gone, but not for one who does not read.
    pub fn finish(self) {
        let _ = self.done.recv_timeout(FAREWELL);
    }
}
