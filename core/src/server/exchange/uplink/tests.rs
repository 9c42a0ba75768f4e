//! The uplink with a node that has no exchange, and a real broker in this process.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::time::timeout;

use super::*;
use crate::broker::{
    AccessControl, Application, Broker, Hooks, ListenerSettings, Peer, Permissions, Principal, Server,
    Settings, Verdict,
};
use crate::client::trace::{Packet, TraceEvent};
use crate::client::{Target, Tracer};
use crate::mqtt;
use crate::net::tls::{ServerTls, ServerTlsFiles};
use crate::net::{ClientTls, TlsOptions};
use crate::protocol::Message;
use crate::protocol::message::Qos;

const UP: &str = "mqkv/exchange/v1/plant/up/press-7";
const DOWN: &str = "mqkv/exchange/v1/plant/down/press-7";

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// Runs the other tasks until the condition is met.
async fn until(condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, met).await.unwrap();
}

/// A node whose frames are given, and that records all calls.
#[derive(Default)]
struct Node {
    state: observe::Sender<State>,
    changed: Notify,
    retry: Notify,
}

#[derive(Clone, Debug, Default)]
struct State {
    connected: usize,
    lost: usize,
    to_send: VecDeque<Bytes>,
    received: Vec<Bytes>,
    has_ended: bool,
    is_busy: bool,
    frame_bytes_max: usize,
    causes: Vec<String>,
    events: Vec<UplinkEvent>,
}

impl Node {
    fn new(to_send: impl IntoIterator<Item = Bytes>) -> Arc<Self> {
        let node = Arc::new(Self::default());
        node.change(|state| state.to_send.extend(to_send));
        node
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
        self.changed.notify_one();
    }

    async fn wait_for(&self, condition: impl FnMut(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        let met = timeout(HANG, state.wait_for(condition)).await.map(|state| state.unwrap().clone());
        met.unwrap_or_else(|_| panic!("{:?}", self.state.borrow().events))
    }
}

impl UplinkNode for Node {
    fn handle_connected(&self, frame_bytes_max: usize) {
        self.state.send_modify(|state| {
            state.frame_bytes_max = frame_bytes_max;
            assert_eq!(state.connected, state.lost, "one link at a time");
            state.connected += 1;
            state.has_ended = false;
        });
    }

    fn handle_frame(&self, payload: &Bytes) -> FrameOutcome {
        let mut outcome = FrameOutcome::Busy;
        self.state.send_if_modified(|state| {
            assert_eq!(state.connected, state.lost + 1, "only while there is a link");
            if !state.is_busy {
                state.received.push(payload.clone());
                outcome = FrameOutcome::Handled;
            }
            !state.is_busy
        });
        outcome
    }

    fn handle_lost(&self) {
        self.state.send_modify(|state| state.lost += 1);
    }

    fn poll_frame(&self) -> Option<Bytes> {
        let mut frame = None;
        self.state.send_if_modified(|state| {
            frame = state.to_send.pop_front();
            frame.is_some()
        });
        frame
    }

    fn has_ended(&self) -> bool {
        self.state.borrow().has_ended
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }

    fn retry(&self) -> &Notify {
        &self.retry
    }

    fn handle_unreachable(&self, cause: String) {
        self.state.send_modify(|state| state.causes.push(cause));
    }

    fn report(&self, event: UplinkEvent) {
        self.state.send_modify(|state| state.events.push(event));
    }
}

/// The broker of a root, which may be absent, and everything that it has received.
#[derive(Default)]
struct Root {
    server: Mutex<Option<Server>>,
    attempts: AtomicUsize,
    received: Mutex<Vec<Bytes>>,
    /// Pushed to the leaf with its first frame.
    to_push: Mutex<Vec<Bytes>>,
    /// The answer to frames; None: accepted.
    refusal: Mutex<Option<mqtt::ReasonCode>>,
    /// Whether the broker has no application for frames.
    is_plain: bool,
    is_subscription_refused: bool,
}

impl Root {
    async fn start(self) -> Arc<Self> {
        let root = Arc::new(self);
        root.open().await;
        root
    }

    async fn open(self: &Arc<Self>) {
        let mut hooks = Hooks::new(Arc::<Self>::clone(self));
        if self.is_subscription_refused {
            hooks.access_control = Some(Arc::new(NoSubscriptions));
        }
        let server = Server::start(Settings::default(), hooks).await.unwrap();
        *self.server.lock().unwrap() = Some(server);
    }

    async fn close(&self) {
        let server = self.server.lock().unwrap().take().unwrap();
        server.shutdown().await;
    }

    fn pipe(&self) -> DuplexStream {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.server.lock().unwrap().as_ref().map_or_else(closing_pipe, Server::pipe)
    }

    /// Starts the uplink of a leaf to this root, with delays of milliseconds.
    fn uplink(self: &Arc<Self>, node: &Arc<Node>) -> Uplink {
        self.uplink_with(node, |_| {})
    }

    fn uplink_with(self: &Arc<Self>, node: &Arc<Node>, change: impl FnOnce(&mut client::Settings)) -> Uplink {
        let root = Arc::clone(self);
        let target = Target::Pipe(Arc::new(move || root.pipe()));
        let mut client = client::Settings::new(target, String::new());
        change(&mut client);
        start(client, node)
    }
}

/// Returns a connection that is closed at its first byte.
fn closing_pipe() -> DuplexStream {
    let (client, mut closing) = tokio::io::duplex(1024);
    tokio::spawn(async move { closing.read_u8().await });
    client
}

fn start(client: client::Settings, node: &Arc<Node>) -> Uplink {
    start_with(client, node, Backoff::new(Duration::from_millis(1), Duration::from_millis(4)))
}

fn start_with(client: client::Settings, node: &Arc<Node>, backoff: Backoff) -> Uplink {
    let name = |name| Name::new(name).unwrap();
    let settings = UplinkSettings { exchange: name("plant"), leaf: name("press-7"), run: 0xab, client };
    Uplink::start_with(settings, Arc::clone(node), backoff)
}

impl Application for Root {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message, _: Instant) -> Verdict {
        if message.topic != UP || self.is_plain {
            return Verdict::Route(message);
        }
        assert_eq!(&*from.client_id, "mqkv-exchange-press-7-00000000000000ab");
        if let Some(reason) = *self.refusal.lock().unwrap() {
            return Verdict::Refused(reason);
        }
        self.received.lock().unwrap().push(message.payload);
        for payload in self.to_push.lock().unwrap().drain(..) {
            broker.push(from.connection, &from.client_id, down(payload));
        }
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

fn down(payload: Bytes) -> Message {
    Message { topic: DOWN.into(), payload, qos: Qos::AtLeastOnce, ..Message::default() }
}

#[derive(Debug)]
struct NoSubscriptions;

impl AccessControl for NoSubscriptions {
    fn permissions(self: Arc<Self>, _: &Arc<str>, _: &Principal) -> Arc<dyn Permissions> {
        self
    }
}

impl Permissions for NoSubscriptions {
    fn may_connect(&self) -> bool {
        true
    }

    fn may_publish(&self, _: &str) -> bool {
        true
    }

    fn may_subscribe(&self, _: &str) -> bool {
        false
    }

    fn may_receive(&self, _: &str) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        0
    }

    fn refresh(&self) {}
}

fn frames(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| Bytes::from(format!("frame {number}"))).collect()
}

fn failed(error: &str) -> UplinkEvent {
    UplinkEvent::Failed { error: error.to_owned() }
}

#[tokio::test]
async fn frames_pass_in_order_both_ways() {
    let large = Bytes::from(vec![b'x'; 1024 * 1024]);
    let sent = [frames(1_000), vec![large]].concat();
    let root = Root { to_push: Mutex::new(sent.clone()), ..Root::default() }.start().await;
    let node = Node::new(sent.clone());
    let _uplink = root.uplink(&node);
    let state = node.wait_for(|state| state.received.len() == sent.len()).await;
    assert!(state.received == sent);
    node.change(|state| state.to_send.push_back(Bytes::from_static(b"last")));
    until(|| root.received.lock().unwrap().len() > sent.len()).await;
    let received = root.received.lock().unwrap();
    assert!(received[..sent.len()] == sent && received[sent.len()..] == ["last"]);
    let state = node.state.borrow();
    assert_eq!((state.connected, state.lost), (1, 0));
    assert_eq!(state.events, [UplinkEvent::Connected]);
}

#[tokio::test]
async fn a_leaf_connects_again_when_its_root_comes_back() {
    let root = Root::default().start().await;
    let node = Node::new(frames(1));
    let _uplink = root.uplink(&node);
    node.wait_for(|state| state.events.len() == 1).await;
    root.close().await;
    node.wait_for(|state| state.events.len() == 3).await;
    let failed_attempts = root.attempts.load(Ordering::Relaxed) + 3;
    until(|| root.attempts.load(Ordering::Relaxed) >= failed_attempts).await;
    root.open().await;
    node.wait_for(|state| state.connected == 2).await;
    node.change(|state| state.to_send.extend(frames(1)));
    let state = node.wait_for(|state| state.events.len() == 4).await;
    let reason = "the broker ended the connection: server shutting down (0x8B)";
    let cause = format!("lost the connection to embedded store: {reason}");
    let expected = [
        UplinkEvent::Connected,
        UplinkEvent::Lost { cause },
        failed("connection closed by the other side: embedded store"),
        UplinkEvent::Connected,
    ];
    assert_eq!(state.events, expected, "a repeated failure is reported once");
    assert_eq!((state.connected, state.lost), (2, 1));
    assert_eq!(*root.received.lock().unwrap(), ["frame 0", "frame 0"]);
}

#[tokio::test]
async fn a_refused_subscription_is_a_failure_and_no_frame_is_sent() {
    let root = Root { is_subscription_refused: true, ..Root::default() }.start().await;
    let node = Node::new(frames(1));
    let _uplink = root.uplink(&node);
    node.wait_for(|state| !state.events.is_empty()).await;
    until(|| root.attempts.load(Ordering::Relaxed) >= 3).await;
    let state = node.state.borrow().clone();
    let error = format!("the broker refused the subscription to {DOWN}: not authorized (0x87)");
    assert_eq!(state.events, [failed(&error)]);
    assert_eq!((state.connected, state.to_send.len()), (0, 1));
    assert!(root.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_frame_ends_the_link_and_is_reported_once() {
    let not_authorized = Mutex::new(Some(mqtt::ReasonCode::NotAuthorized));
    let root = Root { refusal: not_authorized, ..Root::default() }.start().await;
    let node = Node::new(frames(3));
    let _uplink = root.uplink(&node);
    node.wait_for(|state| state.lost >= 1).await;
    node.change(|state| state.to_send.extend(frames(1)));
    let state = node.wait_for(|state| state.lost >= 2).await;
    let cause = format!("the broker refused the message to {UP}: not authorized (0x87)");
    let refused = failed(&cause);
    assert_eq!(state.events, std::slice::from_ref(&refused));
    let state = node.wait_for(|state| state.causes.len() >= 2).await;
    assert_eq!(state.causes[..2], [cause.clone(), cause], "the status has the last cause");
    *root.refusal.lock().unwrap() = None;
    node.change(|state| state.to_send.extend(frames(1)));
    node.wait_for(|state| state.events.len() == 2).await;
    *root.refusal.lock().unwrap() = Some(mqtt::ReasonCode::NotAuthorized);
    node.change(|state| state.to_send.extend(frames(1)));
    let state = node.wait_for(|state| state.events.len() == 3).await;
    assert_eq!(state.events, [refused.clone(), UplinkEvent::Connected, refused], "it is new after a success");
}

#[tokio::test]
async fn a_broker_without_a_root_is_a_failure() {
    let root = Root { is_plain: true, ..Root::default() }.start().await;
    let node = Node::new(frames(1));
    let _uplink = root.uplink(&node);
    let state = node.wait_for(|state| !state.events.is_empty()).await;
    let error = "no root of the exchange plant at embedded store: no subscriber to its topic";
    assert_eq!(state.events, [failed(error)]);
}

#[tokio::test]
async fn a_node_that_has_ended_its_link_gets_another_connection() {
    let root = Root::default().start().await;
    let node = Node::new(frames(1));
    let _uplink = root.uplink(&node);
    node.wait_for(|state| !state.events.is_empty()).await;
    node.change(|state| state.has_ended = true);
    node.wait_for(|state| state.connected == 2).await;
    node.change(|state| state.to_send.extend(frames(1)));
    until(|| root.received.lock().unwrap().len() == 2).await;
    let state = node.state.borrow();
    assert_eq!((state.lost, &state.events[..]), (1, &[UplinkEvent::Connected][..]));
}

#[tokio::test]
async fn a_busy_node_stops_the_reading_of_frames_and_gets_all_of_them_later() {
    const COUNT: usize = 4_000;
    /// What one read and the queue hold.
    const AHEAD_MAX: usize = 256;
    let payload = |number: usize| Bytes::from(format!("{number:01024}"));
    let pushed: Vec<_> = (0..COUNT).map(payload).collect();
    let root = Root { to_push: Mutex::new(pushed.clone()), ..Root::default() }.start().await;
    let node = Node::new(frames(1));
    node.change(|state| state.is_busy = true);
    let read = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read);
    let tracer = Tracer::new(true, move |event, _| {
        if matches!(event, TraceEvent::Received(Packet::Publish { .. })) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let _uplink = root.uplink_with(&node, |client| client.tracer = Some(tracer));
    node.wait_for(|state| !state.events.is_empty()).await;
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        node.changed.notify_one();
    }
    let ahead = read.load(Ordering::Relaxed);
    assert!((1..AHEAD_MAX).contains(&ahead), "{ahead} frames were read");
    assert!(node.state.borrow().received.is_empty());
    node.change(|state| state.is_busy = false);
    let state = node.wait_for(|state| state.received.len() == COUNT).await;
    assert!(state.received == pushed);
    assert_eq!(state.lost, 0);
}

#[tokio::test]
async fn a_loss_is_reported_to_a_busy_node() {
    let root = Root { to_push: Mutex::new(frames(3)), ..Root::default() }.start().await;
    let node = Node::new(frames(1));
    node.change(|state| state.is_busy = true);
    let _uplink = root.uplink(&node);
    node.wait_for(|state| !state.events.is_empty()).await;
    root.close().await;
    node.wait_for(|state| state.lost == 1).await;
}

#[tokio::test]
async fn tls_files_are_read_again_for_each_connection() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    for name in ["server", "other"] {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(file(name), cert.pem()).unwrap();
        fs::write(file(&format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    }
    let files = ServerTlsFiles { certfile: file("server"), keyfile: file("server.key"), client_ca: None };
    let tls = Some(ServerTls::load(files).unwrap());
    let listener = ListenerSettings { tls, ..ListenerSettings::plain(([127, 0, 0, 1], 0).into()) };
    let settings = Settings { listeners: vec![listener], ..Settings::default() };
    let server = Server::start(settings, Hooks::new(Arc::new(Root::default()))).await.unwrap();
    fs::copy(file("other"), file("cas")).unwrap();
    let tls = ClientTls::load(&TlsOptions { cafile: Some(file("cas")), ..TlsOptions::default() }).unwrap();
    let port = server.addresses()[0].port();
    let target = Target::Tcp { host: "localhost".to_owned(), port };
    let node = Node::new(frames(1));
    let _uplink =
        start(client::Settings { tls: Some(tls), ..client::Settings::new(target, String::new()) }, &node);
    node.wait_for(|state| state.events.len() == 1).await;
    fs::remove_file(file("cas")).unwrap();
    node.wait_for(|state| state.events.len() == 2).await;
    fs::copy(file("server"), file("cas")).unwrap();
    let state = node.wait_for(|state| state.events.len() == 3).await;
    let [UplinkEvent::Failed { error: unknown }, UplinkEvent::Failed { error: missing }, last] =
        &state.events[..]
    else {
        panic!("{:?}", state.events);
    };
    assert!(unknown.contains(&format!("localhost:{port}")), "{unknown}");
    assert!(missing.contains("cas"), "{missing}");
    assert_eq!(*last, UplinkEvent::Connected);
}

#[tokio::test]
async fn dropping_an_uplink_closes_its_connection_at_any_time() {
    // A broker that does not answer to CONNECT.
    let (client, mut silent) = tokio::io::duplex(1024);
    let pipe = Mutex::new(Some(client));
    let target = Target::Pipe(Arc::new(move || pipe.lock().unwrap().take().unwrap()));
    let node = Node::new([]);
    let uplink = start(client::Settings::new(target, String::new()), &node);
    silent.read_u8().await.unwrap();
    drop(uplink);
    silent.read_to_end(&mut Vec::new()).await.unwrap();

    let root = Root::default().start().await;
    let uplink = root.uplink(&node);
    node.wait_for(|state| state.connected == 1).await;
    drop(uplink);
    // The task holds the node as long as it runs, and the client's the target.
    until(|| Arc::strong_count(&node) == 1 && Arc::strong_count(&root) <= 2).await;
    assert_eq!(root.attempts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_leaf_that_is_asked_to_connects_before_its_delay_is_over() {
    let root = Root::default().start().await;
    root.close().await;
    let node = Node::new(frames(1));
    let pipe = Arc::clone(&root);
    let target = Target::Pipe(Arc::new(move || pipe.pipe()));
    let hour = Duration::from_secs(3_600);
    let client = client::Settings::new(target, String::new());
    let _uplink = start_with(client, &node, Backoff::new(hour, hour));
    node.wait_for(|state| !state.causes.is_empty()).await;
    root.open().await;
    // A request between the failure and the delay would be lost: the operator would see it, and ask again.
    while node.wait_for(|_| true).await.connected == 0 {
        node.retry.notify_waiters();
        tokio::task::yield_now().await;
    }
    node.wait_for(|state| state.connected == 1).await;
}
