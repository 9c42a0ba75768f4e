//! Who subscribes to what: a trie over the levels of the filters.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::protocol::message::Qos;

/// Names a session within one broker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The options of one subscription (MQTT 5, 3.8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The best quality of service to deliver with.
    pub qos: Qos,
    /// Not to deliver what the subscriber published itself.
    pub no_local: bool,
    /// To forward the retain flag as it came.
    pub retain_as_published: bool,
    /// What is sent along with each message of this subscription.
    pub identifier: Option<u32>,
}

/// All subscriptions of a broker, each with what holds it. Pure.
///
/// Filters must be valid (`filter::is_valid`), which also bounds the depth of every recursion here.
#[derive(Debug)]
pub struct Subscriptions<S> {
    root: Node<S>,
}

#[derive(Debug)]
struct Node<S> {
    /// By level.
    children: HashMap<Box<str>, Node<S>>,
    /// Below `+`, which every level matches.
    any: Option<Box<Node<S>>>,
    /// Subscriptions whose filter ends here.
    here: BTreeMap<SessionId, (S, Options)>,
    /// Subscriptions whose filter ends with `#` below here.
    below: BTreeMap<SessionId, (S, Options)>,
}

impl<S> Default for Node<S> {
    fn default() -> Self {
        Self { children: HashMap::new(), any: None, here: BTreeMap::new(), below: BTreeMap::new() }
    }
}

impl<S> Default for Subscriptions<S> {
    fn default() -> Self {
        Self { root: Node::default() }
    }
}

impl<S> Subscriptions<S> {
    /// Adds or replaces a subscription; true if it is new.
    pub fn insert(&mut self, filter: &str, session: SessionId, holder: S, options: Options) -> bool {
        let mut node = &mut self.root;
        for level in filter.split('/') {
            if level == "#" {
                return node.below.insert(session, (holder, options)).is_none();
            }
            node = match level {
                "+" => node.any.get_or_insert_default(),
                level => node.children.entry(level.into()).or_default(),
            };
        }
        node.here.insert(session, (holder, options)).is_none()
    }

    /// Removes a subscription; false if there was none.
    pub fn remove(&mut self, filter: &str, session: SessionId) -> bool {
        self.root.remove(Some(filter), session)
    }

    /// Calls `found` for each subscription that matches a topic; a session may come several times.
    pub fn for_each_match<'a>(&'a self, topic: &str, mut found: impl FnMut(SessionId, &'a S, Options)) {
        let found: &mut dyn FnMut(SessionId, &'a S, Options) = &mut found;
        if topic.starts_with('$') {
            // No wildcard at the start of a filter matches such a topic (MQTT 5, 4.7.2).
            let (level, rest) = split(topic);
            if let Some(child) = self.root.children.get(level) {
                child.visit(rest, found);
            }
        } else {
            self.root.visit(Some(topic), found);
        }
    }

    /// Whether any subscription matches a topic.
    pub fn has_match(&self, topic: &str) -> bool {
        if topic.starts_with('$') {
            let (level, rest) = split(topic);
            return self.root.children.get(level).is_some_and(|child| child.has_match(rest));
        }
        self.root.has_match(Some(topic))
    }
}

impl<S> Node<S> {
    fn has_match(&self, topic: Option<&str>) -> bool {
        let Some(topic) = topic else {
            return !self.below.is_empty() || !self.here.is_empty();
        };
        let (level, rest) = split(topic);
        let has_match = |child: &Self| child.has_match(rest);
        !self.below.is_empty()
            || self.children.get(level).is_some_and(has_match)
            || self.any.as_deref().is_some_and(has_match)
    }

    fn visit<'a>(&'a self, topic: Option<&str>, found: &mut dyn FnMut(SessionId, &'a S, Options)) {
        report(&self.below, found);
        let Some(topic) = topic else {
            report(&self.here, found);
            return;
        };
        let (level, rest) = split(topic);
        if let Some(child) = self.children.get(level) {
            child.visit(rest, found);
        }
        if let Some(any) = &self.any {
            any.visit(rest, found);
        }
    }

    fn remove(&mut self, filter: Option<&str>, session: SessionId) -> bool {
        let Some(filter) = filter else {
            return self.here.remove(&session).is_some();
        };
        if filter == "#" {
            return self.below.remove(&session).is_some();
        }
        let (level, rest) = split(filter);
        let child = if level == "+" { self.any.as_deref_mut() } else { self.children.get_mut(level) };
        let Some(child) = child else {
            return false;
        };
        let removed = child.remove(rest, session);
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

fn report<'a, S>(
    subscriptions: &'a BTreeMap<SessionId, (S, Options)>,
    found: &mut dyn FnMut(SessionId, &'a S, Options),
) {
    for (session, (holder, options)) in subscriptions {
        found(*session, holder, *options);
    }
}

fn split(topic: &str) -> (&str, Option<&str>) {
    match topic.split_once('/') {
        Some((level, rest)) => (level, Some(rest)),
        None => (topic, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::filter;
    use super::*;

    const OPTIONS: Options =
        Options { qos: Qos::AtLeastOnce, no_local: false, retain_as_published: false, identifier: None };

    fn matching(subscriptions: &Subscriptions<()>, topic: &str) -> Vec<u64> {
        let mut found = Vec::new();
        subscriptions.for_each_match(topic, |session, (), _| found.push(session.0));
        found.sort_unstable();
        found
    }

    #[test]
    fn a_topic_finds_its_filters() {
        let mut subscriptions = Subscriptions::default();
        for (session, filter) in ["a/b", "a/+", "a/#", "#", "+/b", "$SYS/#", "b"].into_iter().enumerate() {
            assert!(subscriptions.insert(filter, SessionId(session as u64), (), OPTIONS));
        }
        assert_eq!(matching(&subscriptions, "a/b"), [0, 1, 2, 3, 4]);
        assert_eq!(matching(&subscriptions, "a"), [2, 3]);
        assert_eq!(matching(&subscriptions, "$SYS/b"), [5]);
        assert_eq!(matching(&subscriptions, "b"), [3, 6]);
    }

    #[test]
    fn the_same_filter_again_replaces_the_options() {
        let mut subscriptions = Subscriptions::default();
        assert!(subscriptions.insert("a", SessionId(1), (), OPTIONS));
        assert!(!subscriptions.insert("a", SessionId(1), (), Options { qos: Qos::AtMostOnce, ..OPTIONS }));
        let mut found = Vec::new();
        subscriptions.for_each_match("a", |_, (), options| found.push(options.qos));
        assert_eq!(found, [Qos::AtMostOnce]);
    }

    #[test]
    fn nothing_is_left_of_a_removed_subscription() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.insert("a/b/#", SessionId(1), (), OPTIONS);
        subscriptions.insert("a/+", SessionId(1), (), OPTIONS);
        assert!(!subscriptions.remove("a/b", SessionId(1)));
        assert!(!subscriptions.remove("a/b/#", SessionId(2)));
        assert!(subscriptions.remove("a/b/#", SessionId(1)));
        assert!(subscriptions.remove("a/+", SessionId(1)));
        assert!(subscriptions.root.children.is_empty());
    }

    proptest! {
        #[test]
        fn the_trie_finds_what_matching_one_by_one_finds(
            filters in proptest::collection::vec("([ab$]?|\\+)(/([ab]?|\\+)){0,3}(/#)?", 0..12),
            topic in "[ab$]?(/[ab]?){0,3}",
        ) {
            let filters: Vec<_> = filters.into_iter().filter(|filter| filter::is_valid(filter)).collect();
            let mut subscriptions = Subscriptions::default();
            for (session, filter) in filters.iter().enumerate() {
                subscriptions.insert(filter, SessionId(session as u64), (), OPTIONS);
            }
            let expected: Vec<_> = (0u64..)
                .zip(&filters)
                .filter(|(_, filter)| filter::matches(filter, &topic))
                .map(|(session, _)| session)
                .collect();
            prop_assert_eq!(subscriptions.has_match(&topic), !expected.is_empty());
            prop_assert_eq!(matching(&subscriptions, &topic), expected);
        }
    }
}
