//! Sets of topics that a client may publish or subscribe to.

use hashbrown::HashSet;

use crate::broker::routing::subscriptions::Subscriptions;
use crate::mqtt::filter;

/// A set of topic names and topic filters.
///
/// A lookup of a topic, needed for each message, uses the trie of the subscriptions: its cost hardly depends on the number of
/// filters. A lookup of a filter, needed for each SUBSCRIBE, compares all filters.
#[derive(Debug, Default)]
pub(super) struct TopicSet {
    names: HashSet<Box<str>>,
    filters: Vec<Box<str>>,
    trie: Subscriptions<(), ()>,
}

impl TopicSet {
    /// Adds the topics of a valid filter.
    pub(super) fn add(&mut self, filter: String) {
        if filter::has_wildcard(&filter) {
            self.trie.insert(&filter, (), ());
            self.filters.push(filter.into());
        } else {
            self.names.insert(filter.into());
        }
    }

    /// Returns whether the set contains a topic.
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.names.contains(topic) || self.trie.has_match(topic)
    }

    /// Returns whether one name or filter of the set covers all topics that `wanted` matches.
    pub(super) fn covers(&self, wanted: &str) -> bool {
        self.names.contains(wanted) || self.filters.iter().any(|filter| covers(filter, wanted))
    }
}

/// Returns whether `filter` matches every topic that `wanted` matches.
fn covers(filter: &str, wanted: &str) -> bool {
    // Wildcards at the start do not match a leading `$` (MQTT 5, 4.7.2).
    if wanted.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut wanted = wanted.split('/');
    for level in filter.split('/') {
        match (level, wanted.next()) {
            ("#", _) => return true,
            ("+", Some(level)) if level != "#" => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    wanted.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_filter_covers_exactly_the_filters_that_it_includes() {
        for (filter, wanted, is_covered) in [
            ("a/#", "a/b/+/#", true),
            ("a/#", "a", true),
            ("a/+", "a/+", true),
            ("a/+", "a/b", true),
            ("a/+", "a/#", false),
            ("a/+", "a", false),
            ("+/b", "a/b", true),
            ("#", "$SYS/x", false),
            ("$SYS/#", "$SYS/+", true),
            ("a/b", "a/+", false),
        ] {
            let mut topics = TopicSet::default();
            topics.add(filter.to_owned());
            assert_eq!(topics.covers(wanted), is_covered, "{filter} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn a_topic_of_a_covered_filter_is_matched(
            filter in "[ab+]/[ab+]/(#|[ab+])", wanted in "[ab+]/[ab+]/(#|[ab+])", topic in "[ab]/[ab]/[ab]",
        ) {
            let mut topics = TopicSet::default();
            topics.add(filter.clone());
            prop_assert_eq!(topics.contains(&topic), filter::matches(&filter, &topic));
            if covers(&filter, &wanted) && filter::matches(&wanted, &topic) {
                prop_assert!(filter::matches(&filter, &topic));
            }
        }
    }
}
