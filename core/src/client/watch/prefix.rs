//! The keys of a watch that are all those with a prefix (pure).

use std::collections::HashSet;

use super::discovery::{Discovery, PrefixState, Registration};
use super::{Change, State, UNLISTED_MAX, Watch, WatchAction, Watched};
use crate::clock::Reading;
use crate::protocol::{Key, KeyPrefix, Notification};

/// The least number of deletions after which deleted keys are forgotten.
const DELETIONS_MIN: usize = 16;

impl Watch {
    /// Returns a watch of at most `keys_max` keys with a prefix. The first listing has those whose values are the initial ones.
    #[must_use]
    pub fn of_prefix(prefix: KeyPrefix, keys_max: usize) -> Self {
        let (discovery, is_new, is_listed, deletions) = (None, false, false, 0);
        let prefix = PrefixState { prefix, keys_max, discovery, is_new, is_listed, deletions };
        Self { prefix: Some(Box::new(prefix)), ..Self::new([]) }
    }

    fn discovery(&self) -> Option<Discovery> {
        self.prefix.as_ref()?.discovery
    }

    /// Whether the store notifies of all keys with the prefix.
    pub(super) fn is_notified(&self) -> bool {
        self.discovery().is_some_and(|discovery| discovery != Discovery::Listed)
    }

    /// Returns how keys are found, once after each answer to a registration of the prefix.
    pub fn poll_discovery(&mut self) -> Option<Discovery> {
        let prefix = self.prefix.as_mut()?;
        if std::mem::take(&mut prefix.is_new) { prefix.discovery } else { None }
    }

    /// Whether a notification of this key is for the watch.
    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        let has_prefix = || self.prefix.as_ref().is_some_and(|prefix| prefix.prefix.contains(key));
        self.contains(key) || (self.is_notified() && has_prefix())
    }

    /// Returns what the store notifies of for this watch.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        match &self.prefix {
            Some(prefix) if prefix.discovery != Some(Discovery::Listed) => vec![prefix.registration()],
            _ => self.order.iter().cloned().map(Registration::Key).collect(),
        }
    }

    /// Whether the watch needs a registration.
    #[must_use]
    pub fn needs(&self, registration: &Registration) -> bool {
        match registration {
            Registration::Key(key) => self.contains(key) && !self.is_notified(),
            prefix => self.prefix.as_ref().is_some_and(|own| own.registration() == *prefix),
        }
    }

    /// Handles that the store notifies of all keys with the prefix.
    pub fn handle_prefix_registered(&mut self, now: Reading) {
        let Some(prefix) = &mut self.prefix else { return };
        prefix.set(Discovery::Notified);
        self.report_gap(now);
        for key in &self.order {
            if let Some(watched) =
                self.keys.get_mut(key).filter(|watched| watched.state == State::Unregistered)
            {
                watched.state = State::Unread;
                self.actions.push_back(WatchAction::Read(key.clone()));
            }
        }
    }

    /// Handles that the store watches single keys only.
    pub fn handle_prefix_refused(&mut self, now: Reading) {
        let Some(prefix) = &mut self.prefix else { return };
        prefix.set(Discovery::Listed);
        if self.keys.is_empty() {
            // No value will be read that the gap could precede.
            self.report_gap(now);
        }
        self.register_keys();
    }

    /// Handles a list of the keys with the prefix, each once. Returns the keys that are no longer watched: they were deleted
    /// long ago, and the owner is to stop their notifications.
    pub fn handle_listing(&mut self, listing: Vec<Key>) -> Vec<Key> {
        let Some(prefix) = &mut self.prefix else { return Vec::new() };
        let (is_late, discovery) = (std::mem::replace(&mut prefix.is_listed, true), prefix.discovery);
        let removed =
            if self.is_notified() { Vec::new() } else { self.forget_unlisted(&listing.iter().collect()) };
        for key in listing {
            if self.contains(&key) {
                continue;
            }
            let (state, action) = match discovery {
                None => (State::Unregistered, None),
                Some(Discovery::Listed) => {
                    (State::Unregistered, Some(WatchAction::Register(Registration::Key(key.clone()))))
                }
                Some(_) => (State::Unread, Some(WatchAction::Read(key.clone()))),
            };
            self.actions.extend(action);
            self.add(key, Watched { state, is_late, ..Watched::default() });
        }
        removed
    }

    /// Removes keys that have been deleted, and missing in many listings.
    fn forget_unlisted(&mut self, listed: &HashSet<&Key>) -> Vec<Key> {
        let mut removed = Vec::new();
        self.keys.retain(|key, watched| {
            watched.unlisted = match listed.contains(key) {
                true => 0,
                false => watched.unlisted.saturating_add(1),
            };
            let remains = !watched.is_gone() || watched.unlisted < UNLISTED_MAX;
            if !remains {
                removed.push(key.clone());
            }
            remains
        });
        self.forget_order(!removed.is_empty());
        removed
    }

    /// Handles the change of a key that no listing has found. A deletion is not reported, because its value was not either.
    pub(super) fn handle_found(&mut self, key: &Key, change: Change) {
        let Some(prefix) = self.prefix.as_ref().filter(|_| change.notification != Notification::Delete)
        else {
            return;
        };
        let keys_max = prefix.keys_max;
        if self.keys.len() >= keys_max {
            self.forget_deleted();
        }
        if self.keys.len() < keys_max {
            self.add(key.clone(), Watched { state: State::Live, ..Watched::default() });
            self.report(key, change);
        } else if let Some(prefix) = &mut self.prefix {
            prefix.set(Discovery::TooMany);
        }
    }

    /// Counts a deletion that was reported.
    pub(super) fn count_deletion(&mut self) {
        let counted = self.prefix.iter_mut();
        counted.for_each(|prefix| prefix.deletions = prefix.deletions.saturating_add(1));
    }

    /// Forgets deleted keys if there may be many among the others, so that this costs little for each of them.
    pub(super) fn forget_many_deleted(&mut self) {
        let deletions_max = (self.keys.len() / 2).max(DELETIONS_MIN);
        if self.is_notified() && self.prefix.as_ref().is_some_and(|prefix| prefix.deletions > deletions_max) {
            self.forget_deleted();
        }
    }

    fn forget_deleted(&mut self) {
        let before = self.keys.len();
        self.keys.retain(|_, watched| !watched.is_gone());
        self.forget_order(self.keys.len() < before);
        self.prefix.iter_mut().for_each(|prefix| prefix.deletions = 0);
    }

    fn forget_order(&mut self, has_removed: bool) {
        if has_removed {
            let keys = &self.keys;
            self.order.retain(|key| keys.contains_key(key));
        }
    }

    /// Handles that the connection was lost. Returns whether changes may be missed from now on.
    pub(super) fn handle_prefix_lost(&mut self) -> bool {
        let Some(prefix) = &mut self.prefix else { return false };
        let was_notified = prefix.is_listed && prefix.discovery == Some(Discovery::Notified);
        (prefix.discovery, prefix.is_new) = (None, false);
        was_notified
    }
}

#[cfg(test)]
mod tests;
