//! Responses and their MQTT properties (pure).

use std::sync::Arc;

use bytes::Bytes;

use super::Session;
use crate::client::error::{Error, Outcome};
use crate::client::outgoing_request::Requester;
use crate::client::request::Response;
use crate::clock::Reading;
use crate::mqtt::decode;
use crate::protocol::message::{self, Message};
use crate::protocol::reply::DONE;
use crate::protocol::{Details, ResponseProperties, Timestamp};

impl<T> Session<T> {
    /// Returns what all requests of the session have in common.
    pub fn requester(&self) -> Arc<Requester> {
        Arc::clone(&self.requester)
    }

    /// Handles a PUBLISH with a response that was not decoded as a message.
    pub fn handle_received_response(&mut self, received: &decode::BorrowedResponse<'_>, now: Reading) {
        self.handle_received(now);
        self.unsent_pubacks.push_back(received.packet_id);
        let decode::BorrowedResponse { correlation, properties, payload, .. } = *received;
        let payload = match payload {
            // Of most responses to writes, of which no copy is made.
            DONE => Bytes::from_static(DONE),
            other => Bytes::copy_from_slice(other),
        };
        self.handle_response(correlation, properties, &payload, now);
    }

    /// Handles a response that was decoded as a message.
    pub(super) fn handle_response_message(&mut self, message: &Message, now: Reading) {
        let correlation = message.correlation.as_deref().unwrap_or_default();
        self.handle_response(correlation, ResponseProperties::of(message), &message.payload, now);
    }

    fn handle_response(
        &mut self,
        correlation: &[u8],
        user_properties: ResponseProperties<'_>,
        payload: &Bytes,
        now: Reading,
    ) {
        let Some((id, pending)) =
            self.request_id(correlation).and_then(|id| Some((id, self.requests.get(&id)?)))
        else {
            return; // A late response, a duplicate, or a response to another session.
        };
        let accepts_any = pending.request.properties.as_ref().is_some_and(|own| own.timestamp.is_some());
        match properties(user_properties, now.wall_ms, accepts_any) {
            Ok(ParsedProperties { version, has_status, details, is_limited, is_pending, is_prefix }) => {
                if let Some(version) =
                    version.as_ref().filter(|version| !version.is_too_far_ahead(now.wall_ms))
                {
                    self.clock.advance_past(version, now.wall_ms);
                }
                let denial = self.denial(id, payload);
                let payload = payload.clone();
                self.answer(id, |_, _| {
                    Ok(Response {
                        payload,
                        version,
                        has_status,
                        denial,
                        details,
                        is_limited,
                        is_pending,
                        is_prefix,
                    })
                });
            }
            Err(error) => self.fail(id, |_, outcome| error.into_error(outcome)),
        }
    }

    fn request_id(&self, correlation: &[u8]) -> Option<u64> {
        let (prefix, id) = correlation.split_first_chunk::<8>()?;
        let id = u64::from_be_bytes(id.try_into().ok()?);
        (u64::from_be_bytes(*prefix) == self.config.prefix).then_some(id)
    }
}

/// The cause of an invalid response.
enum InvalidResponse {
    Malformed(String),
    /// The version is this number of milliseconds ahead of the local clock.
    Ahead(u64),
}

/// What the user properties of a response state.
struct ParsedProperties {
    version: Option<Timestamp>,
    has_status: bool,
    details: Option<Box<Details>>,
    is_limited: bool,
    is_pending: bool,
    is_prefix: bool,
}

/// Returns what the user properties of a response state. A version that is too far ahead is an error (protocol §2), unless
/// `accepts_any` is set.
fn properties(
    user_properties: ResponseProperties<'_>,
    wall_ms: u64,
    accepts_any: bool,
) -> Result<ParsedProperties, InvalidResponse> {
    let ResponseProperties {
        status,
        protocol_version,
        timestamp,
        time_to_live,
        key_fence,
        limited,
        pending,
        prefix,
    } = user_properties;
    let malformed = |cause: String| Err(InvalidResponse::Malformed(cause));
    match status {
        None | Some(message::STATUS_OK) => {}
        Some(status) => return malformed(format!("status {}", status.escape_debug())),
    }
    match protocol_version {
        Some(version) if version != "1" && !version.starts_with("1.") => {
            return malformed(format!("protocol version {}", version.escape_debug()));
        }
        _ => {}
    }
    let has_status = status.is_some();
    let [is_limited, is_pending, is_prefix] = [limited, pending, prefix].map(|flag| flag == Some("true"));
    let details = match Details::parse(time_to_live, key_fence) {
        Ok(details) => details.map(Box::new),
        Err(name) => return malformed(format!("malformed {name}")),
    };
    let parsed =
        |version| ParsedProperties { version, has_status, details, is_limited, is_pending, is_prefix };
    let Some(text) = timestamp else { return Ok(parsed(None)) };
    let version: Timestamp = match text.parse() {
        Ok(version) => version,
        Err(error) => return malformed(format!("version {}: {error}", text.escape_debug())),
    };
    if version.is_too_far_ahead(wall_ms) && !accepts_any {
        return Err(InvalidResponse::Ahead(version.ms.saturating_sub(wall_ms)));
    }
    Ok(parsed(Some(version)))
}

impl InvalidResponse {
    fn into_error(self, outcome: Outcome) -> Error {
        match self {
            Self::Malformed(cause) => Error::MalformedReply { cause, outcome },
            Self::Ahead(ahead_ms) => Error::ClockSkew { ahead_ms, outcome },
        }
    }
}
