//! The file with the newest fencing token, for a command under a lock and its children.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::commands::error::CommandError;
use crate::commands::process::file;
use crate::protocol::Timestamp;

/// How long the last write may take when the file is dropped.
const LAST_WRITE_MAX: Duration = Duration::from_secs(1);

/// A file with a fencing token; removed when dropped.
///
/// Newer tokens are written by a thread: a disk or a reader that blocks must not delay renewals, signals, or the end of a
/// command whose lock is lost.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// None ends the thread.
    newer: Option<Sender<Timestamp>>,
    ended: Receiver<()>,
    error: Arc<Mutex<Option<CommandError>>>,
}

impl TokenFile {
    /// Writes the first token.
    ///
    /// # Errors
    /// It cannot be written, or the system has no thread.
    pub fn create(path: PathBuf, token: &Timestamp) -> Result<Self, CommandError> {
        write(&path, token)?;
        let (newer, tokens) = channel();
        let (end, ended) = channel();
        let error = Arc::new(Mutex::new(None));
        let (thread_path, thread_error) = (path.clone(), Arc::clone(&error));
        let run = move || {
            write_newer(&thread_path, &tokens, &thread_error);
            // The owner may have stopped waiting for it.
            let _ = end.send(());
        };
        let failed = |error: std::io::Error| CommandError::system("start a thread", &error);
        thread::Builder::new().name("token".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { path, newer: Some(newer), ended, error })
    }

    /// Replaces the token soon. A reader sees the old or the new one as a whole.
    pub fn replace(&self, token: Timestamp) {
        // The thread runs as long as the sender exists, so the send cannot fail.
        let _ = self.newer.as_ref().map(|newer| newer.send(token));
    }

    /// Returns the error of the last write, if it failed.
    pub fn error(&self) -> Option<CommandError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        self.newer = None;
        let _ = self.ended.recv_timeout(LAST_WRITE_MAX);
    }
}

/// Writes each newer token, and removes the file at the end.
fn write_newer(path: &Path, tokens: &Receiver<Timestamp>, error: &Mutex<Option<CommandError>>) {
    while let Ok(token) = tokens.recv() {
        let newest = tokens.try_iter().last().unwrap_or(token);
        let result = write(path, &newest);
        *error.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    }
    // A terminal or a pipe was not created by this process.
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// Writes a token to a file that is not removed.
pub fn write(path: &Path, token: &Timestamp) -> Result<(), CommandError> {
    file::write_private(path, format!("{token}\n").as_bytes())
}

// On Windows files have the permissions of their folder.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::a_watchdog::bounded;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_replaced_as_a_whole_private_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::create(path.clone(), &Timestamp::of_store(1, 0)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::File::open(&path).unwrap();
        file.replace(Timestamp::of_store(2, 0));
        while fs::read_to_string(file.path()).unwrap() != "000000000000002:00000:StateStore\n" {
            thread::yield_now();
        }
        assert_eq!(
            std::io::read_to_string(before).unwrap(),
            "000000000000001:00000:StateStore\n",
            "a reader of the old file is not disturbed"
        );
        assert_eq!(file.error(), None);
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_blocks_does_not_block_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        make_pipe(&path);
        let reader = thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let file = TokenFile::create(path, &Timestamp::of_store(1, 0)).unwrap();
        bounded(|| reader.join()).unwrap();
        // The pipe has no reader any more, so every further open blocks.
        for ms in 2..100 {
            file.replace(Timestamp::of_store(ms, 0));
        }
    }

    fn make_pipe(path: &Path) {
        assert!(bounded(|| std::process::Command::new("mkfifo").arg(path).status()).unwrap().success());
    }
}
