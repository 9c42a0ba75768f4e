//! State of enhanced authentication in a session.

use crate::net::Secret;

/// Enhanced authentication in a session (MQTT 5, 4.12.1).
#[derive(Debug)]
pub(super) struct Authentication {
    /// That of the CONNECT; there is no other one from then on.
    pub(super) method: String,
    pub(super) again: Again,
}

#[derive(Debug)]
pub(super) enum Again {
    /// Nothing is asked.
    No,
    /// A token has come; none if it was left out.
    Asked(Option<Secret>),
    /// A token is being checked.
    Checking,
}

impl Authentication {
    pub(super) fn new(method: String) -> Self {
        Self { method, again: Again::No }
    }
}
