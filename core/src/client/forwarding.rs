//! A port of this machine that leads to the broker, as a tunnel opens it. It is another one when the tunnel is opened again.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// The client's side. Clones share it.
#[derive(Clone)]
pub struct Forwarding {
    /// Host and port of the broker, as behind the tunnel.
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    /// The port of this machine, or why there is none.
    local: watch::Receiver<Result<u16, String>>,
    /// The local port through which the broker did not answer last.
    silent: watch::Sender<u16>,
}

/// The side of the tunnel.
#[derive(Debug)]
pub struct ForwardingHandle {
    local: watch::Sender<Result<u16, String>>,
    silent: watch::Receiver<u16>,
}

impl Forwarding {
    /// Creates both sides of a tunnel to a broker that is open at this port of 127.0.0.1.
    #[must_use]
    pub fn new(host: &str, port: u16, local: u16) -> (ForwardingHandle, Self) {
        let (local_sender, local) = watch::channel(Ok(local));
        let (silent_sender, silent) = watch::channel(0);
        let handle = ForwardingHandle { local: local_sender, silent };
        (handle, Self { host: host.into(), port, local, silent: silent_sender })
    }

    /// Waits until the tunnel is open, and returns its port.
    pub(super) async fn opened(&self) -> Option<u16> {
        let mut local = self.local.clone();
        let opened = local.wait_for(Result::is_ok).await.ok()?;
        opened.as_ref().ok().copied()
    }

    /// Returns why the tunnel is not open.
    pub(super) fn failure(&self) -> String {
        let failure = self.local.borrow().clone().err();
        failure.unwrap_or_else(|| "the port is not forwarded any more".to_owned())
    }

    /// Reports that the broker does not answer through this port, although the tunnel accepts connections.
    pub(super) fn handle_silence(&self, local: u16) {
        self.silent.send_replace(local);
    }
}

impl ForwardingHandle {
    /// Sets the port of this machine, or why there is none.
    pub fn set(&self, local: Result<u16, String>) {
        drop(self.local.send_replace(local));
    }

    /// Waits until the broker does not answer through the current port. Cancel safe.
    pub async fn silent(&mut self) {
        let current = self.local.borrow().clone();
        if self.silent.wait_for(|silent| current == Ok(*silent)).await.is_err() {
            std::future::pending().await
        }
    }
}

impl fmt::Debug for Forwarding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Forwarding({}:{})", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(60), future).await.unwrap()
    }

    #[tokio::test]
    async fn a_client_waits_for_a_tunnel_that_is_opened_again_and_gets_its_new_port() {
        let (handle, client) = Forwarding::new("broker", 18883, 1);
        assert_eq!(client.opened().await, Some(1));
        handle.set(Err("ended".to_owned()));
        assert_eq!(client.failure(), "ended");
        assert!(timeout(Duration::from_millis(5), client.opened()).await.is_err());
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.opened().await }
        });
        handle.set(Ok(2));
        assert_eq!(in_time(waiting).await.unwrap(), Some(2));
        drop(handle);
        assert_eq!(client.opened().await, Some(2));
    }

    #[tokio::test]
    async fn silence_behind_an_earlier_port_is_no_matter() {
        let (mut handle, client) = Forwarding::new("broker", 18883, 1);
        client.handle_silence(1);
        in_time(handle.silent()).await;
        handle.set(Ok(2));
        assert!(timeout(Duration::from_millis(5), handle.silent()).await.is_err());
    }
}
