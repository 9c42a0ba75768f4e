//! Refusals of operator requests: one table of their texts for both directions.

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The store takes no part in an exchange.
    NoExchange,
    /// The payload is no request of this version.
    UnknownCommand,
    /// A leaf has no leaves.
    RootOnly,
    /// The root has no other root.
    LeafOnly,
    /// The text is no name of a leaf.
    InvalidName,
    TooManyLeaves,
    /// The client may not read the key.
    NotReadable,
    /// The change could not be committed.
    NotPersisted,
    /// A text of another version, one line.
    Other(String),
}

/// The texts of the refusals, behind `-ERR `.
pub(super) const REFUSALS: [(Refusal, &str); 8] = [
    (Refusal::NoExchange, "this store takes no part in an exchange"),
    (Refusal::UnknownCommand, "unknown command"),
    (Refusal::RootOnly, "only the root of the exchange has leaves"),
    (Refusal::LeafOnly, "only a leaf of the exchange has a root"),
    (Refusal::InvalidName, "a name has 1 to 64 of the characters a-z 0-9 . _ -"),
    (Refusal::TooManyLeaves, "the root has no room for another leaf"),
    (Refusal::NotReadable, "no permission to read the key"),
    (Refusal::NotPersisted, "the change could not be persisted"),
];

impl Refusal {
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Other(text) => text,
            known => REFUSALS.iter().find(|(refusal, _)| refusal == known).map_or("", |(_, text)| text),
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Self {
        let known = REFUSALS.iter().find(|(_, known)| *known == text);
        known.map_or_else(|| Self::Other(text.to_owned()), |(refusal, _)| refusal.clone())
    }
}
