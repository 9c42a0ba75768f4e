//! Topic filters: which are well formed, and what they match (MQTT 5, 4.7).

use crate::protocol::message::TOPIC_BYTES_MAX;
pub use crate::protocol::topic::has_wildcard;

/// The most levels of a filter, so that nothing recursive over them can exhaust a stack.
pub const LEVELS_MAX: usize = 200;

/// The filters that begin so share their messages among several sessions (MQTT 5, 4.8.2).
const SHARED: &str = "$share/";

/// What a level of a filter with a wildcard is charged for: it may need a place of its own in the trie.
const LEVEL_BYTES: usize = 256;
/// How many bytes filters may be charged for on average where a session has as many as it may.
const BYTES_MEAN: usize = 4096;
/// The bytes that a session always has room for.
const BYTES_MIN: usize = 1024 * 1024;

/// What a filter is charged for in bytes, each of which a session keeps about twice.
#[must_use]
pub fn bytes(filter: &str) -> usize {
    let levels = if has_wildcard(filter) { filter.split('/').count() } else { 1 };
    filter.len().saturating_add(levels.saturating_mul(LEVEL_BYTES))
}

/// What all filters of a session may be charged for where it may have so many.
#[must_use]
pub fn bytes_max(filters_max: usize) -> usize {
    filters_max.saturating_mul(BYTES_MEAN).max(BYTES_MIN)
}

/// Whether a filter shares its messages; it need not be well formed.
#[must_use]
pub fn is_shared(filter: &str) -> bool {
    filter.starts_with(SHARED)
}

/// The filter that a shared one shares: what follows the name of the share. None if it is not well formed (4.8.2).
#[must_use]
pub fn shared(filter: &str) -> Option<&str> {
    let (name, filter) = filter.strip_prefix(SHARED)?.split_once('/')?;
    (!name.is_empty() && !has_wildcard(name) && is_valid(filter)).then_some(filter)
}

/// Whether a filter is well formed and not too deep.
#[must_use]
pub fn is_valid(filter: &str) -> bool {
    if filter.is_empty() || filter.len() > TOPIC_BYTES_MAX {
        return false;
    }
    let mut ended = false;
    for (index, level) in filter.split('/').enumerate() {
        let wild = level.contains(['+', '#']);
        if ended || index >= LEVELS_MAX || (wild && level.len() > 1) {
            return false;
        }
        ended = level == "#";
    }
    true
}

/// The part of a filter before its first wildcard: all topics that match begin with it.
#[must_use]
pub fn literal_prefix(filter: &str) -> &str {
    let literal = filter.split(['+', '#']).next().unwrap_or_default();
    // `a/#` also matches `a`, which does not begin with `a/`.
    if filter.ends_with('#') { literal.strip_suffix('/').unwrap_or(literal) } else { literal }
}

/// Whether a valid filter matches a topic. Wildcards at the start do not match a leading `$` (4.7.2).
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_alone_in_their_level_and_a_hash_ends_the_filter() {
        for filter in ["a", "/", "+", "#", "a/+/b", "a/#", "+/+/#", "$share", "a//b"] {
            assert!(is_valid(filter), "{filter}");
        }
        for filter in ["", "a+", "+a", "a#", "#/a", "a/#/b", "a/b#", "++"] {
            assert!(!is_valid(filter), "{filter}");
        }
    }

    #[test]
    fn a_shared_filter_has_a_name_and_a_filter() {
        for (filter, shared_filter) in
            [("$share/g/a", "a"), ("$share/g/#", "#"), ("$share/g//", "/"), ("$share/$/+/a", "+/a")]
        {
            assert_eq!(shared(filter), Some(shared_filter), "{filter}");
        }
        for filter in
            ["$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/a#/a", "$share/g/a#"]
        {
            assert!(is_shared(filter) && shared(filter).is_none(), "{filter}");
        }
        assert!(!is_shared("$share") && !is_shared("$shared/g/a") && shared("g/a").is_none());
    }

    #[test]
    fn a_filter_too_deep_is_refused() {
        assert!(is_valid(&"a/".repeat(LEVELS_MAX - 1)));
        assert!(!is_valid(&"a/".repeat(LEVELS_MAX)));
    }

    #[test]
    fn matching_is_level_by_level() {
        for (filter, topic) in [
            ("a/b", "a/b"),
            ("a/+", "a/b"),
            ("a/+", "a/"),
            ("+/+", "/a"),
            ("#", "a/b/c"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("$SYS/#", "$SYS/x"),
            ("a/+/#", "a/b"),
        ] {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [
            ("a", "a/b"),
            ("a/b", "a"),
            ("a/+", "a"),
            ("+", "/a"),
            ("#", "$SYS"),
            ("+/x", "$SYS/x"),
            ("a/+/#", "a"),
        ] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn what_matches_begins_with_the_literal_prefix() {
        for (filter, prefix) in
            [("a/b", "a/b"), ("a/+/c", "a/"), ("a/#", "a"), ("#", ""), ("+", ""), ("a/+/#", "a")]
        {
            assert_eq!(literal_prefix(filter), prefix, "{filter}");
        }
    }
}
