//! Watcher of the service account token during a session: of its file, or in memory.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::credentials::Authentication;
use super::secret_reader::{FileRead, SecretReader, read_if_changed};
use super::shared_token::SharedToken;
use crate::clock;
use crate::net::secret::Secret;

/// Reports when there is another token than the one that the broker was sent.
pub(in crate::client) struct TokenWatcher {
    source: Source,
    /// The token that the broker was sent last. None while there is no connection.
    sent: Option<FileRead>,
}

enum Source {
    File(FileChecks),
    Shared(SharedToken),
}

/// Checks the token file at intervals, and reads it when it has changed.
struct FileChecks {
    path: PathBuf,
    files: SecretReader,
    interval: Duration,
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
        let source = match authentication {
            Authentication::ServiceAccountToken { file } => {
                let (path, files) = (file.clone(), files.clone());
                let timer = Box::pin(sleep(interval));
                Source::File(FileChecks { path, files, interval, timer, check: None, is_stale: false })
            }
            Authentication::SharedToken(token) => Source::Shared(token.clone()),
            Authentication::None | Authentication::Password { .. } => return None,
        };
        Some(Self { source, sent: None })
    }

    /// Handles a new connection, which was made with this token.
    pub(in crate::client) fn handle_connected(&mut self, sent: Option<FileRead>) {
        self.sent = sent;
        if let Source::File(checks) = &mut self.source {
            checks.is_stale = checks.check.is_some();
        }
    }

    /// Handles the loss of the connection: the next one reads the token itself.
    pub(in crate::client) fn handle_lost(&mut self) {
        self.handle_connected(None);
    }

    /// Returns the next token that differs from the one that the broker was sent. Cancel safe.
    pub(in crate::client) async fn next(&mut self) -> Secret {
        loop {
            let Some(sent) = &mut self.sent else {
                return std::future::pending().await;
            };
            let found = match &mut self.source {
                Source::File(checks) => checks.next(sent).await,
                Source::Shared(token) => FileRead::in_memory(token.other_than(&sent.secret).await),
            };
            let is_new = found.secret != sent.secret;
            *sent = found;
            if is_new {
                return sent.secret.clone();
            }
        }
    }
}

impl FileChecks {
    /// Returns the content of the file when it has changed since it was read. Cancel safe.
    async fn next(&mut self, sent: &FileRead) -> FileRead {
        loop {
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
            if let Some(found) = found.filter(|_| !is_stale) {
                return found;
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
        let Source::File(checks) = &mut watch.source else { panic!("not of a file") };
        checks.check = Some(Box::pin(async move { Some(Some(first)) }));
        watch.handle_connected(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
    }

    #[tokio::test]
    async fn a_renewed_token_in_memory_is_reported_once() {
        let secret = |text: &str| Secret::new(text.into());
        let (renewer, token) = SharedToken::new("a", secret("one"), None);
        let authentication = Authentication::SharedToken(token);
        let mut watch = TokenWatcher::new(&authentication, &SecretReader::default(), INTERVAL).unwrap();
        watch.handle_connected(Some(FileRead::in_memory(secret("one"))));
        assert!(is_silent(&mut watch).await);
        renewer.renew(secret("two"), None);
        assert_eq!(watch.next().await.bytes(), b"two");
        assert!(is_silent(&mut watch).await);
        watch.handle_lost();
        renewer.renew(secret("three"), None);
        assert!(is_silent(&mut watch).await, "there is no connection");
        watch.handle_connected(Some(FileRead::in_memory(secret("two"))));
        drop(renewer);
        assert_eq!(watch.next().await.bytes(), b"three");
        assert!(is_silent(&mut watch).await);
    }
}
