//! Topic filters: validation and matching (MQTT 5, 4.7).

use crate::protocol::message::TOPIC_BYTES_MAX;
pub use crate::protocol::topic::has_wildcard;

/// Maximum number of levels of a filter: it bounds every recursion over them.
pub const LEVELS_MAX: usize = 200;

/// Prefix of the filters of shared subscriptions (MQTT 5, 4.8.2).
const SHARED: &str = "$share/";

/// Returns whether a filter is for a shared subscription; it need not be valid.
#[must_use]
pub fn is_shared(filter: &str) -> bool {
    filter.starts_with(SHARED)
}

/// Returns the filter within the filter of a shared subscription, or None if it is not valid (MQTT 5, 4.8.2).
///
/// # Examples
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::mqtt::filter;
///
/// assert_eq!(filter::shared("$share/group/line/+"), Some("line/+"));
/// assert_eq!(filter::shared("$share/group"), None);
/// ```
#[must_use]
pub fn shared(filter: &str) -> Option<&str> {
    let (name, filter) = filter.strip_prefix(SHARED)?.split_once('/')?;
    (!name.is_empty() && !has_wildcard(name) && is_valid(filter)).then_some(filter)
}

/// Returns whether a filter is valid and has at most [`LEVELS_MAX`] levels.
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

/// Returns whether a valid filter matches a topic. A wildcard at the start does not match a leading `$` (MQTT 5, 4.7.2).
///
/// # Examples
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::mqtt::filter;
///
/// assert!(filter::matches("line/+/temp", "line/1/temp"));
/// assert!(!filter::matches("#", "$SYS/uptime"));
/// ```
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
    fn a_filter_with_too_many_levels_is_invalid() {
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
}
