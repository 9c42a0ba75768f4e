//! Requests per second of `mqkv serve`, of Mosquitto with a responder that keeps a map, and of Redis, by clients that cost
//! next to nothing. Half of the requests are SETs of 100 bytes, half are GETs.
//!
//! With one client and one request in flight, a server that sends a fixed response to each read shows the upper bound for
//! any server on this system.

use std::io;

use bytes::Bytes;

use super::responder;
use crate::shared::raw::{self, BlockingClient, RawClient, command};
use crate::shared::{in_turn, mosquitto, print_against_others, rate, redis, run as block_on, serve};

const ROUNDS: usize = 7;
/// Clients, requests in flight per client, requests of all clients per round.
const CASES: [(usize, usize, usize); 3] = [(1, 1, 20_000), (1, 64, 200_000), (50, 1, 100_000)];

pub fn run() {
    let ours = serve(&[]);
    let broker = mosquitto();
    let _responder = responder::start(broker.port);
    let theirs = redis::serve(None);
    let fixed = responder::start_fixed();
    let names = ["mqkv serve", "Mosquitto and responder", "Redis", "fixed response"];
    for (clients, inflight, count) in CASES {
        println!(" {clients} client{}, {inflight} in flight", if clients == 1 { "" } else { "s" });
        let mqtt = |port: u16| {
            move || {
                rate(count, || match (clients, inflight) {
                    (1, 1) => request_one_by_one(port, count).unwrap(),
                    _ => block_on(load(port, clients, inflight, count)),
                })
            }
        };
        let resp = || {
            rate(count, || match (clients, inflight) {
                (1, 1) => request_redis_one_by_one(theirs.port, count).unwrap(),
                _ => block_on(load_redis(theirs.port, clients, inflight, count)),
            })
        };
        let mut subjects: Vec<Box<dyn FnMut() -> f64>> =
            vec![Box::new(mqtt(ours.port)), Box::new(mqtt(broker.port)), Box::new(resp)];
        if (clients, inflight) == (1, 1) {
            subjects.push(Box::new(mqtt(fixed.port)));
        }
        let figures = in_turn(ROUNDS, &mut subjects);
        print_against_others(&names, &figures, "a second", 0);
    }
}

/// Sends `count` requests by several clients.
async fn load(port: u16, clients: usize, inflight: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number:03}");
                let mut client = RawClient::for_requests(port, &id).await;
                client.request_all(&requests(&id), inflight, count / clients).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn load_redis(port: u16, clients: usize, inflight: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let mut client = redis::Client::connect(port).await.unwrap();
                let commands = commands(&format!("bench-{number:03}"));
                let push =
                    |output: &mut bytes::BytesMut, at: usize| output.extend_from_slice(&commands[at % 2]);
                client.request_each(inflight, count / clients, push).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn request_one_by_one(port: u16, count: usize) -> io::Result<()> {
    let mut client = BlockingClient::connect(port, responder::FIXED_ID)?;
    for request in requests(responder::FIXED_ID).iter().cycle().take(count) {
        client.buffers.push_request(request);
        client.wait_for_message()?;
    }
    Ok(())
}

fn request_redis_one_by_one(port: u16, count: usize) -> io::Result<()> {
    let mut client = redis::BlockingClient::connect(port)?;
    commands("bench-single").iter().cycle().take(count).try_for_each(|command| client.request(command))
}

/// Returns a SET and a GET.
fn commands(id: &str) -> [Vec<u8>; 2] {
    let key = format!("bench/{id}");
    [command(&[b"SET", key.as_bytes(), &[b'v'; 100]]), command(&[b"GET", key.as_bytes()])]
}

fn requests(id: &str) -> [Bytes; 2] {
    let timestamp = raw::timestamp();
    commands(id).map(|payload| raw::request(id, &payload, &timestamp))
}
