//! What is allocated: by decoders, a small multiple of the length of a hostile payload; by clients of the broker, about what
//! they are charged for.
#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a test ends where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use mqkv::broker::principal::Principal;
use mqkv::broker::publication::Publication;
use mqkv::broker::routing::registry::Registry;
use mqkv::broker::session::entry::SessionRequest;
use mqkv::broker::{Hooks, ListenerSettings, Server, Settings};
use mqkv::mqtt::packet::{RetainHandling, SubscriptionOptions, SubscriptionRequest};
use mqkv::protocol::ConnectionId;
use mqkv::protocol::frame::Frame;
use mqkv::protocol::message::{Message, Qos};
use mqkv::protocol::request::Request;
use mqkv::protocol::{Notification, Reply};

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with sums of the allocated and of the freed bytes per thread.
struct Counting;

// SAFETY: every call is forwarded unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().saturating_add(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which `System` shares.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED.set(FREED.get().saturating_add(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which `System` shares.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that all four decoders together allocate, freed or not.
fn allocated(payload: &Bytes) -> usize {
    ALLOCATED.set(0);
    let _ = Frame::decode(payload);
    let _ = Request::decode(payload);
    let _ = Reply::decode(payload);
    let _ = Notification::decode(payload);
    ALLOCATED.get()
}

#[test]
fn the_allocations_of_a_decoder_are_counted() {
    let frames = Bytes::from(format!("*1000\r\n{}", "+\r\n".repeat(1000)));
    let allocated = allocated(&frames);
    assert!(allocated > 1000 * size_of::<Frame>(), "{allocated} bytes");
}

#[test]
fn a_short_payload_allocates_little_whatever_length_it_declares() {
    for payload in [
        "*1048576\r\n",
        "*18446744073709551615\r\n",
        "*9223372036854775807\r\n$1\r\nk\r\n",
        "$18446744073709551615\r\n1",
        "$9223372036854775807\r\n",
        "*1\r\n$268435456\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1048576\r\n",
    ] {
        let allocated = allocated(&Bytes::from(payload));
        assert!(allocated <= 8 * 1024, "{payload:?} allocates {allocated} bytes");
    }
}

#[test]
fn nested_headers_that_declare_great_lengths_allocate_less_than_the_payload() {
    let rest = "x".repeat(3 * 1024 * 1024);
    let payload = Bytes::from(format!("*1048000\r\n*1047990\r\n*1047980\r\n*1047970\r\n{rest}"));
    let allocated = allocated(&payload);
    assert!(allocated <= 16 * 1024, "{allocated} bytes");
}

/// Returns the bytes that this thread has allocated and not freed.
fn resident() -> isize {
    ALLOCATED.get() as isize - FREED.get() as isize
}

/// A registry with what clients make it hold.
struct Held {
    registry: Registry,
    now: Instant,
}

impl Held {
    fn new() -> Self {
        let settings = Settings { memory_bytes_max: 1 << 30, ..Settings::default() };
        Self { registry: Registry::new(&settings), now: mqkv::clock::monotonic() }
    }

    /// Begins a session, without a connection if it is `offline`, with these filters.
    fn session(&mut self, number: u64, is_offline: bool, filters: impl Iterator<Item = String>) {
        let client_id: Arc<str> = format!("client-{number}").into();
        let request = SessionRequest {
            connection: ConnectionId(number),
            remote: "192.0.2.1:1024".into(),
            client_id,
            principal: Principal::default(),
            owner: self.registry.memory().account("ann"),
            permissions: None,
            clean_start: false,
            receive_maximum: 10,
            will: None,
            expiry_s: 3_600,
            connack: None,
        };
        self.registry.attach(request, self.now).unwrap();
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let request =
            |filter| SubscriptionRequest { filter, options, retain_handling: RetainHandling::Never };
        for result in self.registry.subscribe(ConnectionId(number), filters.map(request).collect()).results {
            result.unwrap();
        }
        if is_offline {
            self.registry.detach(ConnectionId(number), false, None, self.now);
        }
    }

    fn publish(&mut self, topic: String, bytes: usize, retain: bool) {
        let payload = vec![b'x'; bytes].into();
        let message =
            Message { topic: topic.into(), payload, qos: Qos::AtLeastOnce, retain, ..Message::default() };
        let publication = Arc::new(Publication::new(message, self.now));
        if retain {
            let owner = self.registry.memory().account("ann");
            self.registry.retain(&publication, &owner, self.now).unwrap();
        }
        let mut route = self.registry.begin_route(None, None, publication);
        while self.registry.route_some(&mut route, self.now, &mut Vec::new()) {}
    }
}

#[test]
fn what_clients_are_charged_is_what_is_allocated_for_them() {
    let level = |index: usize, is_any: bool| if is_any { "+".to_owned() } else { index.to_string() };
    let overlapping =
        |bits: usize| (0..10).map(|index| level(index, bits >> index & 1 == 1)).collect::<Vec<_>>().join("/");
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Held));
    let cases: [Case<'_>; 8] = [
        ("filters without wildcards", &|held| {
            (0..10).for_each(|number| {
                held.session(
                    number,
                    true,
                    (0..1_000).map(|index| format!("site/{number}/line/{index}/state")),
                );
            });
        }),
        ("filters with wildcards", &|held| {
            (0..10).for_each(|number| {
                held.session(number, true, (0..1_000).map(|index| format!("site/{number}/line/{index}/+/#")));
            });
        }),
        ("overlapping filters", &|held| {
            (0..50).for_each(|number| held.session(number, true, (0..1_000).map(overlapping)));
        }),
        ("sessions with few filters", &|held| {
            (0..1_000).for_each(|number| {
                held.session(number, true, (0..3).map(|index| format!("clients/{number}/{index}/#")));
            });
        }),
        ("small queued messages", &|held| {
            held.session(0, true, ["t/#".to_owned()].into_iter());
            (0..5_000).for_each(|number| held.publish(format!("t/{number}"), 16, false));
        }),
        ("large queued messages", &|held| {
            held.session(0, true, ["t/#".to_owned()].into_iter());
            (0..500).for_each(|number| held.publish(format!("t/{number}"), 20_000, false));
        }),
        ("retained messages of one byte", &|held| {
            (0..5_000).for_each(|number| held.publish(format!("site/line/{number}"), 1, true));
        }),
        ("retained messages", &|held| {
            (0..5_000).for_each(|number| held.publish(format!("site/line/{number}"), 500, true));
        }),
    ];
    let mut wrong = Vec::new();
    for (name, fill) in cases {
        let mut held = Held::new();
        let before = resident();
        fill(&mut held);
        let allocated = (resident() - before) as f64;
        let charged = held.registry.memory().used() as f64;
        let ratio = charged / allocated;
        let text = format!("{name}: {charged} bytes charged, {allocated} allocated: {ratio:.2}");
        eprintln!("{text}");
        if !(0.9..=1.5).contains(&ratio) {
            wrong.push(text);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn an_idle_connection_is_charged_what_is_allocated_for_it() {
    const CONNECTIONS: usize = 50;
    let listeners = vec![ListenerSettings::plain("127.0.0.1:0".parse().unwrap())];
    // The connections are served by this thread.
    let settings = Settings { listeners, threads: 0, ..Settings::default() };
    let server = Server::start(settings, Hooks::new(Arc::new(()))).await.unwrap();
    let mut clients = Vec::with_capacity(CONNECTIONS);
    let before = resident();
    for number in 0..CONNECTIONS {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut client = tokio::net::TcpStream::connect(server.addresses()[0]).await.unwrap();
        let connect = format!("\x10\x0F\0\x04MQTT\x05\x02\0\0\0\0\x02{number:02}");
        client.write_all(connect.as_bytes()).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 0x20);
        clients.push(client);
    }
    let allocated = (resident() - before) as f64;
    let charged = server.broker().memory().used() as f64;
    eprintln!("{charged} bytes charged, {allocated} allocated: {:.2}", charged / allocated);
    assert!((0.9..=1.5).contains(&(charged / allocated)), "{charged} bytes charged, {allocated} allocated");
}
