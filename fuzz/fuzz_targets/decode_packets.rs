//! Fuzz target: the broker's decoders for both versions of MQTT. The fast path returns the same packets as the complete
//! decoder, and a complete packet is never reported as incomplete.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mqkv::broker::codec::{Decoded, decode_carefully, missing};
use mqkv::broker::dialect::ProtocolVersion;

const BYTES_MAX: u32 = 2048;

fuzz_target!(|data: &[u8]| {
    let mut input = BytesMut::from(data);
    let _ = ProtocolVersion::decode_first(&mut input, BYTES_MAX);
    for version in [ProtocolVersion::Mqtt5, ProtocolVersion::Mqtt311] {
        let mut input = BytesMut::from(data);
        while !input.is_empty() {
            let before = input.len();
            let is_whole = matches!(missing(&input, BYTES_MAX), Ok(0));
            let mut carefully = input.clone();
            let decoded = version.decode(&mut input, BYTES_MAX);
            if version == ProtocolVersion::Mqtt5 {
                let careful = decode_carefully(&mut carefully, BYTES_MAX);
                assert_eq!(format!("{decoded:?}"), format!("{careful:?}"));
                assert!(decoded.is_err() || input == carefully);
            }
            match decoded {
                Ok(Decoded::Packet(_)) => assert!(input.len() < before),
                Ok(Decoded::Missing(count)) => {
                    assert!(!is_whole && count > 0);
                    break;
                }
                Err(_) => break,
            }
        }
    }
});
