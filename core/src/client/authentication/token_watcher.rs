//! Watcher of the service account token file during a session.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::credentials::Authentication;
use super::secret_reader::{FileRead, SecretReader, read_if_changed};
use crate::clock;
use crate::net::secret::Secret;

/// Checks the token file at intervals, and reads it when it has changed.
pub(in crate::client) struct TokenWatcher {
    path: PathBuf,
    files: SecretReader,
    interval: Duration,
    /// The token that the broker was sent last. None while there is no connection.
    sent: Option<FileRead>,
    timer: Pin<Box<Sleep>>,
    check: Option<Check>,
    /// The check was started before the connection was made: its result may be older than the token that was sent.
    is_stale: bool,
}

type Check = Pin<Box<dyn Future<Output = Option<Option<FileRead>>> + Send>>;

impl TokenWatcher {
    /// Returns a watcher if the client authenticates with a token.
    pub(in crate::client) fn new(
        authentication: &Authentication,
        files: &SecretReader,
        interval: Duration,
    ) -> Option<Self> {
        let Authentication::ServiceAccountToken { file } = authentication else {
            return None;
        };
        let (path, files) = (file.clone(), files.clone());
        let timer = Box::pin(sleep(interval));
        Some(Self { path, files, interval, sent: None, timer, check: None, is_stale: false })
    }

    /// Handles a new connection, which was made with this token.
    pub(in crate::client) fn handle_connected(&mut self, sent: Option<FileRead>) {
        self.sent = sent;
        self.is_stale = self.check.is_some();
    }

    /// Handles the loss of the connection: the next one reads the file itself.
    pub(in crate::client) fn handle_lost(&mut self) {
        self.handle_connected(None);
    }

    /// Returns the next token that differs from the one that the broker was sent. Cancel safe.
    pub(in crate::client) async fn next(&mut self) -> Secret {
        loop {
            let Some(sent) = &mut self.sent else {
                return std::future::pending().await;
            };
            let Some(check) = &mut self.check else {
                self.timer.as_mut().await;
                let (files, path, last) = (self.files.clone(), self.path.clone(), sent.stamp);
                self.check =
                    Some(Box::pin(async move { files.run(move || read_if_changed(&path, last)).await }));
                continue;
            };
            let found = check.as_mut().await.flatten();
            self.check = None;
            let now = clock::monotonic();
            self.timer.as_mut().reset(now.checked_add(self.interval).unwrap_or(now).into());
            let is_stale = std::mem::take(&mut self.is_stale);
            let Some(found) = found.filter(|_| !is_stale) else {
                continue;
            };
            let is_new = found.secret != sent.secret;
            *sent = found;
            if is_new {
                return sent.secret.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::secret_reader::read;
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(5);
    /// Several intervals.
    const A_WHILE: Duration = Duration::from_millis(60);

    fn watch(path: &Path) -> TokenWatcher {
        let authentication = Authentication::ServiceAccountToken { file: path.to_owned() };
        TokenWatcher::new(&authentication, &SecretReader::default(), INTERVAL).unwrap()
    }

    async fn is_silent(watch: &mut TokenWatcher) -> bool {
        tokio::time::timeout(A_WHILE, watch.next()).await.is_err()
    }

    #[tokio::test]
    async fn a_changed_token_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        assert!(is_silent(&mut watch).await, "there is no connection");
        watch.handle_connected(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
        fs::write(&path, "two\n").unwrap();
        assert_eq!(watch.next().await.bytes(), b"two\n");
        assert!(is_silent(&mut watch).await);
        // Another file with the same token.
        fs::remove_file(&path).unwrap();
        assert!(is_silent(&mut watch).await);
        fs::write(&path, "two\n").unwrap();
        assert!(is_silent(&mut watch).await);
        fs::write(&path, "three").unwrap();
        assert_eq!(watch.next().await.bytes(), b"three");
    }

    #[tokio::test]
    async fn the_token_of_a_new_connection_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        let first = read(&path).unwrap();
        watch.handle_connected(Some(first.clone()));
        fs::write(&path, "two").unwrap();
        watch.handle_lost();
        assert!(is_silent(&mut watch).await);
        watch.handle_connected(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
        // A check that started during the previous connection.
        watch.check = Some(Box::pin(async move { Some(Some(first)) }));
        watch.handle_connected(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
    }
}
