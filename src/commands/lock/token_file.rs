//! The file that tells a command, and whatever it starts, the newest fencing token.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::commands::error::CommandError;
use crate::commands::process::file;
use crate::protocol::Timestamp;

/// How long the last write may take at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// A file with a fencing token; removed when dropped.
///
/// Newer tokens are written by a thread of their own: a disk or a reader that stalls must not hold up the renewals, the
/// signals, or the end of a command whose lock is lost.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// None when it is to end.
    newer: Option<Sender<Timestamp>>,
    ended: Receiver<()>,
    trouble: Arc<Mutex<Option<CommandError>>>,
}

impl TokenFile {
    /// Writes the first token.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: PathBuf, token: &Timestamp) -> Result<Self, CommandError> {
        write(&path, token)?;
        let (newer, tokens) = channel();
        let (end, ended) = channel();
        let trouble = Arc::new(Mutex::new(None));
        let (file, told) = (path.clone(), Arc::clone(&trouble));
        let keep = move || {
            keep(&file, &tokens, &told);
            // Nobody may wait for it any more.
            let _ = end.send(());
        };
        let failed = |error: std::io::Error| CommandError::system("start a thread", &error);
        thread::Builder::new().name("token".to_owned()).spawn(keep).map_err(failed)?;
        Ok(Self { path, newer: Some(newer), ended, trouble })
    }

    /// Puts a newer token in the place of the last, soon: a reader sees one or the other.
    pub fn replace(&self, token: Timestamp) {
        // The thread is there as long as this is.
        let _ = self.newer.as_ref().map(|newer| newer.send(token));
    }

    /// Why the last token is not in the file, if it is known not to be.
    pub fn trouble(&self) -> Option<CommandError> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        self.newer = None;
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

/// Writes the newest token whenever there is one, and removes the file at the end.
fn keep(path: &Path, tokens: &Receiver<Timestamp>, trouble: &Mutex<Option<CommandError>>) {
    while let Ok(token) = tokens.recv() {
        let newest = tokens.try_iter().last().unwrap_or(token);
        let result = write(path, &newest);
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    }
    // A terminal or a pipe is no file of ours.
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// Writes a token that stays.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, token: &Timestamp) -> Result<(), CommandError> {
    file::write_private(path, format!("{token}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_replaced_whole_private_and_removed_at_the_end() {
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
            "who has the old file open reads on in it"
        );
        assert_eq!(file.trouble(), None);
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_takes_nothing_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        make_pipe(&path);
        let reader = thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let file = TokenFile::create(path, &Timestamp::of_store(1, 0)).unwrap();
        reader.join().unwrap();
        // Nobody reads any more: whoever opens the pipe now waits for ever.
        for ms in 2..100 {
            file.replace(Timestamp::of_store(ms, 0));
        }
    }

    fn make_pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }
}
