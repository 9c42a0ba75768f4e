//! A file that is read again at each use; while it is invalid, its last valid content is used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::error::{IdentityError, LineError};
use crate::files::text;
use crate::net::Secret;
use crate::net::detached::start_detached;
use crate::server::event::{Event, EventSink};

/// More than any list of users has; an endless device must not fill the memory.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time limit of a read. A file on a network disk that hangs must not delay logins any longer.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Parses the content of a file.
type Parse<T> = fn(&[u8]) -> Result<T, LineError>;

/// A file and its parsed content. Clones share it.
pub struct ReloadedFile<T>(Arc<Inner<T>>);

struct Inner<T> {
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<State<T>>,
    /// The number of the latest read that is complete.
    completed: watch::Sender<u64>,
}

struct State<T> {
    /// The last content that was read, valid or not.
    bytes: Secret,
    /// The last valid content.
    valid: Arc<T>,
    /// The error that was reported last. None: the file was valid when it was read last.
    error: Option<String>,
    /// The number of reads that have started.
    started: u64,
    /// The number of the latest read that is wanted.
    wanted: u64,
    /// The number of the latest read whose result is in force.
    applied: u64,
    /// Whether a thread reads the file until no further read is wanted.
    is_reading: bool,
    /// Whether a read of that thread has exceeded its time limit.
    is_late: bool,
}

impl<T: Send + Sync + 'static> ReloadedFile<T> {
    /// Reads the file for the first time. This one time, it may be a pipe.
    pub fn load(path: &Path, parse: Parse<T>) -> Result<Self, IdentityError> {
        let bytes = read(path)?;
        let valid = parse_content(&bytes, parse).map_err(|error| IdentityError::invalid(path, error))?;
        let state = State {
            bytes,
            valid: Arc::new(valid),
            error: None,
            started: 0,
            wanted: 0,
            applied: 0,
            is_reading: false,
            is_late: false,
        };
        let (state, completed) = (Mutex::new(state), watch::Sender::new(0));
        Ok(Self(Arc::new(Inner { path: path.to_owned(), parse, state, completed })))
    }

    /// Reads the file and returns its content, or the last valid content. The timestamps of file systems are too coarse to
    /// show every change, so the file is always read; callers that wait at the same time share one read.
    ///
    /// A read that exceeds the time limit changes nothing until it is complete. Later callers do not wait for it.
    pub async fn current(&self, events: &EventSink) -> Arc<T> {
        self.current_within(READ_TIMEOUT, events).await
    }

    async fn current_within(&self, limit: Duration, events: &EventSink) -> Arc<T> {
        let (wanted, starts) = {
            let mut state = self.0.lock();
            if state.is_late {
                return Arc::clone(&state.valid);
            }
            // A read that has started already may miss a change that the caller expects to be in force.
            state.wanted = state.started.saturating_add(1);
            (state.wanted, !std::mem::replace(&mut state.is_reading, true))
        };
        if starts {
            let (inner, sink) = (Arc::clone(&self.0), Arc::clone(events));
            if let Err(error) = start_detached(move || inner.read_wanted(&sink)) {
                self.0.lock().is_reading = false;
                self.0.note_error(Some(self.0.unreadable(error)), Some(events));
                return self.last();
            }
        }
        let mut completed = self.0.completed.subscribe();
        let wait = completed.wait_for(|completed| *completed >= wanted);
        if timeout(limit, wait).await.is_err() {
            let is_late = {
                let mut state = self.0.lock();
                state.is_late = state.is_reading && state.applied < wanted;
                state.is_late
            };
            if is_late {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the file system does not answer");
                self.0.note_error(Some(self.0.unreadable(error)), Some(events));
            }
        }
        self.last()
    }

    /// Reads the file in this thread. Returns the error if its last valid content stays in force; it is not reported again.
    pub fn reload(&self) -> Option<String> {
        self.0.read_once(None);
        self.0.lock().error.clone()
    }

    /// Returns the last valid content, without reading the file.
    pub fn last(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().valid)
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file until no further read is wanted.
    fn read_wanted(&self, events: &EventSink) {
        loop {
            self.read_once(Some(events));
            let mut state = self.lock();
            if state.applied >= state.wanted {
                (state.is_reading, state.is_late) = (false, false);
                return;
            }
        }
    }

    fn read_once(&self, events: Option<&EventSink>) {
        let number = {
            let mut state = self.lock();
            state.started = state.started.saturating_add(1);
            state.started
        };
        // Without the lock: the file system may hang.
        let result = read_with(&self.path, Secret::read_regular_file);
        let parsed = match &result {
            Ok(bytes) if !self.lock().is_unchanged(bytes) => Some(parse_content(bytes, self.parse)),
            Ok(_) | Err(_) => None,
        };
        let mut state = self.lock();
        // An older content must not replace a newer one.
        if number <= state.applied {
            return;
        }
        state.applied = number;
        let parsed = match (&result, parsed) {
            // Another read has changed the content meanwhile.
            (Ok(bytes), None) if !state.is_unchanged(bytes) => Some(parse_content(bytes, self.parse)),
            (_, parsed) => parsed,
        };
        let error = match (result, parsed) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), None) => None,
            (Ok(bytes), Some(parsed)) => {
                state.bytes = bytes;
                match parsed {
                    Ok(valid) => {
                        state.valid = Arc::new(valid);
                        None
                    }
                    Err(error) => Some(IdentityError::invalid(&self.path, error).to_string()),
                }
            }
        };
        drop(state);
        self.note_error(error, events);
        self.completed.send_if_modified(|completed| {
            let is_newer = *completed < number;
            *completed = (*completed).max(number);
            is_newer
        });
    }

    /// Records an error, and reports it if it differs from the last one.
    fn note_error(&self, error: Option<String>, events: Option<&EventSink>) {
        let unreported = {
            let mut state = self.lock();
            let unreported = error.as_ref().filter(|error| state.error.as_ref() != Some(*error)).cloned();
            state.error = error;
            unreported
        };
        if let (Some(reason), Some(events)) = (unreported, events) {
            events(Event::IdentityFile { reason });
        }
    }

    fn unreadable(&self, cause: io::Error) -> String {
        IdentityError::Io { what: "read", path: self.path.clone(), cause }.to_string()
    }
}

impl<T> State<T> {
    /// Whether the content is the one in force, so that it need not be parsed.
    fn is_unchanged(&self, bytes: &Secret) -> bool {
        *bytes == self.bytes && self.error.is_none()
    }
}

impl<T> Clone for ReloadedFile<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for ReloadedFile<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReloadedFile").field("path", &self.0.path).finish_non_exhaustive()
    }
}

/// Parses the content of a file. An empty one is invalid: it is being rewritten, or what should have written it has failed. A file
/// without entries has a comment.
fn parse_content<T>(bytes: &Secret, parse: Parse<T>) -> Result<T, LineError> {
    match bytes.bytes() {
        [] => Err((0, "is empty".to_owned())),
        bytes => parse(bytes),
    }
}

/// Reads a file of at most 16 MiB.
pub fn read(path: &Path) -> Result<Secret, IdentityError> {
    read_with(path, Secret::read_file)
}

fn read_with(path: &Path, read: fn(&Path, usize) -> io::Result<Secret>) -> Result<Secret, IdentityError> {
    let failed = |cause| IdentityError::Io { what: "read", path: path.to_owned(), cause };
    match read(path, FILE_BYTES_MAX).map_err(failed)? {
        bytes if bytes.bytes().len() > FILE_BYTES_MAX => Err(failed(io::ErrorKind::FileTooLarge.into())),
        bytes => Ok(bytes),
    }
}

/// Returns the lines that are neither empty nor comments, with their numbers from 1.
pub fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, LineError> {
    let mut lines = Vec::new();
    let bytes = text::unmarked(bytes).map_err(|error| (0, error.to_string()))?;
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = std::str::from_utf8(line).map_err(|_| (number, "is not UTF-8".to_owned()))?.trim();
        if !line.is_empty() && !line.starts_with('#') {
            lines.push((number, line));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::sleep;

    use super::*;

    /// Whether a read of the content `slow` hangs.
    static HANGS: AtomicBool = AtomicBool::new(true);

    fn parse(bytes: &[u8]) -> Result<String, LineError> {
        while bytes == b"slow" && HANGS.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1));
        }
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_read_that_hangs_delays_one_caller_for_a_limited_time_and_no_later_one() {
        const SOON: Duration = Duration::from_millis(20);
        const NEVER: Duration = Duration::from_secs(3600);
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, "first").unwrap();
        let file = ReloadedFile::load(&path, parse).unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let events: EventSink = Arc::new(move |event| sink.lock().unwrap().push(event.to_string()));
        fs::write(&path, "second").unwrap();
        assert_eq!(*file.current_within(NEVER, &events).await, "second");
        fs::write(&path, "slow").unwrap();
        assert_eq!(*file.current_within(SOON, &events).await, "second");
        assert_eq!(*file.current_within(NEVER, &events).await, "second", "no wait");
        HANGS.store(false, Ordering::Release);
        while *file.last() != "slow" {
            tokio::task::yield_now().await;
        }
        let line = "file: the file system does not answer; its last valid content stays in force";
        assert!(matches!(&reports.lock().unwrap()[..], [report] if report.ends_with(line)));
        fs::write(&path, "third").unwrap();
        while *file.current_within(NEVER, &events).await != "third" {}
    }

    #[tokio::test]
    async fn callers_that_wait_at_the_same_time_get_the_content_of_their_call_or_a_newer_one() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, "0").unwrap();
        let file = ReloadedFile::load(&path, parse).unwrap();
        let events: EventSink = Arc::new(|_| {});
        let mut callers = Vec::new();
        for number in 1..100 {
            // A rename, so that no caller sees an empty file.
            fs::write(home.path().join("new"), number.to_string()).unwrap();
            fs::rename(home.path().join("new"), &path).unwrap();
            let (file, events) = (file.clone(), Arc::clone(&events));
            callers.push(tokio::spawn(async move {
                let content: u32 = file.current(&events).await.parse().unwrap();
                assert!(content >= number, "{content} after {number}");
            }));
            tokio::task::yield_now().await;
        }
        for caller in callers {
            caller.await.unwrap();
        }
    }
}
