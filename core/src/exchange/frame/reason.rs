//! Reasons why changes lose.

/// The reason why a change lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The root has changed the key (rule 1).
    RootWins,
    /// Another change of a leaf was committed first (rule 3).
    FirstLeafWins,
    /// The rules do not let this leaf change the key.
    Forbidden,
    /// The root does not know the base: the record is purged, or the root or the leaf was restored.
    UnknownBase,
    /// Both had the key when the leaf joined.
    Joined,
    /// The root was restored from a backup.
    Restored,
}

impl Reason {
    pub const ALL: [Self; 6] = [
        Self::RootWins,
        Self::FirstLeafWins,
        Self::Forbidden,
        Self::UnknownBase,
        Self::Joined,
        Self::Restored,
    ];

    pub(in super::super) fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str().as_bytes() == text)
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RootWins => "root-wins",
            Self::FirstLeafWins => "first-leaf-wins",
            Self::Forbidden => "forbidden",
            Self::UnknownBase => "unknown-base",
            Self::Joined => "joined",
            Self::Restored => "restored",
        }
    }

    /// Returns the reason in words, for events.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::RootWins => "the root has changed the key",
            Self::FirstLeafWins => "another leaf has changed the key before",
            Self::Forbidden => "the rules do not let this leaf change the key",
            Self::UnknownBase => "the root does not know the version that it replaces",
            Self::Joined => "the leaf and the root had the key when the leaf joined",
            Self::Restored => "the root was restored from a backup",
        }
    }
}
