//! Walks through the keys in bounded steps, between which other requests are handled.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::deadlines::Slot;
use super::entries::Entries;
use super::entry::Entry;
use super::glob::{InvalidPattern, Pattern};

/// The most slots that one walk for an operator looks at.
pub(super) const SLOTS_PER_WALK_MAX: usize = 256 * 1024;
/// The most steps of one walk.
const STEPS_PER_WALK_MAX: usize = 16 * 1024 * 1024;
/// The most slots that one call looks at, because other requests wait meanwhile.
pub(super) const SLOTS_PER_CALL_MAX: usize = 1_024;
/// The most steps of one call, for the same reason: some tens of microseconds.
const STEPS_PER_CALL_MAX: usize = 32 * 1024;
/// The most steps for a single key, which one call takes at once: enough for the longest key and the longest pattern
/// without character classes, also if each byte of the key is matched as a character of three bytes.
const STEPS_PER_KEY_MAX: usize = 384 * 1024;
/// The bytes of a key that are checked to be UTF-8 in one step.
const BYTES_PER_STEP: usize = 16;

/// A walk through the keys, in the order of their slots. A key that exists throughout is visited exactly once.
///
/// It ends after a bounded number of slots and steps; another walk goes on at [`KeyWalk::next_slot`].
#[derive(Debug)]
pub struct KeyWalk {
    /// `None` matches every key.
    pattern: Option<Pattern>,
    /// The next slot to look at; `None` at the end.
    next: Option<Slot>,
    slots: usize,
    slots_max: usize,
    steps: usize,
    is_too_expensive: bool,
}

impl KeyWalk {
    /// Begins a walk for an operator at a slot, 0 at first. A filter with `*`, `?` or `[` is a pattern as for SCAN; any
    /// other matches the keys that contain it. Bytes that are not UTF-8 are matched as U+FFFD.
    ///
    /// # Errors
    /// The filter is not a valid pattern.
    pub fn new(filter: &str, from: u32) -> Result<Self, InvalidPattern> {
        let pattern = match filter {
            "" => None,
            pattern if pattern.contains(['*', '?', '[']) => Some(Pattern::parse(pattern)?),
            text => Some(Pattern::parse(&format!("*{text}*"))?),
        };
        Ok(Self::of(pattern, from, SLOTS_PER_WALK_MAX))
    }

    pub(super) fn of(pattern: Option<Pattern>, from: Slot, slots_max: usize) -> Self {
        Self { pattern, next: Some(from), slots: 0, slots_max, steps: 0, is_too_expensive: false }
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// Looks at some more entries, from the first that has not been looked at, and calls `visit` for those that match.
    pub(super) fn advance(
        &mut self,
        entries: &Entries,
        mut visit: impl FnMut(Slot, &Entry) -> ControlFlow<()>,
    ) {
        let Some(first) = self.next else { return };
        let mut left = STEPS_PER_CALL_MAX;
        let mut is_over = false;
        for (seen, (slot, entry)) in entries.iter_from(first).enumerate() {
            self.next = Some(slot);
            if seen >= SLOTS_PER_CALL_MAX || is_over || self.is_complete() {
                return;
            }
            // The first key of a call gets more steps, so that each call looks at one at least.
            let steps_max = if seen == 0 { STEPS_PER_KEY_MAX } else { left };
            let mut steps = steps_max;
            let Some(is_match) = matches(self.pattern.as_ref(), entry, &mut steps) else {
                self.is_too_expensive = seen == 0;
                return;
            };
            let taken = steps_max.saturating_sub(steps);
            left = left.saturating_sub(taken);
            self.steps = self.steps.saturating_add(taken);
            self.slots = self.slots.saturating_add(1);
            is_over = is_match && visit(slot, entry).is_break();
        }
        self.next = None;
    }

    /// Whether the walk has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_long = self.slots >= self.slots_max || self.steps >= STEPS_PER_WALK_MAX;
        self.next.is_none() || self.is_too_expensive || is_long
    }

    /// Returns where the next walk goes on; `None` after the last key.
    #[must_use]
    pub fn next_slot(&self) -> Option<u32> {
        self.next
    }

    /// Returns the number of slots that the walk has looked at.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.slots
    }

    /// Whether the walk has ended at a key for which the pattern takes too many steps.
    #[must_use]
    pub fn is_too_expensive(&self) -> bool {
        self.is_too_expensive
    }
}

/// Whether an entry matches; vacant slots do not. Returns `None` if the steps do not suffice.
fn matches(pattern: Option<&Pattern>, entry: &Entry, steps: &mut usize) -> Option<bool> {
    let Some(pattern) = pattern else { return Some(!entry.key().is_empty()) };
    *steps = steps.checked_sub((entry.key().len() / BYTES_PER_STEP).saturating_add(1))?;
    // A listing without the keys that are not UTF-8 would make an incomplete backup that looks complete.
    let key = String::from_utf8_lossy(entry.key());
    if let Cow::Owned(_) = key {
        *steps = steps.checked_sub(entry.key().len())?;
    }
    if key.is_empty() { Some(false) } else { pattern.matches_within(&key, steps) }
}
