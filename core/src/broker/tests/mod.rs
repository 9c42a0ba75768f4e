//! Tests of the broker through its connections, packet by packet.

mod application;
mod buffered_output;
mod connect;
mod disconnect;
mod flow_control;
mod malformed_packets;
mod memory;
mod mqtt311;
mod publish;
mod qos;
mod read_size;
mod sessions;
mod shared_subscriptions;
mod subscribe;
mod wills;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};

use super::authentication::ConnectionInfo;
use super::memory::{Charge, MemoryKind};
use super::test_client::{Client, ConnectOptions, filter, qos_0, qos_1, retained, with_properties};
use super::{
    Application, Broker, Event, EventSink, HeldAcknowledgement, Hooks, ListenerSettings, Peer, Server,
    SessionPhase, Settings, Verdict,
};
use crate::broker::test_client::wire::{
    ConnectReturnCode, Disconnect, DisconnectProperties, DisconnectReasonCode, LastWill, LastWillProperties,
    Packet, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, PublishProperties, QoS,
    RetainForwardRule, Subscribe, SubscribeFilter, SubscribeReasonCode, UnsubAckReason, Unsubscribe,
};
use crate::broker::wire::connection;
use crate::broker::wire::login::{Login, Logins, Permit};
use crate::mqtt::ReasonCode;
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};

async fn start() -> Server {
    start_with(Settings::default()).await
}

async fn start_with(settings: Settings) -> Server {
    Server::start(settings, Hooks::new(Arc::new(()))).await.unwrap()
}

/// Serves one connection on a stream, until the sender is dropped.
fn serve<S>(broker: Broker, stream: S, info: ConnectionInfo) -> watch::Sender<bool>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let account = broker.memory().account("memory");
    let charge = Charge::new(&account, MemoryKind::Unauthenticated, 0);
    let (closing, closes) = watch::channel(false);
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let unfinished = Arc::new(Logins::default().begin("127.0.0.1".parse().unwrap()));
    let permit = Permit::new(permit, Charge::new(&account, MemoryKind::Reserved, 0));
    let login = Login { charge, permit, unfinished, is_refused: false };
    tokio::spawn(connection::serve(broker, stream, info, login, closes));
    closing
}

fn qos_2(topic: &str, packet_id: u16) -> Publish {
    Publish { qos: QoS::ExactlyOnce, ..qos_1(topic, packet_id) }
}

/// A message that the process itself publishes.
fn message(topic: &str, qos: Qos) -> Message {
    Message { topic: topic.to_owned().into(), qos, ..Message::default() }
}

fn will(topic: &str, delay_s: u32) -> LastWill {
    let properties = LastWillProperties {
        delay_interval: Some(delay_s),
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    LastWill::new(topic, "gone", QoS::AtLeastOnce, false, Some(properties))
}

/// Pushes messages on `answer/…` back to their sender, holds the acknowledgement of `hold`, rejects `refuse`, and
/// disconnects the sender of `leave`.
#[derive(Default)]
struct Echo {
    /// The connections that have closed.
    disconnected: Mutex<Vec<ConnectionId>>,
    /// The sender of each message.
    senders: Mutex<Vec<Peer>>,
    held: Mutex<Vec<HeldAcknowledgement>>,
}

impl Application for Echo {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message, _: Instant) -> Verdict {
        self.senders.lock().unwrap().push(from.clone());
        if message.topic == "leave" {
            return Verdict::Disconnect { reason: ReasonCode::NotAuthorized, text: "go".to_owned() };
        }
        if message.topic == "refuse" {
            return Verdict::Refused(ReasonCode::QuotaExceeded);
        }
        if message.topic == "hold" {
            self.held.lock().unwrap().extend(from.hold_acknowledgement());
            return Verdict::Consumed;
        }
        assert_ne!(message.topic, "fail", "as the test wants it");
        if message.topic.starts_with("answer/") {
            broker.push(from.connection, &from.client_id, message);
            return Verdict::Consumed;
        }
        Verdict::Route(message)
    }

    fn handle_disconnect(&self, _: &Broker, peer: &Peer) {
        self.disconnected.lock().unwrap().push(peer.connection);
    }
}

async fn start_echo() -> (Server, Arc<Echo>) {
    start_echo_with(Settings::default()).await
}

async fn start_echo_with(settings: Settings) -> (Server, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    let hooks = Hooks::new(Arc::<Echo>::clone(&echo));
    (Server::start(settings, hooks).await.unwrap(), echo)
}

/// Waits until the application has held back `count` acknowledgements.
async fn wait_for_held(echo: &Echo, count: usize) {
    while echo.held.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

/// Fails if the broker writes anything before all tasks wait.
async fn expect_no_write(client: &mut Client) {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let read = tokio::time::timeout(Duration::ZERO, client.stream.read_u8()).await;
    assert!(read.is_err(), "nothing is written");
}
