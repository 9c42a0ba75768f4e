//! A file that is read again at each use; while it is invalid, its last valid content is used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{IdentityError, LineError};
use crate::net::Secret;
use crate::server::event::{Event, EventSink};

/// More than any list of users has; an endless device must not fill the memory.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Parses the content of a file.
type Parse<T> = fn(&[u8]) -> Result<T, LineError>;

/// A file and its parsed content.
pub struct ReloadedFile<T> {
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The last content that was read, valid or not.
    bytes: Secret,
    /// The last valid content.
    valid: Arc<T>,
    /// The error that was reported last. None: the file was valid when it was read last.
    error: Option<String>,
}

impl<T> ReloadedFile<T> {
    /// Reads the file for the first time.
    pub fn load(path: &Path, parse: Parse<T>) -> Result<Self, IdentityError> {
        let bytes = read(path)?;
        let valid = Arc::new(parse(bytes.bytes()).map_err(|error| IdentityError::invalid(path, error))?);
        let state = Mutex::new(State { bytes, valid, error: None });
        Ok(Self { path: path.to_owned(), parse, state })
    }

    /// Reads the file and returns its content, or the last valid content. Blocks on the disk. The timestamps of file systems
    /// are too coarse to show every change, so the file is always read.
    pub fn current(&self, events: &EventSink) -> Arc<T> {
        // Read under the lock: otherwise an older content could replace a newer one.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let error = match read(&self.path) {
            Ok(bytes) if bytes == state.bytes && state.error.is_none() => None,
            // A file that is being rewritten is empty at first, and so is a pipe at the second read.
            Ok(bytes) if bytes.bytes().is_empty() => {
                Some(IdentityError::invalid(&self.path, (0, "is empty".to_owned())).to_string())
            }
            Ok(bytes) => {
                let parsed = (self.parse)(bytes.bytes());
                state.bytes = bytes;
                match parsed {
                    Ok(valid) => {
                        state.valid = Arc::new(valid);
                        None
                    }
                    Err(error) => Some(IdentityError::invalid(&self.path, error).to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        let unreported = error.as_ref().filter(|error| state.error.as_ref() != Some(*error)).cloned();
        state.error = error;
        let valid = Arc::clone(&state.valid);
        drop(state);
        if let Some(reason) = unreported {
            events(Event::IdentityFile { reason });
        }
        valid
    }
}

impl<T> fmt::Debug for ReloadedFile<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReloadedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Reads a file of at most 16 MiB.
pub fn read(path: &Path) -> Result<Secret, IdentityError> {
    let failed = |cause| IdentityError::Io { what: "read", path: path.to_owned(), cause };
    match Secret::read_file(path, FILE_BYTES_MAX).map_err(failed)? {
        bytes if bytes.bytes().len() > FILE_BYTES_MAX => Err(failed(io::ErrorKind::FileTooLarge.into())),
        bytes => Ok(bytes),
    }
}

/// Returns the lines that are neither empty nor comments, with their numbers from 1.
pub fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, LineError> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = std::str::from_utf8(line).map_err(|_| (number, "is not UTF-8".to_owned()))?.trim();
        if !line.is_empty() && !line.starts_with('#') {
            lines.push((number, line));
        }
    }
    Ok(lines)
}
