//! Memory that a session is charged for its topic filters: what is allocated for them.

use crate::mqtt::filter;

/// The bytes of a filter besides its text, which is there twice: its places in the tables of the session and of all
/// subscriptions, which may be half empty.
const FILTER_BYTES: usize = 176;
/// The bytes of a level in the trie of filters with a wildcard: a node and its place in the one above it. Filters that share
/// a level share its node, which is charged to one of them.
pub const NODE_BYTES: usize = 184;
/// The bytes of a group of a shared subscription.
const GROUP_BYTES: usize = 512;
/// Mean charge of a filter that a session with the maximum number of filters can afford.
const BYTES_MEAN: usize = 4096;
/// Limit of every session at least.
const BYTES_MIN: usize = 1024 * 1024;

/// Returns the charge for a filter in bytes, without the nodes of its levels.
#[must_use]
pub fn bytes(filter: &str) -> usize {
    let text = filter.len().saturating_mul(2);
    // The nodes of groups are not counted, as nearly every group has a filter of its own.
    let group = if filter::is_shared(filter) { GROUP_BYTES.saturating_add(levels_bytes(filter)) } else { 0 };
    text.saturating_add(FILTER_BYTES).saturating_add(group)
}

/// Returns the most that a filter can be charged.
#[must_use]
pub fn bytes_at_most(filter: &str) -> usize {
    bytes(filter).saturating_add(levels_bytes(filter))
}

fn levels_bytes(filter: &str) -> usize {
    let levels = if filter::has_wildcard(filter) { filter.split('/').count() } else { 0 };
    levels.saturating_mul(NODE_BYTES)
}

/// Returns the limit of a session in bytes if it may have `filters_max` filters.
#[must_use]
pub fn bytes_max(filters_max: usize) -> usize {
    filters_max.saturating_mul(BYTES_MEAN).max(BYTES_MIN)
}
