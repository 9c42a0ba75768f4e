//! Requests of a library client that wait in the client: groups of them, and those whose caller has given up.

use std::sync::mpsc;
use std::time::Duration;

use mqkv::client::request::RequestProperties;
use mqkv::client::{Client, RawRequest, Settings, Target};
use tokio::sync::oneshot;

use super::common::fake_broker::{Connection, FakeBroker};
use super::common::wire;
use crate::a_watchdog::bounded;

const REFUSED: u8 = 0x87;

fn request(number: usize) -> RawRequest {
    RawRequest::of_words(&["DEL".to_owned(), format!("key{number}")], RequestProperties::default())
}

/// Refuses the next requests, which needs no response. Returns the numbers of their keys.
fn refuse(connection: &mut Connection, count: usize) -> Vec<usize> {
    let number = |payload: &[u8]| {
        let text = String::from_utf8_lossy(payload).into_owned();
        text.split("key").nth(1).and_then(|rest| rest.trim().parse().ok()).unwrap()
    };
    (0..count)
        .map(|_| {
            let request = connection.request();
            connection.send(&wire::puback(request.packet_id, REFUSED));
            number(&request.payload)
        })
        .collect()
}

/// Runs a future with a client that has few requests in flight.
fn with_client<T>(url: &str, inflight_max: usize, run: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (host, port) = url.strip_prefix("mqtt://").unwrap().split_once(':').unwrap();
    let target = Target::Tcp { host: host.to_owned(), port: port.parse().unwrap() };
    let keep_alive = Duration::from_secs(1);
    let settings = Settings { inflight_max, keep_alive, ..Settings::new(target, "me".to_owned()) };
    runtime.block_on(async { run(Client::connect(settings).await.unwrap()).await })
}

#[test]
fn a_group_has_no_more_requests_in_flight_than_the_session_allows() {
    let broker = FakeBroker::start(|connection| {
        connection.accept_client();
        connection.subscribe(1);
        let requests = [connection.request(), connection.request()];
        // Nothing else is sent.
        connection.expect("PINGREQ");
        connection.send(&[0xD0, 0]);
        for request in requests {
            connection.send(&wire::puback(request.packet_id, REFUSED));
        }
        refuse(connection, 3)
    });
    with_client(&broker.url(), 2, async |client| {
        let mut bulk = client.bulk();
        (0..5).for_each(|number| bulk.push(request(number)));
        for _ in 0..5 {
            bulk.wait().await;
            assert!(bulk.try_next().unwrap().is_err());
        }
    });
    assert_eq!(broker.end(), [2, 3, 4]);
}

#[test]
fn a_request_does_not_wait_behind_a_group_of_another_handle() {
    const COUNT: usize = 100;
    let broker = FakeBroker::start(|connection| {
        connection.accept_client();
        connection.subscribe(1);
        refuse(connection, COUNT + 1)
    });
    with_client(&broker.url(), 2, async |client| {
        let mut bulk = client.bulk();
        (0..COUNT).for_each(|number| bulk.push(request(number)));
        let all = async {
            for _ in 0..COUNT {
                bulk.wait().await;
                assert!(bulk.try_next().unwrap().is_err());
            }
        };
        tokio::join!(all, client.send(request(COUNT))).1.unwrap_err();
    });
    let order = broker.end();
    assert!(order[..3].contains(&COUNT), "{order:?}");
    assert!(order.iter().filter(|number| **number < COUNT).is_sorted(), "{order:?}");
}

#[test]
fn requests_whose_caller_has_given_up_are_not_sent() {
    let (seen_sender, seen) = oneshot::channel();
    let (dropped, dropped_receiver) = mpsc::channel();
    let broker = FakeBroker::start(move |connection| {
        connection.expect("CONNECT");
        // Receive Maximum 1.
        connection.send(&wire::connack(0, &[0x21, 0, 1]));
        connection.subscribe(1);
        let first = connection.request();
        seen_sender.send(()).unwrap();
        bounded(|| dropped_receiver.recv()).unwrap();
        connection.send(&wire::puback(first.packet_id, REFUSED));
        refuse(connection, 1)
    });
    with_client(&broker.url(), 64, async |client| {
        let mut bulk = client.bulk();
        (0..5).for_each(|number| bulk.push(request(number)));
        tokio::select! {
            _ = async { tokio::join!(bulk.wait(), client.send(request(5))) } => panic!("there was no answer"),
            seen = seen => seen.unwrap(),
        }
        drop(bulk);
        let last = async {
            tokio::task::yield_now().await;
            dropped.send(()).unwrap();
        };
        tokio::join!(client.send(request(6)), last).0.unwrap_err();
    });
    assert_eq!(broker.end(), [6]);
}
