//! Reader of secret files that does not block on a disk that hangs.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::files::text;
use crate::net::detached::run_detached;
use crate::net::secret::Secret;
use crate::platform::FileStamp;

/// The longest password or token that a CONNECT can carry, in bytes.
pub(super) const SECRET_BYTES_MAX: usize = 65_535;

/// Reads files on detached threads, one at a time. Clones share the limit: a file that never returns costs one thread,
/// however often it is read.
#[derive(Clone, Debug)]
pub struct SecretReader {
    slot: Arc<Semaphore>,
}

/// The content of a file, or a token in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct FileRead {
    pub(in crate::client) secret: Secret,
    /// As of opening the file. None: in memory.
    pub(super) stamp: Option<FileStamp>,
}

impl Default for SecretReader {
    fn default() -> Self {
        Self { slot: Arc::new(Semaphore::new(1)) }
    }
}

impl SecretReader {
    /// Runs blocking work. Returns None if the system cannot create a thread.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let permit = Arc::clone(&self.slot).acquire_owned().await.ok()?;
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        run_detached(work).await.ok()
    }
}

impl FileRead {
    /// Returns a token that is in no file.
    pub(super) fn in_memory(secret: Secret) -> Self {
        Self { secret, stamp: None }
    }
}

/// Reads a file, at most one byte more than the limit.
pub(super) fn read(path: &Path) -> io::Result<FileRead> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let stamp = FileStamp::of(&metadata);
    Ok(FileRead { secret: Secret::read(file, metadata.len(), SECRET_BYTES_MAX)?, stamp: Some(stamp) })
}

/// Reads a file if it has changed since `last`. Returns None also if it is missing or invalid, or changes meanwhile: a file
/// that is being replaced is not an error.
pub(super) fn read_if_changed(path: &Path, last: Option<FileStamp>) -> Option<FileRead> {
    let current = || path.metadata().ok().filter(Metadata::is_file).map(|metadata| FileStamp::of(&metadata));
    if Some(current()?) == last {
        return None;
    }
    let found = read(path).ok()?;
    let bytes = found.secret.bytes();
    let is_secret = (1..=SECRET_BYTES_MAX).contains(&bytes.len()) && text::check_unmarked(bytes).is_ok();
    (is_secret && current() == found.stamp).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a_watchdog::bounded;

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_not_while_it_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let first = read(&path).unwrap();
        assert_eq!(read_if_changed(&path, first.stamp), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_if_changed(&path, first.stamp), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(read_if_changed(&path, first.stamp), None);
        std::fs::write(&path, [b'x'; SECRET_BYTES_MAX + 1]).unwrap();
        assert_eq!(read_if_changed(&path, first.stamp), None);
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(read_if_changed(&path, first.stamp).unwrap().secret.bytes(), b"two\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_symbolic_link_is_a_change() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // The layout of Kubernetes: a link to a file in a folder that is a link, too.
        for (version, token) in [("1", "one"), ("2", "two")] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("token"), token).unwrap();
        }
        symlink(path("1"), path("data")).unwrap();
        symlink("data/token", path("token")).unwrap();
        let first = read(&path("token")).unwrap();
        symlink(path("2"), path("new")).unwrap();
        std::fs::rename(path("new"), path("data")).unwrap();
        assert_eq!(read_if_changed(&path("token"), first.stamp).unwrap().secret.bytes(), b"two");
    }

    #[tokio::test]
    async fn a_read_that_hangs_costs_one_thread_however_often_it_is_requested() {
        use std::sync::mpsc::channel;
        use std::time::Duration;
        let files = SecretReader::default();
        let ((started, is_started), (unblock, blocked)) = (channel(), channel::<()>());
        let hang = files.clone();
        let hang = tokio::spawn(async move {
            let work = move || {
                started.send(()).unwrap();
                let _ = blocked.recv();
            };
            hang.run(work).await
        });
        run_detached(move || bounded(|| is_started.recv()).unwrap()).await.unwrap();
        hang.abort();
        for _ in 0..3 {
            let late = tokio::time::timeout(Duration::from_millis(5), files.run(|| panic!("started")));
            assert!(late.await.is_err());
        }
        drop(unblock);
        assert_eq!(files.run(|| 7).await, Some(7));
    }
}
