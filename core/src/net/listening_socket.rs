//! A TCP socket that listens, and no longer does once it is dropped.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use crate::platform;

/// A listening socket. When it is dropped, another one can listen on its port.
#[derive(Debug)]
pub struct ListeningSocket(TcpListener);

impl ListeningSocket {
    /// Binds an address, and listens.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self)
    }

    /// Returns the bound address, with the port that replaced port 0.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Those of the system, for example without a free file descriptor; the socket still listens.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        platform::stop_listening(&self.0);
    }
}
