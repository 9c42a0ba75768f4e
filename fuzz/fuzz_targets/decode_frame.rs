//! Fuzz target: a decoded frame encodes to the same bytes.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use mqkv::protocol::frame::Frame;

fuzz_target!(|data: &[u8]| {
    let payload = Bytes::copy_from_slice(data);
    if let Ok(frame) = Frame::decode(&payload) {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        assert_eq!(out, payload);
    }
});
