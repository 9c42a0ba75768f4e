//! SCAN: keys that match a pattern, page by page (protocol §7).

use bytes::Bytes;

use crate::protocol::key::KEY_BYTES_MAX;
use crate::protocol::{ErrorReply, Reply};

use super::entries::Entries;
use super::entry::Entry;
use super::expiry::Slot;
use super::glob::Pattern;

/// The most keys of one page.
const KEYS_PER_PAGE_MAX: usize = 1_000;
/// The most bytes of keys in one page, except for a single longer key.
const BYTES_PER_PAGE_MAX: usize = 128 * 1024;
/// The most slots that one page looks at, because other requests wait meanwhile. A page may be empty.
const SLOTS_PER_PAGE_MAX: usize = 32_768;
/// The most matching steps of one page, for the same reason: some hundredths of a second.
const STEPS_PER_PAGE_MAX: usize = 16 * 1024 * 1024;

/// Returns the next page of the entries that match and are visible.
///
/// Entries are listed by slot, and keep their slots: a key that exists throughout a scan is listed exactly
/// once, and a page costs the same however many keys there are. The token is the slot of the next page. A
/// pattern that is longer than any key, or needs more steps for a single key than a page has, is rejected.
pub(super) fn scan(
    entries: &Entries,
    pattern: &[u8],
    token: Option<&[u8]>,
    is_visible: impl Fn(Slot, &[u8]) -> bool,
) -> Reply {
    if pattern.len() > KEY_BYTES_MAX {
        return Reply::Error(ErrorReply::KeyTooLong);
    }
    let pattern = std::str::from_utf8(pattern).ok().filter(|text| !text.is_empty());
    let first = token.map_or(Some(0), |token| token.try_into().ok().map(Slot::from_be_bytes));
    let (Some(Ok(pattern)), Some(first)) = (pattern.map(Pattern::parse), first) else {
        return Reply::Error(ErrorReply::SyntaxError);
    };
    let (mut keys, mut bytes, mut seen) = (Vec::new(), 0_usize, 0_usize);
    let mut steps = STEPS_PER_PAGE_MAX;
    for (slot, entry) in entries.iter_from(first) {
        let is_full = keys.len() >= KEYS_PER_PAGE_MAX || bytes >= BYTES_PER_PAGE_MAX;
        let matched =
            if is_full || seen >= SLOTS_PER_PAGE_MAX { None } else { matches(&pattern, entry, &mut steps) };
        match matched {
            Some(true) if is_visible(slot, entry.key()) => {
                bytes = bytes.saturating_add(entry.key().len());
                keys.push(Bytes::copy_from_slice(entry.key()));
            }
            Some(_) => {}
            None if seen == 0 => return Reply::Error(ErrorReply::QuotaExceeded),
            None => {
                let token = Some(Bytes::copy_from_slice(&slot.to_be_bytes()));
                return Reply::Keys { keys, token };
            }
        }
        seen = seen.saturating_add(1);
    }
    Reply::Keys { keys, token: None }
}

/// Whether an entry matches; vacant slots and keys that are not UTF-8 do not. Returns `None` if the steps do
/// not suffice.
fn matches(pattern: &Pattern, entry: &Entry, steps: &mut usize) -> Option<bool> {
    match std::str::from_utf8(entry.key()) {
        Ok(key) if !key.is_empty() => pattern.matches_within(key, steps),
        Ok(_) | Err(_) => Some(false),
    }
}
