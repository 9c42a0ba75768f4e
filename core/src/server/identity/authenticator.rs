//! Authenticator of the broker, with the users and tokens of the files.

use std::fmt;
use std::sync::Arc;

use super::identities::Identities;
use crate::broker::{Authenticator, PendingCheck};
use crate::net::Secret;
use crate::protocol::connection::K8S_SAT;
use crate::server::event::EventSink;

/// Checks passwords and tokens, and reports files that have become invalid.
pub struct IdentityAuthenticator {
    pub identities: Arc<Identities>,
    pub events: EventSink,
}

impl fmt::Debug for IdentityAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityAuthenticator").field("identities", &self.identities).finish_non_exhaustive()
    }
}

impl Authenticator for IdentityAuthenticator {
    fn has_users(&self) -> bool {
        self.identities.has_users()
    }

    fn supports_method(&self, method: &str) -> bool {
        method == K8S_SAT && self.identities.has_tokens()
    }

    fn check_password(&self, remote: &str, username: String, password: Secret) -> PendingCheck {
        let (identities, events) = (Arc::clone(&self.identities), Arc::clone(&self.events));
        let remote = remote.to_owned();
        Box::pin(async move { identities.check_password(&remote, username, password, events).await })
    }

    fn check_data(&self, _: &str, token: Secret) -> PendingCheck {
        let (identities, events) = (Arc::clone(&self.identities), Arc::clone(&self.events));
        Box::pin(async move { identities.check_token(token, events).await })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    use super::*;
    use crate::a_watchdog::bounded;
    use crate::broker::{self, Hooks, ListenerSettings, Server};
    use crate::server::CredentialFiles;

    /// Knows a method whose checks never end.
    struct Endless;

    impl Authenticator for Endless {
        fn has_users(&self) -> bool {
            false
        }

        fn supports_method(&self, _: &str) -> bool {
            true
        }

        fn check_password(&self, _: &str, _: String, _: Secret) -> PendingCheck {
            Box::pin(std::future::pending())
        }

        fn check_data(&self, _: &str, _: Secret) -> PendingCheck {
            Box::pin(std::future::pending())
        }
    }

    /// Returns a server, a client that has sent the token `token`, and the server's log.
    async fn connect(
        connect_timeout: Duration,
        authenticator: Arc<dyn Authenticator>,
    ) -> (Server, TcpStream, mpsc::UnboundedReceiver<String>) {
        let (sender, log) = mpsc::unbounded_channel();
        let events = Arc::new(move |event: broker::Event| {
            drop(sender.send(crate::server::Event::from(event).to_string()))
        });
        let hooks = Hooks { authenticator, events, ..Hooks::new(Arc::new(())) };
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = ListenerSettings { is_anonymous: false, ..ListenerSettings::plain(address) };
        let settings =
            broker::Settings { connect_timeout, listeners: vec![listener], ..broker::Settings::default() };
        let server = Server::start(settings, hooks).await.unwrap();
        let mut client = TcpStream::connect(server.addresses()[0]).await.unwrap();
        let properties = b"\x12\x15\0\x07K8S-SAT\x16\0\x05token";
        let head = b"\x10\x20\0\x04MQTT\x05\x02\0\0";
        client.write_all(&[&head[..], properties, b"\0\x01c"].concat()).await.unwrap();
        (server, client, log)
    }

    #[tokio::test]
    async fn a_check_that_takes_too_long_is_refused_with_server_busy() {
        let (server, mut client, mut log) = connect(Duration::from_millis(50), Arc::new(Endless)).await;
        let line = log.recv().await.unwrap();
        assert!(line.ends_with("server busy (0x89): authentication timed out"), "{line}");
        let mut connack = [0; 4];
        client.read_exact(&mut connack).await.unwrap();
        assert_eq!((connack[0], connack[3]), (0x20, 0x89));
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_client_that_disconnects_during_the_check_ends_the_connection() {
        let (server, mut client, mut log) = connect(Duration::from_secs(3600), Arc::new(Endless)).await;
        // Packets before CONNACK do not end the connection.
        client.write_all(b"\xC0\0").await.unwrap();
        drop(client);
        let line = log.recv().await.unwrap();
        assert!(line.ends_with(" refused: closed before it was authenticated"), "{line}");
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_pipe_in_the_place_of_a_file_blocks_no_login() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokens");
        std::fs::write(&path, "sat token\n").unwrap();
        let files = CredentialFiles { users: None, tokens: Some(path.clone()) };
        let identities = Arc::new(Identities::load(&files).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(bounded(|| Command::new("mkfifo").arg(&path).status()).unwrap().success());
        let (sender, mut reports) = mpsc::unbounded_channel();
        let events: EventSink = Arc::new(move |event| drop(sender.send(event.to_string())));
        let authenticator = Arc::new(IdentityAuthenticator { identities, events });
        let (server, mut client, mut log) = connect(Duration::from_secs(3600), authenticator).await;
        let mut connack = [0; 4];
        client.read_exact(&mut connack).await.unwrap();
        assert_eq!((connack[0], connack[3]), (0x20, 0));
        assert!(log.recv().await.unwrap().ends_with(" as sat, new session"));
        let report = reports.recv().await.unwrap();
        assert!(
            report.ends_with("tokens: not a regular file; its last valid content stays in force"),
            "{report}"
        );
        server.shutdown().await;
    }
}
