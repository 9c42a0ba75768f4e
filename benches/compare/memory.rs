//! Memory of a million keys without expiry, in `mqkv serve` without a disk and in Redis without one.

use crate::shared::raw::{self, VALUE_BYTES, command, key};
use crate::shared::{print_against_others, redis, run as block_on, serve};

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
    print_against_others(&["mqkv", "Redis"], &[vec![mqkv], vec![redis]], "bytes a key", 0);
}

async fn fill_redis(port: u16) {
    let mut client = redis::Client::connect(port).await.unwrap();
    let push = |output: &mut bytes::BytesMut, number: usize| {
        output.extend_from_slice(&command(&[b"SET", &key(number), &[b'v'; VALUE_BYTES]]));
    };
    client.request_each(AT_ONCE, KEYS, push).await.unwrap();
}
