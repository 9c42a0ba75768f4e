//! State of a re-authentication: which token is sent, and which one next (pure).

use crate::net::secret::Secret;

/// State of the re-authentication: one token at a time; of the tokens that arrive meanwhile, only the newest is sent.
///
/// Contract: the owner sends a token that a `handle_*` returns at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::client) enum Reauthentication {
    #[default]
    None,
    /// A token was sent and is not answered; `next` is a newer one.
    Sent { next: Option<Secret> },
}

impl Reauthentication {
    /// Handles a new token. Returns the token to send now.
    pub(in crate::client) fn handle_token(&mut self, token: Secret) -> Option<Secret> {
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

    /// Handles the answer to the sent token, or its timeout. Returns the token to send now.
    pub(in crate::client) fn handle_end(&mut self) -> Option<Secret> {
        match std::mem::take(self) {
            Self::Sent { next: Some(token) } => self.handle_token(token),
            _ => None,
        }
    }

    /// Returns whether a token is not answered.
    pub(in crate::client) fn is_under_way(&self) -> bool {
        *self != Self::None
    }
}
