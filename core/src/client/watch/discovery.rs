//! How the keys of a watch of a prefix are found (pure).

use crate::protocol::{Key, KeyPrefix};

/// What the store notifies this client of, by KEYNOTIFY.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Registration {
    Key(Key),
    /// All keys with a prefix.
    Prefix(KeyPrefix),
}

impl Registration {
    /// Whether the store notifies of this key.
    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => prefix.contains(key),
        }
    }
}

/// How the keys with a prefix are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// The store notifies of all of them: they are to be listed once, for those that exist.
    Notified,
    /// The store watches single keys: they are to be listed again and again.
    Listed,
    /// There are more than the watch may have. It reports no further ones.
    TooMany,
}

/// The state of a watch of a prefix, besides that of its keys.
#[derive(Debug)]
pub(super) struct PrefixState {
    pub(super) prefix: KeyPrefix,
    pub(super) keys_max: usize,
    /// None until this connection has an answer to its registration.
    pub(super) discovery: Option<Discovery>,
    /// Whether `discovery` has not been polled.
    pub(super) is_new: bool,
    /// Whether there was a listing. A key that is found later is a change.
    pub(super) is_listed: bool,
    /// The number of deletions since deleted keys were forgotten.
    pub(super) deletions: usize,
}

impl PrefixState {
    pub(super) fn registration(&self) -> Registration {
        Registration::Prefix(self.prefix.clone())
    }

    pub(super) fn set(&mut self, discovery: Discovery) {
        (self.discovery, self.is_new) = (Some(discovery), true);
    }
}
