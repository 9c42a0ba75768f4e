//! Watches the file of a service account token while a session lasts.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::Authentication;
use super::files::{FileRead, SecretFiles, read_if_changed};
use crate::clock;
use crate::net::secret::Secret;

/// Looks at the file now and then, and reads it when it has changed.
pub(in crate::client) struct TokenWatch {
    path: PathBuf,
    files: SecretFiles,
    every: Duration,
    /// What the broker was last shown; none while there is no connection.
    shown: Option<FileRead>,
    pause: Pin<Box<Sleep>>,
    look: Option<Look>,
    /// The look was begun before the connection was: what it finds may be older than what the broker was shown.
    is_stale: bool,
}

type Look = Pin<Box<dyn Future<Output = Option<Option<FileRead>>> + Send>>;

impl TokenWatch {
    /// A watch for whoever logs in with a token.
    pub(in crate::client) fn of(
        authentication: &Authentication,
        files: &SecretFiles,
        every: Duration,
    ) -> Option<Self> {
        let Authentication::ServiceAccountToken { file } = authentication else {
            return None;
        };
        let (path, files) = (file.clone(), files.clone());
        let pause = Box::pin(sleep(every));
        Some(Self { path, files, every, shown: None, pause, look: None, is_stale: false })
    }

    /// A connection was made with this token; or it is lost, and the next one reads the file by itself.
    pub(in crate::client) fn handle_link(&mut self, shown: Option<FileRead>) {
        self.shown = shown;
        self.is_stale = self.look.is_some();
    }

    /// The next token that is another one than the broker was shown. May be dropped at any time.
    pub(in crate::client) async fn next(&mut self) -> Secret {
        loop {
            let Some(shown) = &mut self.shown else {
                return std::future::pending().await;
            };
            let Some(look) = &mut self.look else {
                self.pause.as_mut().await;
                let (files, path, last) = (self.files.clone(), self.path.clone(), shown.stamp);
                self.look =
                    Some(Box::pin(
                        async move { files.run_detached(move || read_if_changed(&path, last)).await },
                    ));
                continue;
            };
            let found = look.as_mut().await.flatten();
            self.look = None;
            let now = clock::monotonic();
            self.pause.as_mut().reset(now.checked_add(self.every).unwrap_or(now).into());
            let is_stale = std::mem::take(&mut self.is_stale);
            let Some(found) = found.filter(|_| !is_stale) else {
                continue;
            };
            let is_other = found.secret != shown.secret;
            *shown = found;
            if is_other {
                return shown.secret.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::files::read;
    use super::*;

    const EVERY: Duration = Duration::from_millis(5);
    /// More looks than one.
    const A_WHILE: Duration = Duration::from_millis(60);

    fn watch(path: &Path) -> TokenWatch {
        let authentication = Authentication::ServiceAccountToken { file: path.to_owned() };
        TokenWatch::of(&authentication, &SecretFiles::new(), EVERY).unwrap()
    }

    async fn is_silent(watch: &mut TokenWatch) -> bool {
        tokio::time::timeout(A_WHILE, watch.next()).await.is_err()
    }

    #[tokio::test]
    async fn a_token_is_told_once_when_its_bytes_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        assert!(is_silent(&mut watch).await, "there is no connection");
        watch.handle_link(Some(read(&path).unwrap()));
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
    async fn what_a_new_connection_was_made_with_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        let first = read(&path).unwrap();
        watch.handle_link(Some(first.clone()));
        fs::write(&path, "two").unwrap();
        watch.handle_link(None);
        assert!(is_silent(&mut watch).await);
        watch.handle_link(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
        // A look that began with the connection before.
        watch.look = Some(Box::pin(async move { Some(Some(first)) }));
        watch.handle_link(Some(read(&path).unwrap()));
        assert!(is_silent(&mut watch).await);
    }
}
