//! Rejection of a CONNECT.

use crate::mqtt::{DecodeError, ProtocolVersion, ReasonCode};

/// Rejection of a CONNECT with a CONNACK.
#[derive(Debug)]
pub struct ConnectError {
    pub reason: ReasonCode,
    pub text: String,
    /// Protocol version of the CONNACK.
    pub version: ProtocolVersion,
}

impl From<DecodeError> for ConnectError {
    fn from(error: DecodeError) -> Self {
        Self { reason: error.reason, text: error.text.into_owned(), version: error.version }
    }
}
