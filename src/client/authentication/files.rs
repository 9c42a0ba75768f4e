//! Reads secrets from files, one at a time and each in a thread of its own: a disk that hangs holds nobody up.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::SECRET_BYTES_MAX;
use crate::net::detached::run_detached;
use crate::net::secret::Secret;

/// The way to the files. Clones share the one thread: a file that never delivers costs no more than that.
#[derive(Clone, Debug)]
pub(in crate::client) struct SecretFiles {
    one: Arc<Semaphore>,
}

/// What a file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct FileRead {
    /// Its bytes.
    pub(in crate::client) secret: Secret,
    /// What it was when it was opened.
    pub(super) stamp: Stamp,
}

/// By what a change of a file is noticed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    place: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl SecretFiles {
    /// Nothing is being read.
    pub(in crate::client) fn new() -> Self {
        Self { one: Arc::new(Semaphore::new(1)) }
    }

    /// Does what may hang; none if there is no thread for it.
    pub(super) async fn run_detached<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.one).acquire_owned().await.ok()?;
        let in_turn = move || {
            let result = work();
            drop(turn);
            result
        };
        run_detached(in_turn).await.ok()
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Reads a file, and no more of it than says that it is too long.
pub(super) fn read(path: &Path) -> io::Result<FileRead> {
    let file = File::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    Ok(FileRead { secret: Secret::read(file, stamp.len, SECRET_BYTES_MAX)?, stamp })
}

/// Reads a file if it is no longer what it was. None also while it is away, or cannot be a secret, or changes.
pub(super) fn read_if_changed(path: &Path, last: Stamp) -> Option<FileRead> {
    let current = || path.metadata().ok().filter(Metadata::is_file).map(|metadata| Stamp::of(&metadata));
    if current()? == last {
        return None;
    }
    let found = read(path).ok()?;
    let is_secret = (1..=SECRET_BYTES_MAX).contains(&found.secret.bytes().len());
    (is_secret && current()? == found.stamp).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_not_while_it_is_away() {
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

    #[test]
    fn a_link_that_is_swapped_is_a_change() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // As Kubernetes does it: a link to a file in a folder that is a link, too.
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
    async fn what_hangs_costs_one_thread_however_often_it_is_asked_for() {
        use std::sync::mpsc::channel;
        use std::time::Duration;
        let files = SecretFiles::new();
        let ((begun, begins), (go, gone)) = (channel(), channel::<()>());
        let hang = files.clone();
        let hang = tokio::spawn(async move {
            let work = move || {
                begun.send(()).unwrap();
                let _ = gone.recv();
            };
            hang.run_detached(work).await
        });
        run_detached(move || begins.recv().unwrap()).await.unwrap();
        hang.abort();
        for _ in 0..3 {
            let late = tokio::time::timeout(Duration::from_millis(5), files.run_detached(|| panic!("begun")));
            assert!(late.await.is_err());
        }
        drop(go);
        assert_eq!(files.run_detached(|| 7).await, Some(7));
    }
}
