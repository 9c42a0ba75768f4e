//! Fuzz target: decoded replies and notifications are equal after encoding and decoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mqkv::protocol::{Notification, Reply};

fuzz_target!(|data: &[u8]| {
    let payload = Bytes::copy_from_slice(data);
    if let Ok(reply) = Reply::decode(&payload) {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
    if let Ok(notification) = Notification::decode(&payload) {
        assert_eq!(Notification::decode(&notification.encode()), Ok(notification));
    }
});
