//! What the records of a cluster show of its members and its store, for the operator.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ledger::etcd::codec::{Head, MemberState, decode_run};
use crate::ledger::etcd::layout::{Layout, Place};
use crate::ledger::etcd::operation::Pair;

/// A cluster at one revision of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    pub revision: u64,
    /// In the order of their names.
    pub members: Vec<Member>,
    /// `None`: no instance has owned the store yet.
    pub head: Option<Head>,
    /// The number of keys.
    pub keys: u64,
}

/// An instance whose member key is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Differs in each run of an instance.
    pub run: u64,
    /// The revision of its member key.
    pub mod_revision: u64,
    /// By how much its clock is ahead, or behind, so that it owns nothing; 0: it may own the store.
    pub clock_off_ms: i64,
}

impl Overview {
    /// Returns the name of the instance that the head names.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        Some(&self.head.as_ref()?.owner.as_ref()?.instance)
    }

    /// Whether a member is the owner: one of the same name in another run is not.
    #[must_use]
    pub fn is_owner(&self, member: &Member) -> bool {
        let owner = self.head.as_ref().and_then(|head| head.owner.as_ref());
        owner.is_some_and(|owner| owner.instance == member.name && owner.run == member.run)
    }

    /// Whether the owner is a member. Otherwise no request is answered.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.members.iter().any(|member| self.is_owner(member))
    }
}

/// Returns the members in these pairs, with what they have announced of their clocks. Keys that stand for neither are left out.
#[must_use]
pub fn members_in(layout: &Layout, pairs: &[Pair]) -> Vec<Member> {
    // The clocks come before the members.
    let mut clocks = BTreeMap::new();
    let mut members = Vec::new();
    for pair in pairs {
        match layout.place(&pair.key) {
            Some(Place::Clock(name)) => {
                let clock = MemberState::decode(&pair.value).unwrap_or_default();
                clocks.insert(name, clock.off_ms);
            }
            Some(Place::Member(name)) => {
                let clock_off_ms = clocks.get(&name).copied().unwrap_or_default();
                let (run, mod_revision) = (decode_run(&pair.value), pair.mod_revision);
                members.push(Member { name, run, mod_revision, clock_off_ms });
            }
            _ => {}
        }
    }
    members
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
    use crate::ledger::etcd::codec::{Owner, encode_run};

    #[test]
    fn a_store_is_served_while_the_run_that_owns_it_is_a_member() {
        let is_served = |owner: Option<(&str, u64)>| {
            let owner = owner.map(|(instance, run)| Owner { instance: instance.to_owned(), run });
            let head = Some(Head { owner, ..Head::default() });
            let members = vec![Member { name: "a".to_owned(), run: 7, mod_revision: 1, clock_off_ms: 0 }];
            Overview { head, members, ..Overview::default() }.is_served()
        };
        let owners = [Some(("a", 7)), Some(("a", 6)), Some(("b", 7)), None];
        assert_eq!(owners.map(is_served), [true, false, false, false]);
        assert!(!Overview::default().is_served());
    }

    #[test]
    fn members_are_read_with_their_runs() {
        let layout = Layout::new("c");
        let pair = |key: Bytes, value: Bytes| Pair { key, value, mod_revision: 1 };
        let pairs = [pair(layout.member("a"), encode_run(7)), pair(layout.meta(), Bytes::new())];
        let expected = Member { name: "a".to_owned(), run: 7, mod_revision: 1, clock_off_ms: 0 };
        assert_eq!(members_in(&layout, &pairs), [expected]);
    }
}
