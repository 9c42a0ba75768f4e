//! Topics that a client may publish to or subscribe to.

use hashbrown::HashSet;

use crate::broker::routing::subscriptions::Subscriptions;
use crate::mqtt::filter;

/// Topics, by name and by filter. A message is looked for in the trie that subscriptions are kept in, so that a thousand
/// filters cost hardly more than one; a SUBSCRIBE, which is rare, looks at all of them.
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

    /// Whether a topic is among them.
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.names.contains(topic) || self.trie.has_match(topic)
    }

    /// Whether all topics that a filter matches are among them, by one name or filter alone.
    pub(super) fn covers(&self, wanted: &str) -> bool {
        self.names.contains(wanted) || self.filters.iter().any(|filter| covers(filter, wanted))
    }
}

/// Whether a filter matches whatever another one matches.
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
    fn a_filter_covers_what_it_matches_and_no_more() {
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
        fn what_is_covered_is_matched(
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
