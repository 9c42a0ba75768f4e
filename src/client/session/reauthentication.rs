//! Newer tokens within a connection: one at a time, and of those that come meanwhile only the newest (pure).

use super::Secret;

/// What is under way.
///
/// Contract: a token that a `handle_*` returns goes out at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Reauthentication {
    /// The broker knows the newest token.
    #[default]
    None,
    /// A token is out.
    Sent {
        /// What has come since.
        next: Option<Secret>,
    },
}

impl Reauthentication {
    /// There is a newer token.
    pub(super) fn handle_token(&mut self, token: Secret) -> Option<Secret> {
        match self {
            Self::None => {
                *self = Self::Sent { next: None };
                Some(token)
            }
            Self::Sent { next } => {
                *next = Some(token);
                None
            }
        }
    }

    /// The token that is out is taken, or nothing will be heard of it.
    pub(super) fn handle_end(&mut self) -> Option<Secret> {
        match std::mem::take(self) {
            Self::Sent { next: Some(token) } => self.handle_token(token),
            _ => None,
        }
    }

    /// Whether a token is out.
    pub(super) fn is_under_way(&self) -> bool {
        *self != Self::None
    }
}
