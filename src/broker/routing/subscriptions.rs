//! Subscriptions: a table of the topic filters without wildcards, and a trie over the levels of the others.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::mqtt::filter;

/// Subscriptions by topic filter. `K` identifies the subscriber, `S` is what a match returns. Pure.
///
/// Filters must be valid (`filter::is_valid`), which also limits the depth of every recursion here.
#[derive(Debug)]
pub struct Subscriptions<K, S> {
    /// Filters without a wildcard: most messages match one of them, which one lookup finds, however many levels it has.
    exact: HashMap<Box<str>, BTreeMap<K, S>>,
    /// Filters with a wildcard.
    root: Node<K, S>,
}

#[derive(Debug)]
struct Node<K, S> {
    /// By the name of the next level.
    children: HashMap<Box<str>, Node<K, S>>,
    /// The next level is `+`.
    any: Option<Box<Node<K, S>>>,
    /// Subscriptions whose filter ends at this level.
    here: BTreeMap<K, S>,
    /// Subscriptions whose filter ends with `#` below this level.
    below: BTreeMap<K, S>,
}

impl<K, S> Default for Node<K, S> {
    fn default() -> Self {
        Self { children: HashMap::new(), any: None, here: BTreeMap::new(), below: BTreeMap::new() }
    }
}

impl<K, S> Default for Subscriptions<K, S> {
    fn default() -> Self {
        Self { exact: HashMap::new(), root: Node::default() }
    }
}

impl<K: Copy + Ord, S> Subscriptions<K, S> {
    /// Adds or replaces a subscription; returns whether it is new.
    pub fn insert(&mut self, filter: &str, key: K, subscription: S) -> bool {
        if !filter::has_wildcard(filter) {
            let of_filter = match self.exact.get_mut(filter) {
                Some(of_filter) => of_filter,
                None => self.exact.entry(filter.into()).or_default(),
            };
            return of_filter.insert(key, subscription).is_none();
        }
        let mut node = &mut self.root;
        for level in filter.split('/') {
            if level == "#" {
                return node.below.insert(key, subscription).is_none();
            }
            node = match level {
                "+" => node.any.get_or_insert_default(),
                level => node.children.entry(level.into()).or_default(),
            };
        }
        node.here.insert(key, subscription).is_none()
    }

    /// Returns the subscription of a subscriber to this very filter.
    pub fn get(&self, filter: &str, key: K) -> Option<&S> {
        if !filter::has_wildcard(filter) {
            return self.exact.get(filter)?.get(&key);
        }
        let mut node = &self.root;
        for level in filter.split('/') {
            node = match level {
                "#" => return node.below.get(&key),
                "+" => node.any.as_deref()?,
                level => node.children.get(level)?,
            };
        }
        node.here.get(&key)
    }

    /// Removes a subscription; returns whether it existed.
    pub fn remove(&mut self, filter: &str, key: K) -> bool {
        if filter::has_wildcard(filter) {
            return self.root.remove(Some(filter), key);
        }
        let Some(of_filter) = self.exact.get_mut(filter) else { return false };
        let existed = of_filter.remove(&key).is_some();
        if of_filter.is_empty() {
            self.exact.remove(filter);
        }
        existed
    }

    /// Calls `found` for each subscription that matches a topic. A subscriber with several matching filters is found
    /// several times.
    pub fn for_each_match<'a>(&'a self, topic: &str, mut found: impl FnMut(K, &'a S)) {
        let found: &mut dyn FnMut(K, &'a S) = &mut found;
        if let Some(of_topic) = self.exact.get(topic) {
            visit_all(of_topic, found);
        }
        if self.root.is_empty() {
            return;
        }
        if topic.starts_with('$') {
            // A wildcard at the start of a filter does not match such a topic (MQTT 5, 4.7.2).
            let (level, rest) = split_level(topic);
            if let Some(child) = self.root.children.get(level) {
                child.visit(rest, found);
            }
        } else {
            self.root.visit(Some(topic), found);
        }
    }

    pub fn has_match(&self, topic: &str) -> bool {
        if self.exact.contains_key(topic) {
            return true;
        }
        if topic.starts_with('$') {
            let (level, rest) = split_level(topic);
            return self.root.children.get(level).is_some_and(|child| child.has_match(rest));
        }
        self.root.has_match(Some(topic))
    }
}

impl<K: Copy + Ord, S> Node<K, S> {
    fn has_match(&self, topic: Option<&str>) -> bool {
        let Some(topic) = topic else {
            return !self.below.is_empty() || !self.here.is_empty();
        };
        let (level, rest) = split_level(topic);
        let has_match = |child: &Self| child.has_match(rest);
        !self.below.is_empty()
            || self.children.get(level).is_some_and(has_match)
            || self.any.as_deref().is_some_and(has_match)
    }

    fn visit<'a>(&'a self, topic: Option<&str>, found: &mut dyn FnMut(K, &'a S)) {
        visit_all(&self.below, found);
        let Some(topic) = topic else {
            visit_all(&self.here, found);
            return;
        };
        let (level, rest) = split_level(topic);
        if let Some(child) = self.children.get(level) {
            child.visit(rest, found);
        }
        if let Some(any) = &self.any {
            any.visit(rest, found);
        }
    }

    fn remove(&mut self, filter: Option<&str>, key: K) -> bool {
        let Some(filter) = filter else {
            return self.here.remove(&key).is_some();
        };
        if filter == "#" {
            return self.below.remove(&key).is_some();
        }
        let (level, rest) = split_level(filter);
        let child = if level == "+" { self.any.as_deref_mut() } else { self.children.get_mut(level) };
        let Some(child) = child else {
            return false;
        };
        let removed = child.remove(rest, key);
        if child.is_empty() {
            if level == "+" {
                self.any = None;
            } else {
                self.children.remove(level);
            }
        }
        removed
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.any.is_none() && self.here.is_empty() && self.below.is_empty()
    }
}

fn visit_all<'a, K: Copy, S>(subscriptions: &'a BTreeMap<K, S>, found: &mut dyn FnMut(K, &'a S)) {
    for (key, subscription) in subscriptions {
        found(*key, subscription);
    }
}

fn split_level(topic: &str) -> (&str, Option<&str>) {
    // Levels are short: a loop over the bytes is faster than memchr, which is made for long texts.
    let end = topic.bytes().position(|byte| byte == b'/').unwrap_or(topic.len());
    let (level, rest) = topic.split_at_checked(end).unwrap_or((topic, ""));
    (level, rest.get(1..))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::broker::session::entry::SessionId;

    fn matching(subscriptions: &Subscriptions<SessionId, ()>, topic: &str) -> Vec<u64> {
        let mut found = Vec::new();
        subscriptions.for_each_match(topic, |session, ()| found.push(session.0));
        found.sort_unstable();
        found
    }

    #[test]
    fn a_topic_matches_its_filters() {
        let mut subscriptions = Subscriptions::default();
        for (session, filter) in ["a/b", "a/+", "a/#", "#", "+/b", "$SYS/#", "b"].into_iter().enumerate() {
            assert!(subscriptions.insert(filter, SessionId(session as u64), ()));
        }
        assert_eq!(matching(&subscriptions, "a/b"), [0, 1, 2, 3, 4]);
        assert_eq!(matching(&subscriptions, "a"), [2, 3]);
        assert_eq!(matching(&subscriptions, "$SYS/b"), [5]);
        assert_eq!(matching(&subscriptions, "b"), [3, 6]);
    }

    #[test]
    fn the_same_filter_again_replaces_the_subscription() {
        let mut subscriptions = Subscriptions::default();
        assert!(subscriptions.insert("a", SessionId(1), 1));
        assert!(!subscriptions.insert("a", SessionId(1), 2));
        let mut found = Vec::new();
        subscriptions.for_each_match("a", |_, subscription| found.push(*subscription));
        assert_eq!(found, [2]);
    }

    #[test]
    fn a_removed_subscription_leaves_no_node() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.insert("a/b/#", SessionId(1), ());
        subscriptions.insert("a/+", SessionId(1), ());
        assert!(!subscriptions.remove("a/b", SessionId(1)));
        assert!(!subscriptions.remove("a/b/#", SessionId(2)));
        assert!(subscriptions.remove("a/b/#", SessionId(1)));
        assert!(subscriptions.remove("a/+", SessionId(1)));
        subscriptions.insert("a/b", SessionId(1), ());
        assert!(subscriptions.remove("a/b", SessionId(1)));
        assert!(subscriptions.root.is_empty() && subscriptions.exact.is_empty());
    }

    proptest! {
        #[test]
        fn the_trie_finds_the_same_filters_as_matching_each(
            filters in proptest::collection::vec("([ab$]?|\\+)(/([ab]?|\\+)){0,3}(/#)?", 0..12),
            topic in "[ab$]?(/[ab]?){0,3}",
        ) {
            let filters: Vec<_> = filters.into_iter().filter(|filter| filter::is_valid(filter)).collect();
            let mut subscriptions = Subscriptions::default();
            for (session, filter) in filters.iter().enumerate() {
                subscriptions.insert(filter, SessionId(session as u64), ());
            }
            let expected: Vec<_> = (0u64..)
                .zip(&filters)
                .filter(|(_, filter)| filter::matches(filter, &topic))
                .map(|(session, _)| session)
                .collect();
            prop_assert_eq!(subscriptions.has_match(&topic), !expected.is_empty());
            prop_assert_eq!(matching(&subscriptions, &topic), expected);
        }

        #[test]
        fn a_removed_subscription_is_not_found_and_others_with_the_same_filter_are(
            changes in proptest::collection::vec(
                (any::<bool>(), proptest::sample::select(vec!["a", "a/b", "a/", "$a", "+", "a/+", "a/#"]), 0..3_u64),
                0..24,
            ),
            topic in proptest::sample::select(vec!["a", "a/b", "a/", "$a"]),
        ) {
            let (mut subscriptions, mut model) = (Subscriptions::default(), BTreeMap::new());
            for (adds, filter, session) in changes {
                let id = SessionId(session);
                prop_assert_eq!(subscriptions.get(filter, id).is_some(), model.contains_key(&(session, filter)));
                if adds {
                    let is_new = model.insert((session, filter), ()).is_none();
                    prop_assert_eq!(subscriptions.insert(filter, id, ()), is_new);
                } else {
                    let existed = model.remove(&(session, filter)).is_some();
                    prop_assert_eq!(subscriptions.remove(filter, id), existed);
                }
                let expected: Vec<_> = model
                    .keys()
                    .filter(|(_, filter)| filter::matches(filter, topic))
                    .map(|(session, _)| *session)
                    .collect();
                prop_assert_eq!(matching(&subscriptions, topic), expected);
            }
            for (session, filter) in model.keys() {
                subscriptions.remove(filter, SessionId(*session));
            }
            prop_assert!(subscriptions.root.is_empty() && subscriptions.exact.is_empty());
        }
    }
}
