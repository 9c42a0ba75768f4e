//! The MQTT properties of a response (pure).

use crate::client::error::{Error, Outcome};
use crate::protocol::Timestamp;
use crate::protocol::message::{self, Message};

/// The cause of an invalid response.
pub(super) enum InvalidResponse {
    Malformed(String),
    /// The version is this number of milliseconds ahead of the local clock.
    Ahead(u64),
}

/// What the user properties of a response state.
pub(super) struct Properties {
    pub(super) version: Option<Timestamp>,
    pub(super) has_status: bool,
}

/// Returns what the user properties of a response state. A version that is too far ahead is an error (protocol §2), unless
/// `accepts_any` is set.
pub(super) fn properties(
    message: &Message,
    wall_ms: u64,
    accepts_any: bool,
) -> Result<Properties, InvalidResponse> {
    let malformed = |cause: String| Err(InvalidResponse::Malformed(cause));
    let status = message.user_property(message::STATUS);
    match status {
        None | Some(message::STATUS_OK) => {}
        Some(status) => return malformed(format!("status {}", status.escape_debug())),
    }
    match message.user_property(message::PROTOCOL_VERSION) {
        Some(version) if version != "1" && !version.starts_with("1.") => {
            return malformed(format!("protocol version {}", version.escape_debug()));
        }
        _ => {}
    }
    let has_status = status.is_some();
    let Some(text) = message.user_property(message::TIMESTAMP) else {
        return Ok(Properties { version: None, has_status });
    };
    let version: Timestamp = match text.parse() {
        Ok(version) => version,
        Err(error) => return malformed(format!("version {}: {error}", text.escape_debug())),
    };
    if version.is_too_far_ahead(wall_ms) && !accepts_any {
        return Err(InvalidResponse::Ahead(version.ms.saturating_sub(wall_ms)));
    }
    Ok(Properties { version: Some(version), has_status })
}

impl InvalidResponse {
    pub(super) fn into_error(self, outcome: Outcome) -> Error {
        match self {
            Self::Malformed(cause) => Error::MalformedReply { cause, outcome },
            Self::Ahead(ahead_ms) => Error::ClockSkew { ahead_ms, outcome },
        }
    }
}
