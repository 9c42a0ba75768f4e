//! Verification of the records of a cluster: all that an instance relies on when it reads them.

use bytes::Bytes;

use crate::ledger::etcd::codec::{
    DecodeError, EncodedResponses, Head, MemberState, Reception, decode_presence, decode_request, decode_row,
    decode_run,
};
use crate::ledger::etcd::layout::{Layout, Place};
use crate::ledger::etcd::operation::Pair;
use crate::store::{Now, Version};

/// A record that is not as an instance expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key in etcd.
    pub key: Bytes,
    pub problem: String,
}

/// The number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub keys: u64,
    pub registrations: u64,
    /// Records of responses: one for each commit with writes.
    pub responses: u64,
    pub members: u64,
    /// Keys that stand for nothing, outside the state. Instances ignore them.
    pub unknown: u64,
}

/// Verifies the records of a cluster at one revision, in any order.
#[derive(Debug)]
pub struct Audit {
    layout: Layout,
    /// The head, if it is valid, with the revision of its last change.
    head: Option<(Head, u64)>,
    counts: Counts,
}

impl Audit {
    /// `head` is the pair of the head, at the same revision.
    #[must_use]
    pub fn new(layout: Layout, head: Option<&Pair>) -> Self {
        let head = head.and_then(|pair| Some((Head::decode(&pair.value).ok()?, pair.mod_revision)));
        Self { layout, head, counts: Counts::default() }
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Verifies a record of the cluster.
    pub fn verify(&mut self, pair: &Pair, now: Now) -> Option<Finding> {
        self.problem(pair, now).map(|problem| Finding { key: pair.key.clone(), problem })
    }

    fn problem(&mut self, pair: &Pair, now: Now) -> Option<String> {
        if !self.layout.is_state(&pair.key) {
            return self.outside(pair);
        }
        let Some(place) = self.layout.place(&pair.key) else {
            return Some("unknown key".to_owned());
        };
        if place == Place::Head {
            return head_problem(&pair.value);
        }
        self.count(&place);
        match &self.head {
            None => Some("there is no valid head".to_owned()),
            Some((_, revision)) if pair.mod_revision > *revision => {
                Some("it was changed without a commit of an owner".to_owned())
            }
            Some((head, _)) => record_problem(&place, pair, head, now),
        }
    }

    fn count(&mut self, place: &Place) {
        let count = match place {
            Place::Row(_) => &mut self.counts.keys,
            Place::Registration { .. } => &mut self.counts.registrations,
            Place::Responses { .. } => &mut self.counts.responses,
            Place::Member(_) => &mut self.counts.members,
            Place::Clock(_) | Place::Head | Place::Request => return,
        };
        *count = count.saturating_add(1);
    }

    /// Verifies a record outside the state.
    fn outside(&mut self, pair: &Pair) -> Option<String> {
        match self.layout.place(&pair.key) {
            Some(place @ Place::Member(_)) => {
                self.count(&place);
                return (decode_run(&pair.value) == 0).then(|| "invalid member".to_owned());
            }
            Some(Place::Request) => {
                return decode_request(&pair.value).is_none().then(|| "invalid request".to_owned());
            }
            Some(Place::Clock(_)) => {
                return MemberState::decode(&pair.value)
                    .err()
                    .map(|error| invalid("state of a member", error));
            }
            _ => {}
        }
        if pair.key != self.layout.meta() && pair.key != self.layout.compaction() {
            self.counts.unknown = self.counts.unknown.saturating_add(1);
        }
        None
    }
}

fn head_problem(value: &[u8]) -> Option<String> {
    match Head::decode(value) {
        Err(error) => Some(invalid("head", error)),
        Ok(head) if head.seq < head.epoch => Some("the head has fewer commits than owners".to_owned()),
        Ok(_) => None,
    }
}

/// Verifies a record of the state with this head.
fn record_problem(place: &Place, pair: &Pair, head: &Head, now: Now) -> Option<String> {
    let above = |version: Version| {
        (version > head.greatest).then(|| "its version is above the greatest one of the head".to_owned())
    };
    match place {
        Place::Row(key) => match decode_row(key, &pair.value, Reception::Watched, now) {
            Err(error) => Some(invalid("row", error)),
            Ok((version, _)) => above(version),
        },
        Place::Registration { .. } => {
            decode_presence(&pair.value).err().map(|error| invalid("registration", error))
        }
        Place::Responses { seq } => match EncodedResponses::decode(&pair.value, Reception::Watched, now) {
            Err(error) => Some(invalid("record of responses", error)),
            Ok(_) if *seq > head.seq => Some(format!("it is of commit {seq}, the head of {}", head.seq)),
            Ok(decoded) => decoded.responses.iter().filter_map(|response| response.version).find_map(above),
        },
        Place::Member(_) | Place::Clock(_) | Place::Request | Place::Head => None,
    }
}

fn invalid(what: &str, error: DecodeError) -> String {
    match error {
        DecodeError::Malformed => format!("invalid {what}"),
        DecodeError::OtherFormat(format) => format!("{what} of format {format}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::codec::{Owner, encode_request, encode_row, encode_run, presence};
    use crate::protocol::Key;
    use crate::store::StoredValue;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    fn layout() -> Layout {
        Layout::new("c")
    }

    fn head() -> Head {
        let owner = Some(Owner { instance: "a".to_owned(), run: 7 });
        Head { owner, epoch: 2, seq: 9, greatest: Version { ms: 50, counter: 0 }, ..Head::default() }
    }

    fn pair(key: Bytes, value: impl Into<Bytes>) -> Pair {
        Pair { key, value: value.into(), mod_revision: 20 }
    }

    fn row(name: &str, ms: u64) -> Pair {
        let key = Key::new(name.to_owned()).unwrap();
        let stored = StoredValue { value: "v".into(), fence: None, deadline_ms: None, persist: true };
        let value = encode_row(&key, Version { ms, counter: 0 }, &stored, NOW, 0).unwrap();
        pair(layout().row(&key), value)
    }

    fn audit() -> Audit {
        Audit::new(layout(), Some(&pair(layout().head(), head().encode())))
    }

    fn problem(pair: &Pair) -> String {
        audit().verify(pair, NOW).map(|finding| finding.problem).unwrap_or_default()
    }

    #[test]
    fn records_of_a_sound_cluster_are_counted_and_have_no_problem() {
        let (mut audit, key) = (audit(), Key::new("k").unwrap());
        let pairs = [
            pair(layout().meta(), &b"x"[..]),
            pair(layout().compaction(), &b"5"[..]),
            pair(layout().member("a"), encode_run(7)),
            pair(layout().clock("a"), MemberState::default().encode()),
            pair(layout().request(), encode_request(2)),
            pair(layout().head(), head().encode()),
            row("k", 50),
            pair(layout().registration(&key, "client"), presence()),
            pair(
                layout().responses(9),
                EncodedResponses::default().encode_with(&EncodedResponses::default()),
            ),
            pair(Bytes::from_static(b"/mqkv/c/other"), &b""[..]),
        ];
        for pair in &pairs {
            assert_eq!(audit.verify(pair, NOW), None);
        }
        let counts = Counts { keys: 1, registrations: 1, responses: 1, members: 1, unknown: 1 };
        assert_eq!(audit.counts(), counts);
    }

    #[test]
    fn each_record_that_an_instance_would_stumble_over_has_a_problem() {
        let key = Key::new("k").unwrap();
        let empty = || EncodedResponses::default().encode_with(&EncodedResponses::default());
        for (bad, expected) in [
            (row("k", 51), "its version is above the greatest one of the head"),
            (Pair { key: layout().row(&key), ..row("other", 5) }, "invalid row"),
            (pair(layout().row(&key), &b"\x09"[..]), "row of format 9"),
            (Pair { mod_revision: 21, ..row("k", 5) }, "it was changed without a commit of an owner"),
            (pair(layout().registration(&key, "c"), &b"\x01x"[..]), "invalid registration"),
            (pair(layout().responses(10), empty()), "it is of commit 10, the head of 9"),
            (pair(layout().responses(8), &b"\x01"[..]), "invalid record of responses"),
            (pair(Bytes::from_static(b"/mqkv/c/s/0/x"), &b""[..]), "unknown key"),
            (pair(Bytes::from_static(b"/mqkv/c/s/0/d/9"), empty()), "unknown key"),
            (pair(layout().head(), &b"\x01"[..]), "invalid head"),
            (pair(layout().member("a"), &b"x"[..]), "invalid member"),
        ] {
            assert_eq!(problem(&bad), expected, "{:?}", bad.key);
        }
        let mut headless = Audit::new(layout(), None);
        let finding = headless.verify(&row("k", 5), NOW).unwrap();
        assert_eq!(finding.problem, "there is no valid head");
    }
}
