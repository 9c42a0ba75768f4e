//! A file of the operator's that is read again whenever it is asked for; what was good last counts.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Event, EventSink, IdentityError, Mistake};
use crate::net::Secret;

/// More than any list of users has; a device without an end must not fill the memory.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Takes the bytes of a file apart.
type Parse<T> = fn(&[u8]) -> Result<T, Mistake>;

/// The file, and what is made of it.
pub struct Kept<T> {
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// What was read last, good or not.
    bytes: Secret,
    good: Arc<T>,
    /// What has been told of the file, since it was good.
    trouble: Option<String>,
}

impl<T> Kept<T> {
    /// Reads it for the first time.
    pub fn load(path: &Path, parse: Parse<T>) -> Result<Self, IdentityError> {
        let bytes = read(path)?;
        let good = Arc::new(parse(bytes.bytes()).map_err(|mistake| nonsense(path, mistake))?);
        let state = Mutex::new(State { bytes, good, trouble: None });
        Ok(Self { path: path.to_owned(), parse, state })
    }

    /// What it says now, or said when it was good; may wait for the disk. The clock of a file system is too coarse to
    /// tell whether a file has changed, so it is read.
    pub fn current(&self, events: &EventSink) -> Arc<T> {
        // In the lock, so that what was read first does not come to count last.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = match read(&self.path) {
            Ok(bytes) if bytes == state.bytes && state.trouble.is_none() => None,
            // One that is being written anew is empty at first, and so is a pipe that was read before.
            Ok(bytes) if bytes.bytes().is_empty() => {
                Some(nonsense(&self.path, (0, "is empty".to_owned())).to_string())
            }
            Ok(bytes) => {
                let parsed = (self.parse)(bytes.bytes());
                state.bytes = bytes;
                match parsed {
                    Ok(good) => {
                        state.good = Arc::new(good);
                        None
                    }
                    Err(mistake) => Some(nonsense(&self.path, mistake).to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        let untold = trouble.as_ref().filter(|trouble| state.trouble.as_ref() != Some(*trouble)).cloned();
        state.trouble = trouble;
        let good = Arc::clone(&state.good);
        drop(state);
        if let Some(reason) = untold {
            events(Event::IdentityFile { reason });
        }
        good
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Kept").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Reads all of a file, within reason.
pub fn read(path: &Path) -> Result<Secret, IdentityError> {
    let failed = |cause| IdentityError::Io { what: "read", path: path.to_owned(), cause };
    match Secret::read_file(path, FILE_BYTES_MAX).map_err(failed)? {
        bytes if bytes.bytes().len() > FILE_BYTES_MAX => Err(failed(io::ErrorKind::FileTooLarge.into())),
        bytes => Ok(bytes),
    }
}

/// A mistake with the file that it is in.
pub fn nonsense(path: &Path, (line, what): Mistake) -> IdentityError {
    IdentityError::Invalid { path: path.to_owned(), line: (line > 0).then_some(line), what }
}

/// The lines that say something, with their numbers from 1.
pub fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, Mistake> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = std::str::from_utf8(line).map_err(|_| (number, "is not UTF-8".to_owned()))?.trim();
        if !line.is_empty() && !line.starts_with('#') {
            lines.push((number, line));
        }
    }
    Ok(lines)
}
