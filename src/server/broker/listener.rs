//! The door: accepts connections, within their limit, and gives each a task.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::Broker;
use super::connection;
use crate::server::event::Event;

/// How long the listener waits when the system has no connection to give, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Lets connections in.
#[derive(Clone, Debug)]
pub struct Door {
    broker: Broker,
    closing: watch::Receiver<bool>,
    /// One permit a connection.
    room: Arc<Semaphore>,
    runtime: Handle,
}

impl Door {
    /// A door of this runtime, open until `closing` turns true.
    #[must_use]
    pub fn new(
        broker: Broker,
        closing: watch::Receiver<bool>,
        room: Arc<Semaphore>,
        runtime: Handle,
    ) -> Self {
        Self { broker, closing, room, runtime }
    }

    /// Gives a connection its task, or drops it if there are too many.
    pub fn admit<S>(&self, stream: S, remote: String)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(permit) = self.permit(&remote) else { return };
        let (broker, closing) = (self.broker.clone(), self.closing.clone());
        self.runtime.spawn(async move {
            connection::serve(broker, stream, remote, closing).await;
            drop(permit);
        });
    }

    /// Gives a connection from the network its task, in which it shakes hands first if there is TLS.
    fn admit_tcp(&self, stream: TcpStream, remote: String) {
        let Some(tls) = self.broker.settings().tls.clone() else { return self.admit(stream, remote) };
        let Some(permit) = self.permit(&remote) else { return };
        let (broker, mut closing) = (self.broker.clone(), self.closing.clone());
        self.runtime.spawn(async move {
            let accepted = tokio::select! {
                biased;
                _ = closing.wait_for(|is_closing| *is_closing) => Err(("the server stops".to_owned(), None)),
                accepted = timeout(broker.settings().connect_timeout, tls.accept(stream)) => match accepted {
                    Ok(accepted) => accepted.map_err(|(reason, stream)| (reason, Some(stream))),
                    Err(_) => Err(("no TLS handshake in time".to_owned(), None)),
                }
            };
            match accepted {
                Ok(stream) => connection::serve_tls(broker, stream, remote, closing).await,
                Err((reason, stream)) => {
                    broker.tell([Event::Refused { remote, reason }]);
                    if let Some(stream) = stream {
                        connection::dismiss(stream, closing).await;
                    }
                }
            }
            drop(permit);
        });
    }

    fn permit(&self, remote: &str) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok();
        if permit.is_none() {
            let (remote, reason) = (remote.to_owned(), "too many connections".to_owned());
            self.broker.tell([Event::Refused { remote, reason }]);
        }
        permit
    }

    /// Accepts connections until the server stops; an error of one is not the end of the others.
    pub async fn listen(self, listener: TcpListener) {
        let mut closing = self.closing.clone();
        let accept_all = async {
            loop {
                match listener.accept().await {
                    Ok((stream, remote)) => {
                        // A request would wait about 45 ms for an answer without it (protocol §8).
                        if let Err(error) = stream.set_nodelay(true) {
                            self.broker.tell([Event::AcceptFailed { reason: error.to_string() }]);
                        }
                        self.admit_tcp(stream, remote.to_string());
                    }
                    Err(error) => {
                        self.broker.tell([Event::AcceptFailed { reason: error.to_string() }]);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            // An error means that the server was dropped.
            _ = closing.wait_for(|is_closing| *is_closing) => {}
            () = accept_all => {}
        }
    }
}
