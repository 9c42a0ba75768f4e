//! Digest of records, by which two nodes compare what they hold (§8).

use crate::protocol::Key;

use super::names::ChangeId;

/// The start value of FNV-1a.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns FNV-1a of some bytes that continue others: short, stable between versions, and not for attackers.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    fnv_from(FNV, bytes)
}

/// Returns the part of one record. The digest of records is the XOR of their parts: it does not depend on their order,
/// and a record is added and removed alike.
pub(super) fn record(key: &Key, change_id: ChangeId) -> u64 {
    let hash = fnv_from(fnv(&change_id.to_bytes()), key.as_bytes());
    // The finalizer of MurmurHash3: FNV alone changes few bits for the last byte, so that parts could cancel out.
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

fn fnv_from(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
