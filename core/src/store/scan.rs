//! SCAN: keys that match a pattern, page by page (protocol §7).

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::protocol::key::KEY_BYTES_MAX;
use crate::protocol::{ErrorReply, Reply};

use super::authorization::KeySet;
use super::deadlines::Slot;
use super::entries::Entries;
use super::glob::Pattern;
use super::key_walk::KeyWalk;

/// The most keys of one page.
const KEYS_PER_PAGE_MAX: usize = 1_000;
/// The most bytes of keys in one page, except for a single longer key.
const BYTES_PER_PAGE_MAX: usize = 128 * 1024;
/// The most slots that one page looks at. A page may be empty.
const SLOTS_PER_PAGE_MAX: usize = 32_768;

/// A page of a SCAN, which is collected in bounded calls of [`Store::scan`](super::Store::scan). In between, other requests are handled, and
/// [`Scan::retain_readable`] checks the permissions without a lock.
///
/// Entries are listed by slot, and keep their slots: a key that exists throughout a scan is listed exactly once, and a
/// page costs the same however many keys there are. Keys that are not UTF-8 are listed too: a sequence of bytes that is not
/// UTF-8 counts as one character. The token is the slot of the next page. A pattern that is longer
/// than any key, or needs too many steps for a single key, is rejected.
#[derive(Debug)]
pub struct Scan {
    walk: KeyWalk,
    keys: Vec<Bytes>,
    /// How many of the keys may be listed: the permission for the others has not been checked yet.
    checked: usize,
    /// Total length of the keys.
    bytes: usize,
    is_limited: bool,
}

impl Scan {
    /// Begins a page.
    ///
    /// # Errors
    /// The reply to a malformed request.
    pub fn new(pattern: &[u8], token: Option<&[u8]>) -> Result<Self, ErrorReply> {
        if pattern.len() > KEY_BYTES_MAX {
            return Err(ErrorReply::KeyTooLong);
        }
        let pattern = std::str::from_utf8(pattern).ok().filter(|text| !text.is_empty());
        let first = token.map_or(Some(0), |token| token.try_into().ok().map(Slot::from_be_bytes));
        let (Some(Ok(pattern)), Some(first)) = (pattern.map(Pattern::parse), first) else {
            return Err(ErrorReply::SyntaxError);
        };
        let walk = KeyWalk::of(Some(pattern), first, SLOTS_PER_PAGE_MAX);
        Ok(Self { walk, keys: Vec::new(), checked: 0, bytes: 0, is_limited: false })
    }

    /// Looks at some more entries, from the first that has not been looked at.
    pub(super) fn advance(&mut self, entries: &Entries, is_expired: impl Fn(Slot) -> bool) {
        let Self { walk, keys, bytes, .. } = self;
        if is_full(keys, *bytes) {
            return;
        }
        walk.advance(entries, |slot, entry| {
            if !is_expired(slot) {
                *bytes = bytes.saturating_add(entry.key().len());
                keys.push(Bytes::copy_from_slice(entry.key()));
            }
            if is_full(keys, *bytes) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// Removes the keys outside of `readable`; `None` stands for a server without rules.
    pub fn retain_readable(&mut self, readable: Option<&KeySet>) {
        if let Some(readable) = readable {
            self.is_limited = self.walk.pattern().is_some_and(|pattern| !readable.contains_all_of(pattern));
            for key in self.keys.split_off(self.checked.min(self.keys.len())) {
                if readable.contains(&key) {
                    self.keys.push(key);
                } else {
                    self.bytes = self.bytes.saturating_sub(key.len());
                }
            }
        }
        self.checked = self.keys.len();
    }

    /// Whether the pattern matches more than the client may read. It depends on the rules alone: whether there are such keys, the
    /// client must not learn.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Whether [`Store::scan`](super::Store::scan) has nothing to add.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.walk.is_complete() || is_full(&self.keys, self.bytes)
    }

    /// Returns the reply of a complete page.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        if self.walk.is_too_expensive() && self.walk.seen() == 0 {
            return Reply::Error(ErrorReply::QuotaExceeded);
        }
        let token = self.walk.next_slot().map(|slot| Bytes::copy_from_slice(&slot.to_be_bytes()));
        Reply::Keys { keys: self.keys, token }
    }
}

fn is_full(keys: &[Bytes], bytes: usize) -> bool {
    keys.len() >= KEYS_PER_PAGE_MAX || bytes >= BYTES_PER_PAGE_MAX
}
