//! Delay from a SET to the notification of its key by `mqkv serve`, and from a PUBLISH of as many bytes to its delivery by
//! Mosquitto: what a watch costs beside the least that a broker does.

use std::time::Instant;

use crate::shared::raw::{self, BlockingClient, REQUEST_TOPIC, command};
use crate::shared::{in_turn, mosquitto, print_against_others, serve};

const ROUNDS: usize = 7;
const MESSAGES: usize = 5_000;

pub fn run() {
    let (ours, theirs) = (serve(&[]), mosquitto());
    let mut watcher = BlockingClient::connect(ours.port, "watcher").unwrap();
    watcher.buffers.push_request(&raw::request(
        "watcher",
        &command(&[b"KEYNOTIFY", b"key"]),
        &raw::timestamp(),
    ));
    watcher.wait_for_message().unwrap();
    let mut subscriber = BlockingClient::connect(theirs.port, "subscriber").unwrap();
    subscriber.subscribe(REQUEST_TOPIC).unwrap();
    let mut writer = BlockingClient::connect(ours.port, "writer").unwrap();
    let mut publisher = BlockingClient::connect(theirs.port, "publisher").unwrap();
    // A round gives two figures; the second is kept for later.
    let (mut p99, mut p99_of_publish) = (Vec::new(), Vec::new());
    let p50 = in_turn(
        ROUNDS,
        &mut [
            Box::new(|| {
                let (p50, tail) = delays(&mut writer, &mut watcher, true);
                p99.push(tail);
                p50
            }),
            Box::new(|| {
                let (p50, tail) = delays(&mut publisher, &mut subscriber, false);
                p99_of_publish.push(tail);
                p50
            }),
        ],
    );
    let names = ["SET to notification", "a plain publish"];
    println!(" p50");
    print_against_others(&names, &p50, "µs", 1);
    println!(" p99");
    // The round that warms up counts in neither.
    let p99 = [p99, p99_of_publish].map(|figures| figures[1..].to_vec());
    print_against_others(&names, &p99, "µs", 1);
}

/// Sends one message after the other, and returns p50 and p99 of the delays in microseconds.
fn delays(sender: &mut BlockingClient, receiver: &mut BlockingClient, has_response: bool) -> (f64, f64) {
    let payload = command(&[b"SET", b"key", &[b'v'; 100]]);
    let request = raw::request("writer", &payload, &raw::timestamp());
    let mut delays: Vec<f64> = (0..MESSAGES)
        .map(|_| {
            sender.buffers.push_request(&request);
            let begun = Instant::now();
            sender.flush().unwrap();
            receiver.wait_for_message().unwrap();
            let delay = begun.elapsed().as_secs_f64() * 1e6;
            receiver.flush().unwrap();
            if has_response {
                sender.wait_for_message().unwrap();
            } else {
                sender.wait_for_puback().unwrap();
            }
            delay
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    (delays[MESSAGES / 2], delays[MESSAGES * 99 / 100])
}
