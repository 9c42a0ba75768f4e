//! State of enhanced authentication on one connection.

use crate::net::Secret;

/// Enhanced authentication with the possibility to re-authenticate (MQTT 5, 4.12.1).
#[derive(Debug)]
pub(super) struct Authentication {
    /// The method of the CONNECT; every AUTH must have the same.
    pub(super) method: String,
    pub(super) reauthentication: Reauthentication,
}

/// A re-authentication that the client has started.
#[derive(Debug)]
pub(super) enum Reauthentication {
    None,
    /// The client has sent an AUTH, with or without data.
    Requested(Option<Secret>),
    /// The data is being checked.
    Checking,
}

impl Authentication {
    pub(super) fn new(method: String) -> Self {
        Self { method, reauthentication: Reauthentication::None }
    }
}
