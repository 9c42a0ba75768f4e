//! Key of a cluster: hashes that are the same in all its instances, and that no client can foresee.

use std::fmt;
use std::hash::Hasher;
#[expect(
    deprecated,
    reason = "the hashers of std that are not deprecated may change with its version; this one is SipHash 2-4"
)]
use std::hash::SipHasher;

use crate::ledger::etcd::CLUSTER_KEY_BYTES;
use crate::protocol::ConnectionId;

/// Key of a cluster. Each half is for one kind of hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterKey {
    fingerprints: [u64; 2],
    clients: [u64; 2],
}

impl ClusterKey {
    #[must_use]
    pub fn new(bytes: &[u8; CLUSTER_KEY_BYTES]) -> Self {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut words = words.chain(std::iter::repeat(0));
        let mut pair = || [(); 2].map(|()| words.next().unwrap_or_default());
        Self { fingerprints: pair(), clients: pair() }
    }

    /// Returns the hash of some numbers and some texts, whose lengths must be among the numbers or follow from them.
    #[must_use]
    pub fn hash<const PARTS: usize>(&self, numbers: &[u64], parts: [&[u8]; PARTS]) -> u64 {
        let numbers: Vec<_> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        sip_hash(self.fingerprints, std::iter::once(&numbers[..]).chain(parts))
    }

    /// Returns the connection that stands for a client of another broker, of which only the client id is known.
    #[must_use]
    pub fn connection_of(&self, client_id: &str) -> ConnectionId {
        ConnectionId(sip_hash(self.clients, std::iter::once(client_id.as_bytes())))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClusterKey").finish_non_exhaustive()
    }
}

#[expect(deprecated, reason = "as above")]
fn sip_hash<'a>([first, second]: [u64; 2], parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = SipHasher::new_with_keys(first, second);
    parts.for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of the SipHash paper, appendix A, and of its reference implementation.
    #[test]
    fn hashes_are_sip_hash_2_4() {
        let key: [u8; CLUSTER_KEY_BYTES] = std::array::from_fn(|at| (at % 16) as u8);
        let key = ClusterKey::new(&key);
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(key.hash(&[], [&text]), 0xa129_ca61_49be_45e5);
        assert_eq!(key.hash(&[], [&text[..4], &text[4..]]), 0xa129_ca61_49be_45e5, "a stream of bytes");
        assert_eq!(key.hash(&[], [b""]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.connection_of(""), ConnectionId(0x726f_db47_dd0e_0e31));
    }

    #[test]
    fn both_halves_of_the_key_count() {
        let key = ClusterKey::new(&[1; CLUSTER_KEY_BYTES]);
        for at in [0, 15, 16, 31] {
            let mut bytes = [1; CLUSTER_KEY_BYTES];
            bytes[at] = 2;
            let other = ClusterKey::new(&bytes);
            let is_same = (
                key.hash(&[], [b"a"]) == other.hash(&[], [b"a"]),
                key.connection_of("a") == other.connection_of("a"),
            );
            assert_eq!(is_same, (at >= 16, at < 16), "{at}");
        }
    }
}
