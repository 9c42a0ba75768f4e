//! SCAN: keys that match a pattern, page by page (protocol §7).

use bytes::Bytes;

use crate::protocol::key::KEY_BYTES_MAX;
use crate::protocol::{ErrorReply, Reply};

use super::authorization::KeySet;
use super::entries::Entries;
use super::entry::Entry;
use super::expiry::Slot;
use super::glob::Pattern;

/// The most keys of one page.
const KEYS_PER_PAGE_MAX: usize = 1_000;
/// The most bytes of keys in one page, except for a single longer key.
const BYTES_PER_PAGE_MAX: usize = 128 * 1024;
/// The most slots that one page looks at. A page may be empty.
const SLOTS_PER_PAGE_MAX: usize = 32_768;
/// The most steps of one page.
const STEPS_PER_PAGE_MAX: usize = 16 * 1024 * 1024;
/// The most slots that one call looks at, because other requests wait meanwhile.
const SLOTS_PER_CALL_MAX: usize = 1_024;
/// The most steps of one call, for the same reason: some tens of microseconds.
const STEPS_PER_CALL_MAX: usize = 32 * 1024;
/// The most steps for a single key, which one call takes at once: enough for the longest key and the longest pattern
/// without character classes.
const STEPS_PER_KEY_MAX: usize = 256 * 1024;
/// The bytes of a key that are checked to be UTF-8 in one step.
const BYTES_PER_STEP: usize = 16;

/// A page of a SCAN, which is collected in bounded calls of [`Store::scan`](super::Store::scan). In between, other requests are handled, and
/// [`Scan::retain_readable`] checks the permissions without a lock.
///
/// Entries are listed by slot, and keep their slots: a key that exists throughout a scan is listed exactly once, and a
/// page costs the same however many keys there are. The token is the slot of the next page. A pattern that is longer
/// than any key, or needs more than [`STEPS_PER_KEY_MAX`] steps for a single key, is rejected.
#[derive(Debug)]
pub struct Scan {
    pattern: Pattern,
    /// The next slot to look at; `None` at the end.
    next: Option<Slot>,
    keys: Vec<Bytes>,
    /// How many of the keys may be listed: the permission for the others has not been checked yet.
    checked: usize,
    /// Total length of the keys.
    bytes: usize,
    slots: usize,
    steps: usize,
    is_too_expensive: bool,
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
        Ok(Self {
            pattern,
            next: Some(first),
            keys: Vec::new(),
            checked: 0,
            bytes: 0,
            slots: 0,
            steps: 0,
            is_too_expensive: false,
        })
    }

    /// Looks at some more entries, from the first that has not been looked at.
    pub(super) fn advance(&mut self, entries: &Entries, is_expired: impl Fn(Slot) -> bool) {
        let Some(first) = self.next else { return };
        let mut left = STEPS_PER_CALL_MAX;
        for (seen, (slot, entry)) in entries.iter_from(first).enumerate() {
            self.next = Some(slot);
            if seen >= SLOTS_PER_CALL_MAX || self.is_complete() {
                return;
            }
            // The first key of a call gets more steps, so that each call looks at one at least.
            let steps_max = if seen == 0 { STEPS_PER_KEY_MAX } else { left };
            let mut steps = steps_max;
            let Some(is_match) = matches(&self.pattern, entry, &mut steps) else {
                self.is_too_expensive = seen == 0;
                return;
            };
            let taken = steps_max.saturating_sub(steps);
            left = left.saturating_sub(taken);
            self.steps = self.steps.saturating_add(taken);
            self.slots = self.slots.saturating_add(1);
            if is_match && !is_expired(slot) {
                self.bytes = self.bytes.saturating_add(entry.key().len());
                self.keys.push(Bytes::copy_from_slice(entry.key()));
            }
        }
        self.next = None;
    }

    /// Removes the keys outside of `readable`; `None` stands for a server without rules.
    pub fn retain_readable(&mut self, readable: Option<&KeySet>) {
        if let Some(readable) = readable {
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

    /// Whether [`Store::scan`](super::Store::scan) has nothing to add.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_full = self.keys.len() >= KEYS_PER_PAGE_MAX || self.bytes >= BYTES_PER_PAGE_MAX;
        let is_long = self.slots >= SLOTS_PER_PAGE_MAX || self.steps >= STEPS_PER_PAGE_MAX;
        self.next.is_none() || self.is_too_expensive || is_full || is_long
    }

    /// Returns the reply of a complete page.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        if self.is_too_expensive && self.slots == 0 {
            return Reply::Error(ErrorReply::QuotaExceeded);
        }
        let token = self.next.map(|slot| Bytes::copy_from_slice(&slot.to_be_bytes()));
        Reply::Keys { keys: self.keys, token }
    }
}

/// Whether an entry matches; vacant slots and keys that are not UTF-8 do not. Returns `None` if the steps do not suffice.
fn matches(pattern: &Pattern, entry: &Entry, steps: &mut usize) -> Option<bool> {
    *steps = steps.checked_sub((entry.key().len() / BYTES_PER_STEP).saturating_add(1))?;
    match std::str::from_utf8(entry.key()) {
        Ok(key) if !key.is_empty() => pattern.matches_within(key, steps),
        Ok(_) | Err(_) => Some(false),
    }
}
