//! Every thing in the store has a maximum.

use crate::protocol::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// What it costs to keep a key, besides its bytes and its value's: measured with a million keys that have a TTL.
pub const KEY_COST_BYTES: u64 = 100;

/// How much the store takes before it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most keys; never above 4,294,967,295.
    pub keys_max: usize,
    /// The most bytes of keys and values, [`KEY_COST_BYTES`] more for each key.
    pub memory_bytes_max: u64,
    /// The longest key in bytes; never above [`KEY_BYTES_MAX`].
    pub key_bytes_max: usize,
    /// The longest value in bytes.
    pub value_bytes_max: usize,
    /// The most watched keys of all connections together, each connection's counted by itself.
    pub watches_max: usize,
    /// The most watched keys of one connection.
    pub watches_per_connection_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keys_max: 10_000_000,
            memory_bytes_max: 512 * 1024 * 1024,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            watches_max: 1_000_000,
            watches_per_connection_max: 100_000,
        }
    }
}

impl Limits {
    /// The most keys that slots can be counted for.
    pub(super) fn keys_max(&self) -> usize {
        self.keys_max.min(u32::MAX as usize)
    }
}
