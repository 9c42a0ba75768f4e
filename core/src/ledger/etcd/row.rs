//! A key in etcd, as bytes with a checksum.

use bytes::{Buf, BufMut};

use crate::ledger::{KeyState, RecordTooLong};
use crate::protocol::Key;

/// The first bytes of a record.
const MAGIC: [u8; 4] = [0xA7, b'k', b'v', 0x02];
/// Magic bytes, length of the body and checksum.
const HEADER_BYTES: usize = 4 + 4 + 8;

/// # Errors
/// The key, the fencing token or the value does not fit. None that comes from a request is so long.
pub fn encode(key: &Key, state: &KeyState) -> Result<Vec<u8>, RecordTooLong> {
    let mut record = Vec::with_capacity(128_usize.saturating_add(state.value.len()));
    record.put_bytes(0, HEADER_BYTES);
    state.put_head(&mut record)?;
    put_bytes(&mut record, key.as_bytes())?;
    record.put_slice(&state.value);
    let (mut header, body) = record.split_at_mut_checked(HEADER_BYTES).ok_or(RecordTooLong)?;
    header.put_slice(&MAGIC);
    header.put_u32(u32::try_from(body.len()).map_err(|_| RecordTooLong)?);
    header.put_u64(checksum(body));
    Ok(record)
}

/// Decodes bytes that are one whole record.
pub fn decode(bytes: &[u8]) -> Option<(Key, KeyState)> {
    let mut header = bytes.strip_prefix(&MAGIC)?;
    let len = usize::try_from(header.try_get_u32().ok()?).ok()?;
    let sum = header.try_get_u64().ok()?;
    let mut body = header;
    if body.len() != len || checksum(body) != sum {
        return None;
    }
    let state = KeyState::take_head(&mut body)?;
    let key = Key::new(take_bytes(&mut body)?.to_vec()).ok()?;
    Some((key, KeyState { value: body.to_vec().into(), ..state }))
}

/// FNV-1a with 64 bits. It detects accidents, not attacks, and is defined here because a checksum in etcd must not
/// change with a release of a library.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Appends bytes with their length in 16 bits.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), RecordTooLong> {
    out.put_u16(u16::try_from(bytes.len()).map_err(|_| RecordTooLong)?);
    out.put_slice(bytes);
    Ok(())
}

/// Takes what [`put_bytes`] appended.
pub fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::from(from.try_get_u16().ok()?);
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::Deadline;
    use crate::protocol::Timestamp;
    use crate::store::Version;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn a_record_decodes_unchanged_and_not_at_all_after_any_byte_changes(
            key in prop::collection::vec(any::<u8>(), 1..300),
            value in prop::collection::vec(any::<u8>(), 0..3_000),
            fence in prop::option::of((0_u64..1 << 48, 0_u32..9)),
            deadline in prop::option::of((any::<u64>(), any::<u64>())),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let key = Key::new(key).unwrap();
            let state = KeyState {
                version: Version { ms: 7, counter: 3 },
                fence: fence.map(|(ms, counter)| Timestamp::of_store(ms, counter)),
                deadline: deadline.map(|(clock_ms, ttl_ms)| Deadline { clock_ms, ttl_ms }),
                value: Bytes::from(value),
            };
            let mut bytes = encode(&key, &state).unwrap();
            prop_assert_eq!(decode(&bytes), Some((key, state)));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_eq!(decode(&bytes), None);
        }
    }
}
