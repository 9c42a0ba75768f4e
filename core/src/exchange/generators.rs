//! Strategies that the tests of frames and of rows share.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::names::{ChangeId, Name, Serial};
use crate::protocol::Key;

pub fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_u64, 0..=i64::MAX as u64]
}

pub fn key() -> impl Strategy<Value = Key> {
    vec(any::<u8>(), 1..20).prop_map(|bytes| Key::new(bytes).unwrap())
}

pub fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9._-]{1,64}".prop_map(|text| Name::new(&text).unwrap())
}

pub fn any_change_id() -> impl Strategy<Value = ChangeId> {
    any::<[u8; 16]>().prop_map(|bytes| ChangeId::from_bytes(&bytes).unwrap())
}

pub fn serial() -> impl Strategy<Value = Serial> {
    (any::<u64>(), any::<u64>()).prop_map(|(run, counter)| Serial { run, counter })
}

pub fn value() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}
