//! Fuzz target: a decoded request is equal after encoding and decoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mqkv::protocol::request::{CommandCase, Request};

fuzz_target!(|data: &[u8]| {
    let payload = Bytes::copy_from_slice(data);
    for case in [CommandCase::Strict, CommandCase::Lenient] {
        if let Ok(request) = Request::decode(&payload, case) {
            assert_eq!(Request::decode(&request.encode(), CommandCase::Strict), Ok(request));
        }
    }
});
