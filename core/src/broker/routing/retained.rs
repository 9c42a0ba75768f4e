//! Retained messages: the last one of each topic (MQTT 5, 3.3.1.3).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;

use crate::broker::memory::{Account, Charge, MemoryKind};
use crate::broker::publication::Publication;

/// Separates the levels of a topic in an [`index key`](key). It sorts before every character that a level may have, so
/// the topics below a topic follow it directly.
const SEPARATOR: char = '\0';
/// Sorts after [`SEPARATOR`] and before every other character: a level with it appended sorts after all topics below
/// that level.
const AFTER_SEPARATOR: char = '\u{1}';
/// The most expired messages that one publication removes to get room.
const EXPIRED_PER_PUBLISH_MAX: usize = 1_000;
/// The bytes of a topic whose comparison counts as one more step.
const BYTES_PER_STEP: usize = 256;

/// The retained messages by topic. Pure: time is an argument.
#[derive(Debug)]
pub struct RetainedMessages {
    messages: BTreeMap<Arc<str>, Retained>,
    /// The keys of the messages that expire, by expiry and sequence number.
    expiring: BTreeMap<(Instant, u64), Arc<str>>,
    messages_max: usize,
    bytes: usize,
    /// What each owner has.
    owners: HashMap<Arc<str>, Holding>,
    /// Sequence number of the last publication that was retained or removed a message.
    sequence: u64,
}

#[derive(Debug)]
struct Retained {
    publication: Arc<Publication>,
    sequence: u64,
    owner: Arc<str>,
}

/// The retained messages of one owner, who has published them last.
#[derive(Debug)]
struct Holding {
    count: usize,
    bytes: usize,
    charge: Charge,
}

/// There is no room for another retained message of this owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A search for the messages that match a topic filter, in bounded parts: see [`RetainedMessages::search`].
#[derive(Debug)]
pub struct Search {
    /// Where it goes on; None: it is complete.
    from: Option<Bound<Arc<str>>>,
}

impl Default for Search {
    fn default() -> Self {
        Self { from: Some(Bound::Unbounded) }
    }
}

impl Search {
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.from.is_none()
    }
}

/// How a key compares with a topic filter.
#[derive(Debug, PartialEq, Eq)]
enum Comparison {
    Match,
    /// No key from this one up to the given one matches.
    SkipTo(String),
    /// Neither this key nor a later one matches.
    End,
}

impl RetainedMessages {
    #[must_use]
    pub fn new(messages_max: usize) -> Self {
        let (messages, expiring) = (BTreeMap::new(), BTreeMap::new());
        Self { messages, expiring, messages_max, bytes: 0, owners: HashMap::new(), sequence: 0 }
    }

    /// Replaces the message of a topic; an empty payload only removes it.
    ///
    /// # Errors
    ///
    /// [`Full`] if the owner has as many messages or as much memory as are left free; then nothing changes.
    pub fn handle_publish(
        &mut self,
        publication: &Arc<Publication>,
        owner: &Arc<Account>,
        now: Instant,
    ) -> Result<(), Full> {
        // 64 bits do not overflow: each step is a PUBLISH.
        self.sequence = self.sequence.wrapping_add(1);
        let key = key(&publication.message.topic);
        if publication.message.payload.is_empty() {
            self.remove_key(&key);
            return Ok(());
        }
        let bytes = cost(publication);
        self.make_room(&key, bytes, owner, now);
        if !self.has_room(&key, bytes, owner) {
            return Err(Full);
        }
        self.remove_key(&key);
        let key: Arc<str> = key.into();
        self.bytes = self.bytes.saturating_add(bytes);
        let new = || Holding { count: 0, bytes: 0, charge: Charge::new(owner, MemoryKind::Retained, 0) };
        let holding = self.owners.entry(Arc::clone(owner.owner())).or_insert_with(new);
        holding.count = holding.count.saturating_add(1);
        holding.bytes = holding.bytes.saturating_add(bytes);
        holding.charge.set(holding.bytes);
        if let Some(at) = publication.expires_at() {
            self.expiring.insert((at, self.sequence), Arc::clone(&key));
        }
        let owner = Arc::clone(owner.owner());
        let retained = Retained { publication: Arc::clone(publication), sequence: self.sequence, owner };
        self.messages.insert(key, retained);
        Ok(())
    }

    /// Returns the number of messages, and their bytes as charged by `Publication::bytes`.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.messages.len(), self.bytes)
    }

    /// Returns the sequence number of the last publication.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Calls `found` with each message that matches a valid topic filter and has not expired, in the order of the
    /// topics, until it returns false or the `steps` are used up; then the next call goes on from there.
    ///
    /// `found` also gets the sequence number of the message. Topics that share the levels of which one does not match
    /// are skipped together, so a filter costs hardly more than the topics that match it, unless levels with `+` are
    /// followed by others. A message that is replaced between two calls is found at most once.
    pub fn search(
        &self,
        filter: &str,
        search: &mut Search,
        now: Instant,
        steps: &mut usize,
        mut found: impl FnMut(&Arc<Publication>, u64) -> bool,
    ) {
        while let Some(from) = search.from.take() {
            let from = from.as_ref().map(|key| &**key);
            for (key, Retained { publication, sequence, .. }) in
                self.messages.range::<str, _>((from, Bound::Unbounded))
            {
                if *steps == 0 {
                    search.from = Some(Bound::Included(Arc::clone(key)));
                    return;
                }
                *steps = steps.saturating_sub((key.len() / BYTES_PER_STEP).saturating_add(1));
                match compare(filter, key) {
                    Comparison::Match => {
                        if !publication.is_expired(now) && !found(publication, *sequence) {
                            return;
                        }
                    }
                    Comparison::SkipTo(next) => {
                        search.from = Some(Bound::Included(next.into()));
                        break;
                    }
                    Comparison::End => return,
                }
            }
        }
    }

    /// Removes the message of a topic.
    pub fn remove(&mut self, topic: &str) {
        self.remove_key(&key(topic));
    }

    /// Whether there is room for a message of `bytes` in place of the last one of its topic: an owner may have as many as are
    /// left free.
    fn has_room(&self, key: &str, bytes: usize, owner: &Arc<Account>) -> bool {
        let last = self.messages.get(key);
        let others = self.messages.len().saturating_sub(usize::from(last.is_some()));
        let free = self.messages_max.saturating_sub(others);
        let Some(Holding { count, bytes: held, charge }) = self.owners.get(owner.owner()) else {
            return free > 0 && owner.has_room(MemoryKind::Retained, bytes);
        };
        let own = last.filter(|last| last.owner == *owner.owner());
        let held = held.saturating_sub(own.map_or(0, |own| cost(&own.publication)));
        let count = count.saturating_sub(usize::from(own.is_some()));
        count < free && charge.may_hold(held.saturating_add(bytes))
    }

    /// Removes expired messages until there is room for `bytes` at a key.
    fn make_room(&mut self, key: &str, bytes: usize, owner: &Arc<Account>, now: Instant) {
        for _ in 0..EXPIRED_PER_PUBLISH_MAX {
            let Some(((at, _), expiring)) = self.expiring.first_key_value() else { return };
            if self.has_room(key, bytes, owner) || *at > now {
                return;
            }
            let expired = Arc::clone(expiring);
            self.remove_key(&expired);
        }
    }

    fn remove_key(&mut self, key: &str) {
        let Some(Retained { publication, sequence, owner }) = self.messages.remove(key) else { return };
        let bytes = cost(&publication);
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(holding) = self.owners.get_mut(&owner) {
            holding.count = holding.count.saturating_sub(1);
            holding.bytes = holding.bytes.saturating_sub(bytes);
            holding.charge.set(holding.bytes);
            if holding.count == 0 {
                self.owners.remove(&owner);
            }
        }
        if let Some(at) = publication.expires_at() {
            self.expiring.remove(&(at, sequence));
        }
    }
}

/// Returns the memory of a retained message: the message, its key and its place in the index.
fn cost(publication: &Publication) -> usize {
    publication.bytes.saturating_add(publication.message.topic.len())
}

/// Returns the key of a topic in the index. It differs for each topic: no topic has the null character (MQTT 5, 1.5.4).
fn key(topic: &str) -> String {
    topic.replace('/', SEPARATOR.encode_utf8(&mut [0]))
}

/// Compares the key of a topic with a valid topic filter, level by level.
fn compare(filter: &str, key: &str) -> Comparison {
    if key.starts_with('$') && filter.starts_with(['+', '#']) {
        // A wildcard at the start does not match a leading `$` (MQTT 5, 4.7.2), which `%` follows.
        return Comparison::SkipTo("%".to_owned());
    }
    let prefix = |end: usize| key.get(..end).unwrap_or_default();
    // After a level that is greater than the wanted one, only another level in place of the last `+` can match.
    let mut last_any = None;
    let next_of = |last_any: Option<usize>| match last_any {
        Some(end) => Comparison::SkipTo([prefix(end), AFTER_SEPARATOR.encode_utf8(&mut [0])].concat()),
        None => Comparison::End,
    };
    let mut levels = key.split(SEPARATOR);
    let mut start = 0_usize;
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return Comparison::Match,
            ("+", Some(level)) => {
                let end = start.saturating_add(level.len());
                (last_any, start) = (Some(end), end.saturating_add(1));
            }
            (wanted, Some(level)) if wanted == level => {
                start = start.saturating_add(level.len()).saturating_add(1);
            }
            (wanted, Some(level)) if level < wanted => {
                return Comparison::SkipTo([prefix(start), wanted].concat());
            }
            (_, Some(_)) => return next_of(last_any),
            (wanted, None) => {
                let below = if wanted == "+" { "" } else { wanted };
                return Comparison::SkipTo([key, SEPARATOR.encode_utf8(&mut [0]), below].concat());
            }
        }
    }
    if levels.next().is_none() { Comparison::Match } else { next_of(last_any) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::mqtt::filter;
    use crate::protocol::message::Message;

    fn owner() -> Arc<Account> {
        Account::test("a", 1 << 30)
    }

    fn publication(
        topic: &str,
        payload: &'static str,
        expiry_s: Option<u32>,
        now: Instant,
    ) -> Arc<Publication> {
        let payload = payload.into();
        Arc::new(Publication::new(
            Message { topic: topic.to_owned().into(), payload, expiry_s, ..Message::default() },
            now,
        ))
    }

    /// Searches in parts of `steps` steps; returns the topics and the number of steps.
    fn search(retained: &RetainedMessages, filter: &str, now: Instant, steps: usize) -> (Vec<String>, usize) {
        let (mut topics, mut search, mut used) = (Vec::new(), Search::default(), 0);
        while !search.is_complete() {
            let mut left = steps;
            retained.search(filter, &mut search, now, &mut left, |found, _| {
                topics.push(found.message.topic.to_string());
                true
            });
            used += steps - left;
        }
        (topics, used)
    }

    fn topics(retained: &RetainedMessages, filter: &str, now: Instant) -> Vec<String> {
        search(retained, filter, now, 1).0
    }

    #[test]
    fn the_last_message_of_a_topic_is_retained_and_an_empty_payload_removes_it() {
        let now = crate::clock::monotonic();
        let (owner, mut retained) = (owner(), RetainedMessages::new(10));
        for topic in ["a", "a/b", "a/c", "b"] {
            retained.handle_publish(&publication(topic, "1", None, now), &owner, now).unwrap();
        }
        assert_eq!(topics(&retained, "a/#", now), ["a", "a/b", "a/c"]);
        assert_eq!(topics(&retained, "+", now), ["a", "b"]);
        assert_eq!(topics(&retained, "a/c", now), ["a/c"]);
        retained.handle_publish(&publication("a/b", "", None, now), &owner, now).unwrap();
        assert_eq!(topics(&retained, "a/+", now), ["a/c"]);
    }

    #[test]
    fn an_expired_message_does_not_match_and_makes_room_for_another() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(2);
        let (owner, mut retained) = (owner(), RetainedMessages::new(1));
        retained.handle_publish(&publication("a", "1", Some(1), start), &owner, start).unwrap();
        assert_eq!(retained.handle_publish(&publication("b", "1", None, start), &owner, start), Err(Full));
        assert!(topics(&retained, "#", later).is_empty());
        retained.handle_publish(&publication("b", "1", None, later), &owner, later).unwrap();
        assert_eq!(topics(&retained, "#", later), ["b"]);
    }

    #[test]
    fn the_memory_of_an_owner_is_limited_and_a_removed_message_frees_it() {
        let now = crate::clock::monotonic();
        // Half of a quarter of the budget: 16 KiB.
        let (owner, mut retained) = (Account::test("a", 128 * 1024), RetainedMessages::new(100));
        let of = |topic: &str, bytes| {
            let (topic, payload) = (topic.to_owned().into(), vec![b'x'; bytes].into());
            Arc::new(Publication::new(Message { topic, payload, ..Message::default() }, now))
        };
        retained.handle_publish(&of("a", 14_000), &owner, now).unwrap();
        retained.handle_publish(&of("a", 14_001), &owner, now).unwrap();
        assert_eq!(retained.handle_publish(&of("b", 3_000), &owner, now), Err(Full));
        assert_eq!(retained.handle_publish(&of("a", 18_000), &owner, now), Err(Full));
        assert_eq!(topics(&retained, "#", now), ["a"], "nothing changes");
        retained.handle_publish(&of("a", 0), &owner, now).unwrap();
        assert!(owner.budget().used() < 1_024 && retained.owners.is_empty());
        retained.handle_publish(&of("b", 3_000), &owner, now).unwrap();
    }

    #[test]
    fn an_owner_may_have_as_many_messages_as_are_left_free_and_owns_those_that_it_published_last() {
        let now = crate::clock::monotonic();
        let budget = Arc::clone(owner().budget());
        let [ann, bob] = ["ann", "bob"].map(|owner| budget.account(owner));
        let mut retained = RetainedMessages::new(100);
        let mut publish = |owner: &Arc<Account>, topic: &str| {
            retained.handle_publish(&publication(topic, "1", None, now), owner, now).is_ok()
        };
        let stored = (0..100).filter(|number| publish(&ann, &format!("ann/{number}"))).count();
        assert_eq!(stored, 50, "half");
        assert!(publish(&ann, "ann/0"), "it replaces its own");
        let stored = (0..100).filter(|number| publish(&bob, &format!("bob/{number}"))).count();
        assert_eq!(stored, 25, "half of the rest");
        assert!(!publish(&ann, "bob/0"));
        // A message that changes its owner is as one less and one more.
        assert!(publish(&bob, "ann/0") && !publish(&bob, "new"));
        let counts = ["ann", "bob"].map(|owner| retained.owners[owner].count);
        assert_eq!(counts, [49, 26]);
    }

    #[test]
    fn a_filter_visits_hardly_more_than_the_topics_that_match_it() {
        let now = crate::clock::monotonic();
        let (owner, mut retained) = (owner(), RetainedMessages::new(20_000));
        for number in 0..10_000 {
            let topic = format!("site/{}/line/{}/temp", number % 100, number / 100);
            retained.handle_publish(&publication(&topic, "1", None, now), &owner, now).unwrap();
        }
        for (filter, matches, steps_max) in [
            ("site/7/line/8/temp", 1, 4),
            ("site/7/line/8/other", 0, 4),
            ("site/7/line/+/temp", 100, 103),
            ("site/7/#", 100, 103),
            ("site/+/line/8/temp", 100, 402),
            ("site/+/other/#", 0, 102),
            ("+/+/+/+/+/+", 0, 10_000),
            ("other/#", 0, 2),
            ("#", 10_000, 10_000),
        ] {
            let (found, steps) = search(&retained, filter, now, 64);
            assert_eq!(found.len(), matches, "{filter}");
            assert!(steps <= steps_max, "{filter}: {steps} steps");
        }
    }

    #[test]
    fn a_long_topic_counts_as_several_steps() {
        let now = crate::clock::monotonic();
        let (owner, mut retained) = (owner(), RetainedMessages::new(10));
        for last in ["a", "b"] {
            let topic = format!("{}{last}", "x".repeat(60_000));
            retained.handle_publish(&publication(&topic, "1", None, now), &owner, now).unwrap();
        }
        let (mut search, mut steps, mut found) = (Search::default(), 100, 0);
        let mut go_on = |steps: &mut usize| {
            retained.search("#", &mut search, now, steps, |_, _| {
                found += 1;
                true
            });
            (found, search.is_complete())
        };
        assert_eq!(go_on(&mut steps), (1, false));
        assert_eq!(go_on(&mut 100), (2, true));
    }

    #[test]
    fn many_expired_messages_are_removed_by_several_publications() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(2);
        let count = EXPIRED_PER_PUBLISH_MAX * 2;
        let (owner, mut retained) = (owner(), RetainedMessages::new(count * 2));
        for number in 0..count {
            retained
                .handle_publish(&publication(&number.to_string(), "1", Some(1), start), &owner, start)
                .unwrap();
        }
        assert_eq!(retained.handle_publish(&publication("full", "1", None, start), &owner, start), Err(Full));
        retained.handle_publish(&publication("new", "1", None, later), &owner, later).unwrap();
        assert_eq!(retained.size().0, count, "no more is removed than room is needed");
        retained.messages_max = 3;
        assert_eq!(retained.handle_publish(&publication("b", "1", None, later), &owner, later), Err(Full));
        retained.handle_publish(&publication("b", "1", None, later), &owner, later).unwrap();
        assert_eq!(topics(&retained, "#", later), ["b", "new"]);
    }

    proptest! {
        #[test]
        fn a_search_finds_the_topics_that_match_in_parts_of_any_size(
            topics in proptest::collection::btree_set("[ab$ ]?(/[ab\u{1}0]{0,2}){0,3}", 0..24),
            filter in "([ab$ ]?|\\+)(/([ab\u{1}0]{0,2}|\\+)){0,3}(/#)?|#",
            steps in 1..5_usize,
        ) {
            prop_assume!(filter::is_valid(&filter));
            let now = crate::clock::monotonic();
            let (owner, mut retained) = (owner(), RetainedMessages::new(100));
            for topic in &topics {
                retained.handle_publish(&publication(topic, "1", None, now), &owner, now).unwrap();
            }
            let (mut found, _) = search(&retained, &filter, now, steps);
            found.sort_unstable();
            let expected: Vec<_> = topics.iter().filter(|topic| filter::matches(&filter, topic)).cloned().collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn bytes_and_expiries_are_those_of_the_messages_after_any_changes(
            changes in proptest::collection::vec(("[a-d]", any::<bool>(), proptest::option::of(0..4_u32), 0..3_u64), 0..40),
        ) {
            let mut now = crate::clock::monotonic();
            let (owner, mut retained) = (owner(), RetainedMessages::new(3));
            for (topic, is_removed, expiry_s, later_s) in changes {
                now += Duration::from_secs(later_s);
                let payload = if is_removed { "" } else { "1" };
                let _ = retained.handle_publish(&publication(&topic, payload, expiry_s, now), &owner, now);
                let kept: Vec<_> = retained.messages.values().map(|kept| &kept.publication).collect();
                let bytes = kept.iter().map(|kept| cost(kept)).sum::<usize>();
                let held = retained.owners.values().next().map_or((0, 0), |of| (of.count, of.bytes));
                prop_assert_eq!((retained.bytes, held), (bytes, (kept.len(), bytes)));
                let expiring = kept.iter().filter(|kept| kept.expires_at().is_some()).count();
                prop_assert_eq!(retained.expiring.len(), expiring);
            }
        }
    }
}
