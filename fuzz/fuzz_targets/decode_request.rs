//! Decodes any bytes as a request; what is one must be the same after it is sent again.
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
