//! Memory of a million keys without expiry, in `mqkv serve` without a disk and in Redis without one.

use crate::shared::raw::{self, KEY_BYTES, VALUE_BYTES, command, key};
use crate::shared::{redis, run as block_on, serve};

const KEYS: usize = 1_000_000;
const AT_ONCE: usize = 1_000;

pub fn run() {
    let bytes_of = |before: f64, after: f64| (after - before) * 1024.0 * 1024.0 / KEYS as f64;
    let ours = serve(&["--keys-max", "2000000"]);
    let before = ours.resident_mib();
    block_on(raw::fill(ours.port, KEYS, key));
    let mqkv = bytes_of(before, ours.resident_mib());
    drop(ours);
    let theirs = redis::serve(None);
    let before = theirs.resident_mib();
    block_on(fill_redis(theirs.port));
    let redis = bytes_of(before, theirs.resident_mib());
    println!("  {KEYS} keys of {KEY_BYTES} + {VALUE_BYTES} bytes, with their bytes");
    println!("  mqkv                           {mqkv:.0} bytes a key");
    println!("  Redis                          {redis:.0} bytes a key");
    println!("  mqkv / Redis                   {:.2}", mqkv / redis);
}

async fn fill_redis(port: u16) {
    let mut client = redis::Client::connect(port).await.unwrap();
    let push = |output: &mut bytes::BytesMut, number: usize| {
        output.extend_from_slice(&command(&[b"SET", &key(number), &[b'v'; VALUE_BYTES]]));
    };
    client.request_each(AT_ONCE, KEYS, push).await.unwrap();
}
