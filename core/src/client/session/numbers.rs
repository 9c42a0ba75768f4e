//! Maps whose keys are numbers that the session itself has given out (pure).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from packet identifiers or numbers of requests. The session counts them up, so that a broker cannot choose keys that
/// collide. The standard hash, which is safe from that, takes 1,400 instructions of a request.
pub(super) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The map uses the highest bits and the lowest ones: the product spreads the number over the high half.
        let spread = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        spread.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }
}
