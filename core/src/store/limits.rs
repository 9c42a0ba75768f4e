//! Limits of the store.

use crate::protocol::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Memory per key besides key and value, in bytes: measured with a million keys that have a TTL.
pub const KEY_COST_BYTES: u64 = 100;

/// Limits beyond which the store rejects requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most keys; values above 4,294,967,295 count as that.
    pub keys_max: usize,
    /// The most memory of keys, values and fencing tokens together, with [`KEY_COST_BYTES`] added for each key. Deleted
    /// keys count as long as their versions are remembered.
    pub memory_bytes_max: u64,
    /// The longest key in bytes; values above [`KEY_BYTES_MAX`] count as that.
    pub key_bytes_max: usize,
    /// The longest value in bytes.
    pub value_bytes_max: usize,
    /// The most watches of all connections together.
    pub watches_max: usize,
    /// The most watches of one connection.
    pub watches_per_connection_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keys_max: 10_000_000,
            memory_bytes_max: 448 * 1024 * 1024,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            watches_max: 1_000_000,
            watches_per_connection_max: 100_000,
        }
    }
}

impl Limits {
    /// The most keys for which there are slots.
    pub(super) fn keys_max(&self) -> usize {
        self.keys_max.min(u32::MAX as usize)
    }
}
