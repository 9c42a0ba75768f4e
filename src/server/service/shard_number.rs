//! The place of a service among the shards of a store.

/// Which one of how many shards a service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardNumber {
    /// From 0 on.
    pub shard: u32,
    /// At least one.
    pub shards: u32,
}

impl ShardNumber {
    /// The only shard of a store.
    pub const ONLY: Self = Self { shard: 0, shards: 1 };
}
