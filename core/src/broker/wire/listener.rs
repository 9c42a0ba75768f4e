//! Listeners: accept connections up to their limit, and start a task for each.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::busy_poll_stream::{ActiveStream, BusyPollStream};
use super::connection;
use super::login::{self, ENDED, EndingLogin, Login, Logins, Permit, UnfinishedLogin};
use super::unfinished_logins::Shortage;
use super::workers::Workers;
use crate::broker::address::address;
use crate::broker::authentication::ConnectionInfo;
use crate::broker::event::Event;
use crate::broker::handle::Broker;
use crate::broker::memory::{Charge, MemoryKind, RESERVED_BYTES};
use crate::broker::principal::Principal;
use crate::broker::settings::{ListenerSettings, WebSocketSettings};
use crate::net::tls::server as tls;
use crate::net::websocket;
use crate::net::{ListeningSocket, origin};
use crate::platform;

/// The bytes charged for a connection with TLS whose client has not authenticated. One without TLS takes less than what is
/// reserved for it.
const TLS_CONNECTION_BYTES: usize = 32 * 1024;
/// How long a listener waits after the system has failed to accept a connection, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Why there is no room for a connection: what for, and in words.
type NoRoom = (Shortage, &'static str);

const TOO_MANY_CONNECTIONS: NoRoom = (Shortage::OfServer, login::TOO_MANY_CONNECTIONS);
/// The most connections over the limit that wait for the CONNACK with this reason. One more is closed without it, so that a flood
/// takes no descriptors.
const REFUSED_MAX: usize = 16;
/// The address of connections in memory.
const IN_MEMORY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Accepts connections. Clones share the limit and the threads.
#[derive(Clone, Debug)]
pub struct Acceptor {
    broker: Broker,
    closing: watch::Receiver<bool>,
    /// One permit per connection.
    permits: Arc<Semaphore>,
    logins: Logins,
    /// One permit per connection that waits for the end of a login.
    waiting: Arc<Semaphore>,
    /// One permit per connection over the limit that is answered.
    refused: Arc<Semaphore>,
    workers: Workers,
    active_stream: Arc<ActiveStream>,
}

/// What a connection needs: a permit, and a charge until its client has authenticated.
type Room = (Permit, Charge);

/// What a new connection begins with.
enum Entry {
    Room(Room),
    Waiting(Waiting),
    /// Room for the answer that it is refused.
    Refusal(Room),
}

/// A connection that waits for the end of a login, and one of the permits to do so.
type Waiting = (EndingLogin, OwnedSemaphorePermit);

impl Acceptor {
    /// Returns an acceptor whose listeners accept connections until `closing` turns true.
    #[must_use]
    pub fn new(
        broker: Broker,
        closing: watch::Receiver<bool>,
        permits: Arc<Semaphore>,
        workers: Workers,
    ) -> Self {
        let waiting = usize::try_from(broker.settings().waiting_max()).unwrap_or(usize::MAX);
        let [waiting, refused] = [waiting, REFUSED_MAX].map(|max| Arc::new(Semaphore::new(max)));
        let (logins, active_stream) = (Logins::default(), Arc::default());
        Self { broker, closing, permits, logins, waiting, refused, workers, active_stream }
    }

    /// Starts the task of an in-memory connection, or drops the connection if there are too many.
    pub fn accept(&self, stream: DuplexStream, info: ConnectionInfo) {
        let permit = match self.permit(&self.permits, &info.remote) {
            Ok(permit) => permit,
            Err((_, reason)) => return self.refuse_for(info.remote, reason),
        };
        let (broker, closing) = (self.broker.clone(), self.closing.clone());
        let charge = Charge::new(permit.account(), MemoryKind::Unauthenticated, 0);
        let unfinished = Arc::new(self.logins.begin(IN_MEMORY));
        let login = Login { charge, permit, unfinished, is_refused: false };
        self.workers.spawn_on_caller(connection::serve(broker, stream, info, login, closing));
    }

    /// Starts the task of a TCP connection, which begins with the handshakes of TLS and WebSockets.
    fn accept_tcp(&self, stream: TcpStream, remote: SocketAddr, listener: &Arc<ListenerSettings>) {
        let (is_anonymous, socket) = (listener.is_anonymous, Some(platform::socket_of(&stream)));
        let info = ConnectionInfo { is_anonymous, socket, ..ConnectionInfo::anonymous(&remote.to_string()) };
        let bytes = if listener.tls.is_some() { TLS_CONNECTION_BYTES } else { 0 };
        let unfinished = self.logins.begin(remote.ip());
        let entry = match self.room(&self.permits, &info.remote, bytes) {
            Ok(room) => Entry::Room(room),
            Err((shortage, reason)) => match self.make_room(&unfinished, shortage) {
                Some(waiting) => Entry::Waiting(waiting),
                None => match self.refusal(&info.remote, bytes, reason) {
                    Some(room) => Entry::Refusal(room),
                    None => return,
                },
            },
        };
        let (acceptor, listener) = (self.clone(), Arc::clone(listener));
        self.workers.serve(stream, move |stream| async move {
            let stream = match stream {
                Ok(stream) => BusyPollStream::new(stream, Arc::clone(&acceptor.active_stream)),
                Err(error) => {
                    return acceptor.broker.report([Event::AcceptFailed { reason: error.to_string() }]);
                }
            };
            let (room, is_refused) = match entry {
                Entry::Room(room) => (Some(room), false),
                Entry::Refusal(room) => (Some(room), true),
                Entry::Waiting(waiting) => {
                    let waiting = acceptor.wait_for_room(waiting, &unfinished, &info.remote, bytes);
                    match Box::pin(waiting).await {
                        Ok(room) => (Some(room), false),
                        Err(reason) => (acceptor.refusal(&info.remote, bytes, reason), true),
                    }
                }
            };
            let Some((permit, charge)) = room else { return };
            if is_refused {
                // Its end would make no room.
                unfinished.finish();
            }
            let login = Login { charge, permit, unfinished: Arc::new(unfinished), is_refused };
            if listener.tls.is_none() && listener.web_socket.is_none() {
                connection::serve(acceptor.broker, stream, info, login, acceptor.closing).await;
            } else {
                // Boxed, so that the tasks of plain connections do not have the size of the handshakes.
                Box::pin(acceptor.handshake(stream, info, login, &listener)).await;
            }
        });
    }

    /// Returns what another connection holds until it ends, or why there is no room for it.
    fn permit(&self, permits: &Arc<Semaphore>, remote: &str) -> Result<Permit, NoRoom> {
        let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| TOO_MANY_CONNECTIONS)?;
        let owner = self.broker.memory().account(&address(remote));
        Ok(Permit::new(permit, Charge::new(&owner, MemoryKind::Reserved, RESERVED_BYTES)))
    }

    /// Returns the room for another connection that holds `bytes` beyond what is reserved for it, or why there is none.
    fn room(&self, permits: &Arc<Semaphore>, remote: &str, bytes: usize) -> Result<Room, NoRoom> {
        let permit = self.permit(permits, remote)?;
        let mut charge = Charge::new(permit.account(), MemoryKind::Unauthenticated, 0);
        if !charge.may_hold(bytes) {
            let shortage = login::shortage(&self.broker, bytes);
            return Err((shortage, "too many clients that have not authenticated"));
        }
        charge.set(bytes);
        Ok((permit, charge))
    }

    /// Ends a login to make room for another one.
    fn make_room(&self, unfinished: &UnfinishedLogin, shortage: Shortage) -> Option<Waiting> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        Some((unfinished.make_room(shortage)?, permit))
    }

    /// Reports that a connection is refused, and returns room for the answer if there is one.
    fn refusal(&self, remote: &str, bytes: usize, reason: &str) -> Option<Room> {
        if reason != login::TOO_MANY_CONNECTIONS {
            self.refuse_for(remote.to_owned(), reason);
            return None;
        }
        let max = self.broker.settings().connections_max;
        self.refuse_for(remote.to_owned(), &format!("{reason}: at most {max} (--connections-max)"));
        self.room(&self.refused, remote, bytes).ok()
    }

    /// Waits for the end of a login, and of another one if a third connection has taken its room.
    async fn wait_for_room(
        &self,
        waiting: Waiting,
        unfinished: &UnfinishedLogin,
        remote: &str,
        bytes: usize,
    ) -> Result<Room, &'static str> {
        let (mut ending, _waiting) = waiting;
        loop {
            tokio::select! {
                () = unfinished.ended() => return Err(ENDED),
                () = ending.wait() => {}
            }
            match self.room(&self.permits, remote, bytes) {
                Ok(room) => return Ok(room),
                Err((shortage, reason)) => ending = unfinished.make_room(shortage).ok_or(reason)?,
            }
        }
    }

    /// Does the TLS handshake, if the listener has TLS, and serves the connection.
    async fn handshake(
        &self,
        stream: BusyPollStream,
        info: ConnectionInfo,
        login: Login,
        listener: &ListenerSettings,
    ) {
        let Some(tls) = &listener.tls else { return self.upgrade(stream, info, login, listener).await };
        let Some((stream, info, login)) =
            self.within_time_limit(info, login, "no TLS handshake in time", tls.accept(stream)).await
        else {
            return;
        };
        match tls::client_certificate(&stream) {
            Ok(certificate) => {
                let certificate_expiry_s = certificate.as_ref().map(|certificate| certificate.not_after_s);
                let certificate = certificate.map(Principal::of_certificate);
                let info = ConnectionInfo { certificate, certificate_expiry_s, buffers_output: true, ..info };
                self.upgrade(stream, info, login, listener).await;
            }
            Err(error) => {
                let reason = format!("invalid client certificate: {error}");
                self.refuse(info.remote, login, reason, Some(stream)).await;
            }
        }
    }

    /// Does the WebSocket handshake, if the listener has WebSockets, and serves the connection.
    async fn upgrade<S>(&self, stream: S, info: ConnectionInfo, login: Login, listener: &ListenerSettings)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let closing = self.closing.clone();
        let Some(WebSocketSettings { path, names, origins }) = &listener.web_socket else {
            return connection::serve(self.broker.clone(), stream, info, login, closing).await;
        };
        let is_allowed =
            |origin: &str, host: Option<&str>| origin::is_allowed_origin(origin, host, names, origins);
        let bytes_max = self.broker.settings().packet_bytes_max;
        let accepting = websocket::accept(stream, path.as_deref(), is_allowed, bytes_max);
        let accepted = self.within_time_limit(info, login, "no WebSocket handshake in time", accepting).await;
        if let Some((stream, info, login)) = accepted {
            let info = ConnectionInfo { buffers_output: true, ..info };
            connection::serve(self.broker.clone(), stream, info, login, closing).await;
        }
    }

    /// Waits for a handshake with a time limit. If it fails, the connection is refused with a log line.
    async fn within_time_limit<T, S>(
        &self,
        info: ConnectionInfo,
        login: Login,
        timeout_reason: &str,
        handshake: impl Future<Output = Result<T, (String, S)>>,
    ) -> Option<(T, ConnectionInfo, Login)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut closing = self.closing.clone();
        let (reason, stream) = tokio::select! {
            biased;
            _ = closing.wait_for(|is_closing| *is_closing) => ("the server stops".to_owned(), None),
            result = timeout(login.time_limit(&self.broker), login.unfinished.run(handshake)) => match result {
                Ok(Some(Ok(stream))) => return Some((stream, info, login)),
                Ok(Some(Err((reason, stream)))) => (reason, Some(stream)),
                Ok(None) => (ENDED.to_owned(), None),
                Err(_) => (timeout_reason.to_owned(), None),
            }
        };
        self.refuse(info.remote, login, reason, stream).await;
        None
    }

    async fn refuse<S>(&self, remote: String, login: Login, reason: String, stream: Option<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        if !login.is_refused {
            self.broker.report([Event::Refused { remote, reason }]);
        }
        if let Some(stream) = stream {
            connection::close_after_handshake(stream, login, self.closing.clone()).await;
        }
    }

    fn refuse_for(&self, remote: String, reason: &str) {
        self.broker.report([Event::Refused { remote, reason: reason.to_owned() }]);
    }

    /// Accepts connections until the server stops; a failure to accept one does not end the listener.
    pub async fn listen(self, socket: ListeningSocket, listener: Arc<ListenerSettings>) {
        let mut closing = self.closing.clone();
        let accept_all = async {
            loop {
                match socket.accept().await {
                    Ok((stream, remote)) => {
                        // With Nagle's algorithm, a request waits about 45 ms for its answer (protocol §8).
                        if let Err(error) = stream.set_nodelay(true) {
                            self.broker.report([Event::AcceptFailed { reason: error.to_string() }]);
                        }
                        self.accept_tcp(stream, remote, &listener);
                    }
                    Err(error) => {
                        self.broker.report([Event::AcceptFailed { reason: error.to_string() }]);
                        // Without a descriptor, for example, a login that has stalled makes room.
                        match self.logins.make_room(None, Shortage::OfServer) {
                            // Its thread may be blocked, and descriptors become free otherwise.
                            Some(ending) => _ = timeout(ACCEPT_PAUSE, ending.wait()).await,
                            None => tokio::time::sleep(ACCEPT_PAUSE).await,
                        }
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

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    use super::*;
    use crate::broker::{Hooks, Server, Settings};
    use crate::net::tls::{ServerTls, ServerTlsFiles};

    /// Starts a server with one listener; returns it with its events.
    async fn start(
        change: impl FnOnce(&mut ListenerSettings),
        settings: Settings,
    ) -> (Server, mpsc::UnboundedReceiver<Event>) {
        let (sender, received) = mpsc::unbounded_channel();
        let events = Arc::new(move |event: Event| drop(sender.send(event)));
        let mut listener = ListenerSettings::plain("127.0.0.1:0".parse().unwrap());
        change(&mut listener);
        let settings = Settings { listeners: vec![listener], ..settings };
        (Server::start(settings, Hooks { events, ..Hooks::new(Arc::new(())) }).await.unwrap(), received)
    }

    /// Returns the configuration of a server with a certificate of its own.
    fn server_tls() -> ServerTls {
        let home = tempfile::tempdir().unwrap();
        let (certfile, keyfile) = (home.path().join("certificate"), home.path().join("key"));
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([]).unwrap();
        std::fs::write(&certfile, cert.pem()).unwrap();
        std::fs::write(&keyfile, signing_key.serialize_pem()).unwrap();
        ServerTls::load(ServerTlsFiles { certfile, keyfile, client_ca: None }).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_a_handshake_is_disconnected() {
        let tls = server_tls();
        let upgrade = || Some(WebSocketSettings::default());
        for (tls, web_socket, begun, what) in [
            (None, None, &b""[..], "CONNECT"),
            (None, None, b"\x10\x0e\0\x04MQTT", "CONNECT"),
            (Some(tls.clone()), None, b"", "TLS handshake"),
            (Some(tls), None, b"\x16\x03\x01\0\xA5\x01", "TLS handshake"),
            (None, upgrade(), b"", "WebSocket handshake"),
            (None, upgrade(), b"GET /mqtt HTTP/1.1\r\n", "WebSocket handshake"),
        ] {
            let settings = Settings { connect_timeout: Duration::from_millis(50), ..Settings::default() };
            let change =
                |listener: &mut ListenerSettings| (listener.tls, listener.web_socket) = (tls, web_socket);
            let (server, mut events) = start(change, settings).await;
            let mut client = TcpStream::connect(server.addresses()[0]).await.unwrap();
            client.write_all(begun).await.unwrap();
            let Some(Event::Refused { reason, .. }) = events.recv().await else { panic!("no event") };
            assert_eq!(reason, format!("no {what} in time"), "{begun:?}");
            assert_eq!(client.read(&mut [0; 10]).await.unwrap(), 0);
            server.shutdown().await;
        }
    }

    #[tokio::test]
    async fn a_connect_longer_than_any_valid_one_is_rejected_before_it_is_complete() {
        let (server, mut events) = start(|_| {}, Settings::default()).await;
        let mut client = TcpStream::connect(server.addresses()[0]).await.unwrap();
        // 3 MiB: less than an accepted client may send.
        client.write_all(b"\x10\x80\x80\xC0\x01\0\x04MQTT\x05").await.unwrap();
        let mut connack = [0; 4];
        client.read_exact(&mut connack).await.unwrap();
        assert_eq!((connack[0], connack[3]), (0x20, 0x95));
        assert!(matches!(events.recv().await.unwrap(), Event::Refused { .. }));
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_gets_the_reason_and_one_beyond_those_that_wait_for_it_is_closed() {
        const CONNECT: &[u8] = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";
        const CONNECT_3_1_1: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a";
        let (server, mut events) =
            start(|_| {}, Settings { connections_max: 1, ..Settings::default() }).await;
        let connect = || TcpStream::connect(server.addresses()[0]);
        let mut only = connect().await.unwrap();
        only.write_all(CONNECT).await.unwrap();
        assert_eq!(only.read_u8().await.unwrap(), 0x20);
        assert!(matches!(events.recv().await.unwrap(), Event::Connected { .. }));
        for (connect_packet, connack, code) in [(CONNECT, 4, 0x97), (CONNECT_3_1_1, 4, 3)] {
            let mut client = connect().await.unwrap();
            client.write_all(connect_packet).await.unwrap();
            let mut answer = vec![0; connack];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!((answer[0], answer[3]), (0x20, code));
            let Some(Event::Refused { reason, .. }) = events.recv().await else { panic!("no event") };
            assert_eq!(reason, "too many connections: at most 1 (--connections-max)");
        }
        let mut silent = Vec::new();
        for _ in 0..REFUSED_MAX {
            silent.push(connect().await.unwrap());
            assert!(matches!(events.recv().await.unwrap(), Event::Refused { .. }));
        }
        let mut client = connect().await.unwrap();
        assert_eq!(client.read(&mut [0; 4]).await.unwrap(), 0);
        drop(silent);
        server.shutdown().await;
    }
}
