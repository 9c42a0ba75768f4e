//! What a response carries beside its payload (pure).

use crate::client::error::{Error, Outcome};
use crate::protocol::Timestamp;
use crate::protocol::message::{self, Message};

/// What is wrong with it.
pub(super) enum Trouble {
    Malformed(String),
    Ahead(u64),
}

/// The version that came with a response, if any; one that is too far ahead only where any is taken (protocol §2).
pub(super) fn version(
    message: &Message,
    wall_ms: u64,
    takes_any: bool,
) -> Result<Option<Timestamp>, Trouble> {
    let malformed = |cause: String| Err(Trouble::Malformed(cause));
    match message.user_property(message::STATUS) {
        None | Some(message::STATUS_OK) => {}
        Some(status) => return malformed(format!("its status is {}", status.escape_debug())),
    }
    match message.user_property(message::PROTOCOL_VERSION) {
        Some(version) if version != "1" && !version.starts_with("1.") => {
            return malformed(format!("its protocol version is {}", version.escape_debug()));
        }
        _ => {}
    }
    let Some(text) = message.user_property(message::TIMESTAMP) else {
        return Ok(None);
    };
    let version: Timestamp = match text.parse() {
        Ok(version) => version,
        Err(error) => return malformed(format!("its version is {}: {error}", text.escape_debug())),
    };
    if version.is_too_far_ahead(wall_ms) && !takes_any {
        return Err(Trouble::Ahead(version.ms.saturating_sub(wall_ms)));
    }
    Ok(Some(version))
}

impl Trouble {
    /// The error of the request, of which this much is known.
    pub(super) fn into_error(self, outcome: Outcome) -> Error {
        match self {
            Self::Malformed(cause) => Error::MalformedReply { cause, outcome },
            Self::Ahead(ahead_ms) => Error::ClockSkew { ahead_ms, outcome },
        }
    }
}
