//! Proptest strategies for values on the wire.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::frame::Frame;
use super::key::Key;
use super::timestamp::{COUNTER_MAX, Timestamp};

/// The bytes of the frame syntax.
const STRUCTURE: &[u8] = b"\r\n$*:+-019";

/// Arbitrary bytes, in which those of the syntax are more frequent than at random.
pub(super) fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(STRUCTURE.to_vec())];
    vec(byte, 0..=len_max).prop_map(Bytes::from)
}

/// A key of up to 40 bytes.
pub(super) fn key() -> impl Strategy<Value = Key> {
    bytes(40).prop_filter_map("a key has a byte", |bytes| Key::new(bytes).ok())
}

/// Text of a simple string or error line.
pub(super) fn line() -> impl Strategy<Value = String> {
    "[^\\r\\n]{0,40}"
}

/// Any frame, nested up to the limit.
pub(super) fn frame() -> impl Strategy<Value = Frame> {
    let leaf = prop_oneof![
        line().prop_map(|text| Frame::Simple(text.into())),
        line().prop_map(|text| Frame::Error(text.into())),
        any::<i64>().prop_map(Frame::Integer),
        bytes(40).prop_map(Frame::Bulk),
        Just(Frame::Null),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| vec(inner, 0..5).prop_map(Frame::Array))
}

/// Any timestamp that can be parsed.
pub(super) fn timestamp() -> impl Strategy<Value = Timestamp> {
    let ms = prop_oneof![any::<u64>(), 1_795_205_105_000..1_795_205_105_010_u64];
    let counter = prop_oneof![0..=COUNTER_MAX, 0..3_u32, COUNTER_MAX - 2..=COUNTER_MAX];
    let node = prop_oneof!["[!-9;-~é]{1,12}", Just("StateStore".to_owned())];
    (ms, counter, node).prop_map(|(ms, counter, node)| {
        let mut timestamp = Timestamp::zero(node).unwrap();
        (timestamp.ms, timestamp.counter) = (ms, counter);
        timestamp
    })
}

/// A payload with bytes changed, added, lost, doubled, or truncated.
pub(super) fn mutated(payload: impl Strategy<Value = Bytes>) -> impl Strategy<Value = Bytes> {
    let change = (any::<prop::sample::Index>(), 0..5_u8, any::<u8>());
    (payload, vec(change, 1..4)).prop_map(|(payload, changes)| {
        let mut bytes = payload.to_vec();
        for (index, kind, byte) in changes {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.insert(at, STRUCTURE[usize::from(byte) % STRUCTURE.len()]),
                2 => bytes.truncate(at),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes.into()
    })
}
