//! Rejection of a CONNECT.

use super::login::TOO_MANY_CONNECTIONS;
use crate::mqtt::{DecodeError, ProtocolVersion, ReasonCode};

/// Rejection of a CONNECT with a CONNACK.
#[derive(Debug)]
pub struct ConnectError {
    pub reason: ReasonCode,
    pub text: String,
    /// Protocol version of the CONNACK.
    pub version: ProtocolVersion,
}

impl ConnectError {
    /// Returns the rejection of a connection over the limit.
    pub fn too_many(version: ProtocolVersion) -> Self {
        Self { reason: ReasonCode::QuotaExceeded, text: TOO_MANY_CONNECTIONS.to_owned(), version }
    }
}

impl From<DecodeError> for ConnectError {
    fn from(error: DecodeError) -> Self {
        Self { reason: error.reason, text: error.text.into_owned(), version: error.version }
    }
}
