//! Decodes any bytes as packets that clients send to the broker, in both protocol versions. What the decoder accepts, the
//! MQTT crate must decode alike, and a packet with all its bytes must not be called incomplete.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mqkv::mqtt::decode::{Decoded, decode, decode_first, missing};
use mqkv::mqtt::{Incoming, packet, version};
use mqkv::protocol;
use version::ProtocolVersion;

#[path = "../../core/src/mqtt/oracle.rs"]
mod oracle;

const BYTES_MAX: u32 = 2048;

fuzz_target!(|data: &[u8]| {
    let _ = decode_first(&mut BytesMut::from(data), BYTES_MAX);
    for version in [ProtocolVersion::V5, ProtocolVersion::V311] {
        let mut input = BytesMut::from(data);
        while !input.is_empty() {
            let before = input.clone();
            let is_whole = matches!(missing(&input, BYTES_MAX), Ok(0));
            match decode(version, &mut input, BYTES_MAX) {
                Ok(Decoded::Packet(packet)) => {
                    assert!(input.len() < before.len());
                    // The contents of the packets that only a server sends are not decoded.
                    if !matches!(packet, Incoming::Unexpected(_)) {
                        let bytes = &before[..before.len() - input.len()];
                        assert_eq!(oracle::decode(version, bytes).as_ref(), Ok(&packet));
                    }
                }
                Ok(Decoded::Missing(count)) => {
                    assert!(!is_whole && count > 0 && input == before);
                    break;
                }
                Err(error) => {
                    assert!(error.reason.is_error() && input == before);
                    break;
                }
            }
        }
    }
});
