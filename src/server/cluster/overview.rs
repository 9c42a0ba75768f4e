//! What the records of a cluster show of its members and shards, for the operator.

use bytes::Bytes;

use super::codec::{DecodeError, Head, Meta, decode_run};
use super::layout::{Layout, Place};
use super::operation::Pair;

/// The most shards of a cluster: each has watches, a head and queues of its own in every instance.
pub const SHARDS_MAX: u32 = 16;

/// A cluster at one revision of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    pub revision: u64,
    /// In the order of their names.
    pub members: Vec<Member>,
    /// In the order of their numbers.
    pub shards: Vec<ShardOverview>,
}

/// An instance whose member key is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Differs in each run of an instance.
    pub run: u64,
}

/// A shard of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOverview {
    pub shard: u32,
    /// `None`: no instance has owned it yet.
    pub head: Option<Head>,
    /// The number of keys.
    pub keys: u64,
}

impl ShardOverview {
    /// Returns the name of the instance that the head names.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        Some(&self.head.as_ref()?.owner.as_ref()?.instance)
    }
}

impl Overview {
    /// Whether the run of the instance that owns a shard is a member.
    #[must_use]
    pub fn is_present(&self, shard: &ShardOverview) -> bool {
        let owner = shard.head.as_ref().and_then(|head| head.owner.as_ref());
        owner.is_some_and(|owner| {
            self.members.iter().any(|member| member.name == owner.instance && member.run == owner.run)
        })
    }

    /// Returns the shards that a member owns.
    pub fn owned_by<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = &'a ShardOverview> {
        self.shards.iter().filter(|shard| shard.owner() == Some(&member.name) && self.is_present(shard))
    }

    /// Returns the shards without a present owner: their requests are not answered.
    pub fn unserved(&self) -> impl Iterator<Item = &ShardOverview> {
        self.shards.iter().filter(|shard| !self.is_present(shard))
    }
}

/// Returns the number of shards that the record of the cluster has.
///
/// # Errors
/// Why it cannot be used.
pub fn shards_in(meta: &[u8]) -> Result<u32, String> {
    match Meta::decode(meta) {
        Ok(Meta { shards: shards @ 1..=SHARDS_MAX, .. }) => Ok(shards),
        Ok(Meta { shards, .. }) => Err(format!("{shards} shards")),
        Err(DecodeError::OtherFormat(format)) => Err(format!("format {format}")),
        Err(DecodeError::Malformed) => Err("the meta record is invalid".to_owned()),
    }
}

/// Returns the members in these pairs; keys that stand for no member are left out.
#[must_use]
pub fn members_in(layout: &Layout, pairs: &[Pair]) -> Vec<Member> {
    let member = |pair: &Pair| match layout.place(0, &pair.key) {
        Some(Place::Member(name)) => Some(Member { name, run: decode_run(&pair.value) }),
        _ => None,
    };
    pairs.iter().filter_map(member).collect()
}

/// Returns the head in an answer to a read of its key.
///
/// # Errors
/// The key whose record is not valid.
pub fn head_in(pair: Option<&Pair>) -> Result<Option<Head>, Bytes> {
    pair.map(|pair| Head::decode(&pair.value).map_err(|_| pair.key.clone())).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::codec::{Owner, encode_run};

    fn shard(shard: u32, owner: Option<(&str, u64)>) -> ShardOverview {
        let owner = owner.map(|(instance, run)| Owner { instance: instance.to_owned(), run });
        ShardOverview { shard, head: Some(Head { owner, ..Head::default() }), keys: 0 }
    }

    #[test]
    fn a_shard_is_served_while_the_run_that_owns_it_is_a_member() {
        let members = vec![Member { name: "a".to_owned(), run: 7 }];
        let shards = vec![
            shard(0, Some(("a", 7))),
            shard(1, Some(("a", 6))),
            shard(2, Some(("b", 7))),
            shard(3, None),
            ShardOverview { shard: 4, head: None, keys: 0 },
        ];
        let overview = Overview { revision: 9, members, shards };
        let numbers =
            |shards: Vec<&ShardOverview>| shards.iter().map(|shard| shard.shard).collect::<Vec<_>>();
        assert_eq!(numbers(overview.unserved().collect()), [1, 2, 3, 4]);
        assert_eq!(numbers(overview.owned_by(&overview.members[0]).collect()), [0]);
    }

    #[test]
    fn a_number_of_shards_that_no_cluster_has_is_refused() {
        let meta = |shards| Meta { shards, hash_key: [7; 32] }.encode();
        assert_eq!(shards_in(&meta(8)), Ok(8));
        for shards in [0, SHARDS_MAX + 1, u32::MAX] {
            assert_eq!(shards_in(&meta(shards)), Err(format!("{shards} shards")));
        }
        assert_eq!(shards_in(b"cother"), Err("format 99".to_owned()));
        assert_eq!(shards_in(b""), Err("the meta record is invalid".to_owned()));
    }

    #[test]
    fn members_are_read_with_their_runs() {
        let layout = Layout::new("c");
        let pair = |key: Bytes, value: Bytes| Pair { key, value, mod_revision: 1 };
        let pairs = [pair(layout.member("a"), encode_run(7)), pair(layout.meta(), Bytes::new())];
        assert_eq!(members_in(&layout, &pairs), [Member { name: "a".to_owned(), run: 7 }]);
    }
}
