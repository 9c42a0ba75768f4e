//! Memory that a session is charged for its topic filters.

use crate::mqtt::filter::has_wildcard;

/// Charge for a level of a filter with a wildcard: it may need a node of its own in the trie.
const LEVEL_BYTES: usize = 256;
/// Mean charge of a filter that a session with the maximum number of filters can afford.
const BYTES_MEAN: usize = 4096;
/// Limit of every session at least.
const BYTES_MIN: usize = 1024 * 1024;

/// Returns the charge for a filter in bytes. A session keeps each filter about twice.
#[must_use]
pub fn bytes(filter: &str) -> usize {
    let levels = if has_wildcard(filter) { filter.split('/').count() } else { 1 };
    filter.len().saturating_add(levels.saturating_mul(LEVEL_BYTES))
}

/// Returns the limit of a session in bytes if it may have `filters_max` filters.
#[must_use]
pub fn bytes_max(filters_max: usize) -> usize {
    filters_max.saturating_mul(BYTES_MEAN).max(BYTES_MIN)
}
