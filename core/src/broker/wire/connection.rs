//! Task of one connection: moves bytes between the stream and the packet handler, keep-alive, close.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::connect_error::ConnectError;
use super::keep_alive::KeepAlive;
use super::login::{self, ENDED, Login, Permit, UnfinishedLogin};
use super::packet_handler::{PacketHandler, Pause};
use super::progress::Progress;
use super::transfer::{Sending, Transfer, write_or_read};
use super::turns;
use crate::broker::authentication::{self, Authenticated, ConnectionInfo, Denial, PendingCheck};
use crate::broker::counters::Counter;
use crate::broker::event::Event;
use crate::broker::handle::Broker;
use crate::broker::memory::{CONNECTION_SHARE_BYTES, Charge, MemoryKind};
use crate::broker::publication;
use crate::broker::session::connection_handle::CloseReason;
use crate::broker::session::woken;
use crate::clock;
use crate::mqtt::packet::{Connect, Sensitive};
use crate::mqtt::{Decoded, Incoming, ProtocolVersion, ReasonCode, decode, encode};
use crate::net::Secret;
use crate::net::io_error::io_error_text;

/// The minimum buffer for a read.
const READ_BYTES_MIN: usize = 8 * 1024;
/// The most room for a read, so that a client with many requests in flight takes few system calls.
const READ_BYTES_MAX: usize = 32 * 1024;
/// The same until the client has authenticated: room for nearly every CONNECT.
const CONNECT_READ_BYTES_MIN: usize = 1024;
/// The input buffer that a connection keeps for a few bytes.
const INPUT_BYTES_KEPT: usize = 64 * 1024;
/// The time limit for the last bytes to be written, and for input that was sent before the connection was lost.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the client may take to close after them. A close before that, with unread input, would send a reset, which
/// discards bytes that the client has not read.
const LINGER_TIMEOUT: Duration = Duration::from_millis(500);
/// Input that is discarded meanwhile, and the pause after it. A client that goes on sending would else keep a processor
/// busy.
const LINGER_BYTES: usize = 256 * 1024;
const LINGER_PAUSE: Duration = Duration::from_millis(1);
/// The same time limit while the server stops.
const CLOSING_LINGER_TIMEOUT: Duration = Duration::from_millis(50);
/// The longest CONNECT of a client that needs no authentication, or has authenticated with a certificate: several times
/// the size of all its fields except user properties.
const CONNECT_BYTES_MAX: u32 = 2 * 1024 * 1024;
/// The longest CONNECT of other clients, without user name, password and authentication data.
const STRANGER_BYTES_MAX: usize = 16 * 1024;
/// The longest CONNECT of such a client: with these three.
const STRANGER_PACKET_BYTES_MAX: u32 = 16 * 1024 + 3 * 64 * 1024;
/// How long a client may read nothing of what is written to it while memory is scarce.
const NOT_READING_TIMEOUT: Duration = Duration::from_secs(5);
/// The first byte of a CONNECT.
const CONNECT: u8 = 0x10;
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Serves one connection until it closes. `closing` turns true when the server stops.
pub async fn serve<S>(
    broker: Broker,
    stream: S,
    info: ConnectionInfo,
    login: Login,
    mut closing: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (unfinished, is_refused) = (Arc::clone(&login.unfinished), login.is_refused);
    let after = login.time_limit(&broker);
    let mut connection = Connection::new(stream, info.buffers_output, login);
    let accepted = tokio::select! {
        biased;
        _ = closing.wait_for(|is_closing| *is_closing) => Err(Rejection::Unanswered("the server stops".to_owned())),
        accepted = unfinished.run(connection.accept(&broker, &info, after)) => accepted.unwrap_or(Err(Rejection::Ended)),
    };
    match accepted {
        Ok(mut handler) => {
            drop(unfinished);
            let close_reason = connection.serve(&broker, &info.remote, &mut handler).await;
            woken::leave().await;
            handler.complete_route().await;
            turns::wait_to_end().await;
            let is_lost = matches!(close_reason, CloseReason::ConnectionLost(_));
            // The session is free and the application notified before the last bytes are written, which may take long.
            let output = handler.close(close_reason);
            if !is_lost {
                connection.close(output, closing).await;
            }
        }
        Err(rejection) => {
            let is_ended = matches!(rejection, Rejection::Ended);
            let (event, output) = rejection.into_event(info.remote);
            // A refusal was reported when the connection came.
            broker.report((!is_refused).then_some(event));
            if !is_ended {
                unfinished.run(connection.close(output, closing)).await;
            }
        }
    }
}

/// Closes a connection whose handshake has failed, so that the client can read what was written last.
pub async fn close_after_handshake<S>(stream: S, login: Login, closing: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let unfinished = Arc::clone(&login.unfinished);
    unfinished.run(Connection::new(stream, false, login).close(BytesMut::new(), closing)).await;
}

fn count(bytes: &Counter, len: usize) {
    bytes.add(u64::try_from(len).unwrap_or(u64::MAX));
}

/// Why a connection was not accepted.
enum Rejection {
    /// Without an answer: the client does not speak MQTT, or has closed the connection.
    Unanswered(String),
    /// With a CONNACK; then the client's Maximum Packet Size, and the client if it has authenticated.
    Answered(ConnectError, Option<u32>, Option<AcceptedIdentity>),
    /// With a CONNACK, because authentication failed.
    Denied { client_id: String, version: ProtocolVersion, bytes_max: Option<u32>, denial: Denial },
    /// Without an answer, to make room for other logins.
    Ended,
}

/// A client that has authenticated: its id, and user and certificate, if it has these.
type AcceptedIdentity = (String, Option<String>);

impl Rejection {
    /// Returns the event for the operator and the bytes for the client.
    fn into_event(self, remote: String) -> (Event, BytesMut) {
        let mut output = BytesMut::new();
        let reason = match self {
            Self::Unanswered(text) => text,
            Self::Ended => ENDED.to_owned(),
            Self::Answered(ConnectError { reason, text, version }, bytes_max, client) => {
                encode::connack_error(version, reason, &text, bytes_max, &mut output);
                match client {
                    Some((client_id, principal)) if reason == ReasonCode::NotAuthorized => {
                        let (client_id, reason) = (client_id.into(), format!("{reason}: {text}"));
                        return (Event::Denied { client_id, remote, principal, reason }, output);
                    }
                    _ => text,
                }
            }
            Self::Denied { client_id, version, bytes_max, denial } => {
                encode::connack_error(version, denial.reason, denial.reason_string, bytes_max, &mut output);
                return (denied(client_id.into(), &remote, &denial), output);
            }
        };
        (Event::Refused { remote, reason }, output)
    }
}

fn denied(client_id: Arc<str>, remote: &str, denial: &Denial) -> Event {
    Event::Denied { client_id, remote: remote.to_owned(), principal: None, reason: denial.to_string() }
}

/// Resolves when the check is done; never without a check.
async fn checked(checking: Option<&mut PendingCheck>) -> Result<Authenticated, Denial> {
    match checking {
        Some(checking) => checking.await,
        None => std::future::pending().await,
    }
}

/// Starts to check the data of an AUTH, with the same time limit as for a CONNECT.
fn check(broker: &Broker, method: &str, data: Option<Secret>) -> PendingCheck {
    let check = authentication::check_data(&*broker.hooks().authenticator, method, data);
    let limit = broker.settings().connect_timeout;
    Box::pin(async move { timeout(limit, check).await.unwrap_or_else(|_| Err(authentication::too_slow())) })
}

/// There is no memory for a buffer.
struct OutOfMemory;

impl From<OutOfMemory> for CloseReason {
    fn from(_: OutOfMemory) -> Self {
        let text = "no memory is left for the packets of this client".to_owned();
        Self::ServerDisconnect { reason: ReasonCode::QuotaExceeded, text }
    }
}

/// Returns the memory of a CONNECT besides that of the packet.
fn bytes_of(connect: &Connect) -> usize {
    let texts = [Some(&connect.client_id), connect.username.as_ref(), connect.authentication_method.as_ref()];
    let texts = texts.into_iter().flatten().map(String::capacity);
    let secrets =
        [&connect.password, &connect.authentication_data].into_iter().flatten().map(Sensitive::capacity);
    let will = connect.will.iter().map(|will| publication::bytes_of(&will.message));
    texts.chain(secrets).chain(will).fold(0, usize::saturating_add)
}

struct Connection<S> {
    stream: S,
    input: BytesMut,
    /// The memory of the input buffer: its capacity is less once a part has been handled.
    input_bytes: usize,
    /// The room for the next read; it grows as long as reads fill it.
    read_bytes: usize,
    charge: Charge,
    _permit: Permit,
    /// Until the client has authenticated; then None.
    unfinished: Option<Arc<UnfinishedLogin>>,
    is_refused: bool,
    /// The bytes that are charged besides the buffers until the client has authenticated; then None.
    handshake_bytes: Option<usize>,
    /// Whether the stream buffers output, so that it must be flushed.
    buffers_output: bool,
    /// Whether output has been written since the last flush.
    has_buffered_output: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    fn new(stream: S, buffers_output: bool, login: Login) -> Self {
        let Login { charge, permit, unfinished, is_refused } = login;
        let (input, handshake_bytes) = (BytesMut::new(), Some(charge.bytes()));
        Self {
            stream,
            input,
            input_bytes: 0,
            read_bytes: READ_BYTES_MIN,
            charge,
            _permit: permit,
            unfinished: Some(unfinished),
            is_refused,
            handshake_bytes,
            buffers_output,
            has_buffered_output: false,
        }
    }

    /// Waits for a CONNECT, authenticates the client, and accepts the connection.
    async fn accept(
        &mut self,
        broker: &Broker,
        info: &ConnectionInfo,
        after: Duration,
    ) -> Result<PacketHandler, Rejection> {
        let connect = timeout(after, self.read_connect(broker, info)).await;
        let mut connect =
            connect.unwrap_or_else(|_| Err(Rejection::Unanswered("no CONNECT in time".to_owned())))?;
        let bytes_max = connect.packet_bytes_max;
        if self.is_refused {
            return Err(Rejection::Answered(ConnectError::too_many(connect.version), bytes_max, None));
        }
        self.set_checked(true);
        // A client that closes the connection leaves the queue of checks, so that others do not wait for it.
        let authenticated = tokio::select! {
            biased;
            authenticated = timeout(after, authentication::authenticate(&*broker.hooks().authenticator, &mut connect, info)) => authenticated,
            rejection = self.end_of_input() => return Err(rejection),
        };
        self.set_checked(false);
        let identity =
            authenticated.unwrap_or_else(|_| Err(authentication::too_slow())).map_err(|denial| {
                Rejection::Denied {
                    client_id: connect.client_id.clone(),
                    version: connect.version,
                    bytes_max,
                    denial,
                }
            })?;
        let client = (connect.client_id.clone(), identity.principal.describe());
        let handler = PacketHandler::accept(broker, connect, identity, info)
            .map_err(|error| Rejection::Answered(error, bytes_max, Some(client)))?;
        let owner = broker.memory().account(&handler.peer().owner);
        self.charge.move_to(&owner, MemoryKind::Connections);
        self.handshake_bytes = None;
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.finish();
        }
        Ok(handler)
    }

    /// Reads the CONNECT, and charges it for as long as the client has not authenticated.
    async fn read_connect(&mut self, broker: &Broker, info: &ConnectionInfo) -> Result<Connect, Rejection> {
        let is_stranger = !info.is_anonymous && info.certificate.is_none();
        let bytes_max = if is_stranger { STRANGER_PACKET_BYTES_MAX } else { CONNECT_BYTES_MAX };
        let bytes_max = broker.settings().packet_bytes_max.min(bytes_max);
        let out_of_memory = |version| {
            let text = "too many clients are being authenticated".to_owned();
            Rejection::Answered(ConnectError { reason: ReasonCode::QuotaExceeded, text, version }, None, None)
        };
        loop {
            if is_stranger {
                let checked = decode::check_connect(&self.input, STRANGER_BYTES_MAX);
                checked.map_err(|error| Rejection::Answered(error.into(), None, None))?;
            }
            match self.input.first() {
                None | Some(&CONNECT) => {}
                Some(&TLS_HANDSHAKE) => {
                    return Err(Rejection::Unanswered("TLS handshake on a listener without TLS".to_owned()));
                }
                Some(_) => return Err(Rejection::Unanswered("the first packet is not a CONNECT".to_owned())),
            }
            let missing = match decode::decode_first(&mut self.input, bytes_max) {
                Ok(Decoded::Packet(Incoming::Connect(connect))) => {
                    self.shrink_input();
                    let bytes = self.input_bytes.saturating_add(bytes_of(&connect));
                    while self.charge_for(bytes).is_err() {
                        self.wait_for_room(broker, bytes)
                            .await
                            .map_err(|_| out_of_memory(connect.version))?;
                    }
                    return Ok(*connect);
                }
                Ok(Decoded::Packet(_)) => {
                    return Err(Rejection::Unanswered("the first packet is not a CONNECT".to_owned()));
                }
                Ok(Decoded::Missing(missing)) => missing,
                Err(error) => return Err(Rejection::Answered(error.into(), None, None)),
            };
            while self.make_room(missing, 0).is_err() {
                self.wait_for_room(broker, missing).await.map_err(|_| out_of_memory(ProtocolVersion::V5))?;
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(Rejection::Unanswered("closed before its CONNECT".to_owned())),
                Ok(len) => count(&broker.counters().received.bytes, len),
                Err(error) => return Err(Rejection::Unanswered(error.to_string())),
            }
        }
    }

    /// Ends another login, so that there is memory for this one.
    async fn wait_for_room(&self, broker: &Broker, bytes: usize) -> Result<(), OutOfMemory> {
        let shortage = login::shortage(broker, bytes);
        let ending = self.unfinished.as_ref().and_then(|unfinished| unfinished.make_room(shortage));
        ending.ok_or(OutOfMemory)?.wait().await;
        Ok(())
    }

    fn set_checked(&self, is_checked: bool) {
        if let Some(unfinished) = &self.unfinished {
            unfinished.set_checked(is_checked);
        }
    }

    /// Waits until the client closes the connection. Keeps a limited amount of input that arrives meanwhile.
    async fn end_of_input(&mut self) -> Rejection {
        while self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES_MIN);
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Rejection::Unanswered("closed before it was authenticated".to_owned()),
                Ok(_) => {}
                Err(error) => return Rejection::Unanswered(error.to_string()),
            }
        }
        std::future::pending().await
    }

    /// Serves an accepted connection; returns why it is closed.
    async fn serve(&mut self, broker: &Broker, remote: &str, handler: &mut PacketHandler) -> CloseReason {
        let mut checking: Option<PendingCheck> = None;
        let period = handler.keep_alive();
        let mut keep_alive = period.map(|period| KeepAlive::new(period, clock::monotonic()));
        // A packet only notes its time. The timer is reset when it fires, because a reset per packet costs more.
        let mut keep_alive_timer = pin!(sleep(period.unwrap_or_default()));
        let handle = Arc::clone(handler.handle());
        let mut woken = pin!(handle.wake.notified());
        let mut progress = Progress::default();
        let mut progress_timer = pin!(sleep(NOT_READING_TIMEOUT));
        loop {
            let unhandled = self.input.len();
            let missing = match woken::run_after(|| handler.handle_input(&mut self.input)) {
                Ok(missing) => missing,
                Err(close_reason) => return close_reason,
            };
            if let Some(keep_alive) = keep_alive.as_mut().filter(|_| self.input.len() < unhandled) {
                keep_alive.handle_packet(clock::monotonic());
            }
            if handler.ends_turn() {
                yield_now().await;
                continue;
            }
            if let Err(out_of_memory) = self.make_room(missing, handler.held_bytes()) {
                return out_of_memory.into();
            }
            if handler.is_finished() && !self.has_buffered_output {
                let text = "the server stops".to_owned();
                return CloseReason::ServerDisconnect { reason: ReasonCode::ServerShuttingDown, text };
            }
            if let Some(close_reason) = handle.close_reason() {
                return close_reason.clone();
            }
            if let Some((method, data)) = handler.poll_authentication() {
                checking = Some(check(broker, method, data));
            }
            let (reads, pause) = (handler.wants_input(&self.input), handler.pause());
            let writes = handler.wants_output();
            let sending = match (writes, self.has_buffered_output) {
                (true, _) => Sending::Write(handler.output()),
                // Acknowledgements that are held back may be in the output.
                (false, true) => Sending::Flush,
                (false, false) => Sending::Nothing,
            };
            tokio::select! {
                biased;
                () = &mut woken => woken.set(handle.wake.notified()),
                moved = write_or_read(&mut self.stream, sending, (&mut self.input, reads)) => match moved {
                    Transfer::Written(Ok(0)) => {
                        return self.handle_loss(broker, handler, "a write took no bytes".to_owned()).await;
                    }
                    Transfer::Written(Ok(len)) => {
                        count(&broker.counters().sent.bytes, len);
                        self.has_buffered_output = self.buffers_output;
                        handler.handle_written();
                        progress.handle_written(handler.output().is_empty());
                        // While nothing is read, a client that reads its output shows that it is alive.
                        if let Some(keep_alive) = keep_alive.as_mut().filter(|_| !reads) {
                            keep_alive.handle_packet(clock::monotonic());
                        }
                    }
                    Transfer::Flushed(Ok(())) => self.has_buffered_output = false,
                    Transfer::Read(Ok(0)) => {
                        let why = "closed without a DISCONNECT".to_owned();
                        return self.handle_loss(broker, handler, why).await;
                    }
                    Transfer::Read(Ok(len)) => {
                        count(&broker.counters().received.bytes, len);
                        if self.input.len() == self.input.capacity() {
                            self.read_bytes = self.read_bytes.saturating_mul(2).min(READ_BYTES_MAX);
                        } else if len < self.read_bytes / 4 {
                            self.read_bytes = READ_BYTES_MIN;
                        }
                        // Packets that wait for the output to be written, or for the end of another one, are not handled
                        // yet, so their bytes count. They are few: with many of them, nothing is read.
                        if let Some(keep_alive) = &mut keep_alive
                            && (keep_alive.handle_bytes(len) || handler.has_enough_output() || pause.is_some())
                        {
                            keep_alive.handle_packet(clock::monotonic());
                        }
                    }
                    // Invalid data in a WebSocket or TLS: the client gets the reason before the stream is closed.
                    Transfer::Read(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                        return CloseReason::ServerDisconnect { reason: ReasonCode::MalformedPacket, text: error.to_string() };
                    }
                    Transfer::Written(Err(error)) | Transfer::Flushed(Err(error)) | Transfer::Read(Err(error)) => {
                        return self.handle_loss(broker, handler, io_error_text(&error)).await;
                    }
                },
                checked = checked(checking.as_mut()), if checking.is_some() => {
                    checking = None;
                    if let Err(denial) = handler.handle_checked(checked) {
                        let (reason, text) = (denial.reason, denial.reason_string.to_owned());
                        broker.report([denied(Arc::clone(&handler.peer().client_id), remote, &denial)]);
                        return CloseReason::ServerDisconnect { reason, text };
                    }
                }
                () = pause.unwrap_or(Pause::Yield).wait(), if pause.is_some() => {}
                () = &mut progress_timer, if writes => {
                    if let Some(at) = clock::monotonic().checked_add(NOT_READING_TIMEOUT) {
                        progress_timer.as_mut().reset(Instant::from_std(at));
                    }
                    if progress.handle_timeout() && self.charge.account().is_under_pressure() {
                        return CloseReason::NotReading;
                    }
                }
                () = &mut keep_alive_timer, if keep_alive.is_some() => {
                    let deadline = keep_alive.as_ref().and_then(KeepAlive::deadline);
                    if let Some(deadline) = deadline.filter(|deadline| *deadline > clock::monotonic()) {
                        keep_alive_timer.as_mut().reset(Instant::from_std(deadline));
                        continue;
                    }
                    let text = "no packet for 1.5 times the keep-alive".to_owned();
                    return CloseReason::ServerDisconnect { reason: ReasonCode::KeepAliveTimeout, text };
                }
            }
        }
    }

    /// Handles the input of a lost connection; returns why it is closed. The time limit is for reads: all input that has been
    /// read is handled, in as many turns as it takes.
    ///
    /// A client that does not read its pending messages may send DISCONNECT and close: the write then fails before the
    /// DISCONNECT is read, which discards the Will Message.
    async fn handle_loss(
        &mut self,
        broker: &Broker,
        handler: &mut PacketHandler,
        why: String,
    ) -> CloseReason {
        woken::leave().await;
        let mut end_of_reads = pin!(sleep(CLOSE_TIMEOUT));
        loop {
            match handler.handle_final_input(&mut self.input) {
                Ok(true) => {}
                Ok(false) => break,
                Err(close_reason) => return close_reason,
            }
            if handler.ends_turn() {
                yield_now().await;
            } else if handler.is_unfinished() {
                handler.complete_packet().await;
                end_of_reads.set(sleep(CLOSE_TIMEOUT));
            } else if self.make_room(READ_BYTES_MIN, 0).is_err() {
                break;
            } else {
                tokio::select! {
                    biased;
                    () = &mut end_of_reads => break,
                    read = self.stream.read_buf(&mut self.input) => match read {
                        Ok(len) if len > 0 => count(&broker.counters().received.bytes, len),
                        Ok(_) | Err(_) => break,
                    },
                }
            }
        }
        CloseReason::ConnectionLost(why)
    }

    /// Makes room for a read. The buffer grows with the bytes that arrive: an announced length is no reason to allocate.
    ///
    /// Charges the connection for it, and for `others`, the memory of its other buffers.
    fn make_room(&mut self, missing: usize, others: usize) -> Result<(), OutOfMemory> {
        self.shrink_input();
        let least = match self.handshake_bytes {
            Some(_) => CONNECT_READ_BYTES_MIN,
            None if self.charge.account().is_under_pressure() => READ_BYTES_MIN,
            None => self.read_bytes,
        };
        let wanted = missing.min(self.input.len()).max(least);
        let needed = self.input.len().saturating_add(wanted).max(self.input_bytes);
        self.charge_for(needed.saturating_add(others))?;
        self.input.reserve(wanted);
        if self.input.capacity() > needed {
            self.input_bytes = self.input.capacity();
            self.charge_for(self.input_bytes.saturating_add(others))?;
        } else {
            self.input_bytes = needed;
        }
        Ok(())
    }

    /// Releases a large buffer that has few bytes left.
    fn shrink_input(&mut self) {
        let is_burst_over = self.handshake_bytes.is_none()
            && (self.read_bytes == READ_BYTES_MIN || self.charge.account().is_under_pressure());
        let kept = if is_burst_over { READ_BYTES_MAX / 2 } else { INPUT_BYTES_KEPT };
        if self.input_bytes > kept && self.input.len() < self.input_bytes / 4 {
            self.input = BytesMut::from(&self.input[..]);
            self.input_bytes = self.input.capacity();
        }
    }

    /// Charges the connection for buffers of `bytes`.
    fn charge_for(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let bytes = bytes.saturating_add(self.handshake_bytes.unwrap_or_default());
        let bytes = bytes.saturating_sub(CONNECTION_SHARE_BYTES);
        if !self.charge.may_hold(bytes) {
            return Err(OutOfMemory);
        }
        self.charge.set(bytes);
        Ok(())
    }

    /// Writes the last bytes and closes the stream, so that the client can read them.
    async fn close(mut self, mut output: BytesMut, mut closing: watch::Receiver<bool>) {
        let write = async {
            self.stream.write_all_buf(&mut output).await?;
            self.stream.shutdown().await
        };
        if !matches!(timeout(CLOSE_TIMEOUT, write).await, Ok(Ok(()))) {
            return;
        }
        let drain = async {
            let mut discarded = 0_usize;
            loop {
                self.input.clear();
                self.input.reserve(READ_BYTES_MIN);
                let Ok(read @ 1..) = self.stream.read_buf(&mut self.input).await else { return };
                discarded = discarded.saturating_add(read);
                if discarded >= LINGER_BYTES {
                    discarded = 0;
                    sleep(LINGER_PAUSE).await;
                }
            }
        };
        // A client that does not close in time may lose the last bytes.
        tokio::select! {
            () = async {
                // An error means that the server was dropped.
                let _ = closing.wait_for(|is_closing| *is_closing).await;
                sleep(CLOSING_LINGER_TIMEOUT).await;
            } => {}
            _ = timeout(LINGER_TIMEOUT, drain) => {}
        }
    }
}
