//! Fuzz target: a decoded request is equal after encoding and decoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mqkv::protocol::request::Request;

fuzz_target!(|data: &[u8]| {
    let payload = Bytes::copy_from_slice(data);
    if let Ok(request) = Request::decode(&payload) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
});
