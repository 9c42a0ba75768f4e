//! The topics of the state store: requests, responses, notifications; keys as hex.

use super::key::Key;
use super::message::TOPIC_BYTES_MAX;

/// Where requests are published (protocol §1, TAIL).
pub const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// What the store's own topics begin with; no response topic may (protocol §1).
pub const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

const NOTIFY: &str = "/command/notify/";

/// Where our client expects its responses; the shape of the Rust SDK (protocol §0 row 9).
#[must_use]
pub fn response(client_id: &str) -> String {
    format!("clients/{client_id}/services/{REQUEST}/response")
}

/// Whether a request may not name this topic for its response: such a client is disconnected (protocol §1).
#[must_use]
pub fn is_reserved_for_response(topic: &str) -> bool {
    topic == REQUEST || topic.starts_with(RESERVED)
}

/// Where the watcher of a key is told of its changes; none if the topic would be longer than MQTT allows.
#[must_use]
pub fn notify(client_id: &str, key: &Key) -> Option<String> {
    let client_id = hex::encode_upper(client_id);
    let key = hex::encode_upper(key.as_bytes());
    let topic = [RESERVED, "/", &client_id, NOTIFY, &key].concat();
    (topic.len() <= TOPIC_BYTES_MAX).then_some(topic)
}

/// The subscription to all notifications of a client.
#[must_use]
pub fn notify_filter(client_id: &str) -> String {
    format!("{RESERVED}/{}{NOTIFY}#", hex::encode_upper(client_id))
}

/// What a topic of the state store is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Requests to the store.
    Request,
    /// Responses; which client's, where the topic has a known shape.
    Response {
        /// The client id, as the topic spells it.
        client_id: String,
    },
    /// Changes of a key, told to a client.
    Notify {
        /// The client id's bytes.
        client_id: Vec<u8>,
        /// The key.
        key: Key,
    },
}

impl Topic {
    /// Reads a topic; hex in either case. None for a topic of anything else.
    #[must_use]
    pub fn parse(topic: &str) -> Option<Self> {
        if topic == REQUEST {
            return Some(Self::Request);
        }
        if let Some(rest) = topic.strip_prefix(RESERVED) {
            let (client_id, key) = rest.strip_prefix('/')?.split_once(NOTIFY)?;
            let key = Key::new(hex::decode(key).ok()?).ok()?;
            return Some(Self::Notify { client_id: hex::decode(client_id).ok()?, key });
        }
        let rest = topic.strip_prefix("clients/")?;
        let (client_id, tail) = rest.split_once('/')?;
        let tail = tail.strip_prefix("services/").unwrap_or(tail);
        let tail = tail.strip_suffix("/response").unwrap_or(tail);
        let known = tail == REQUEST || tail == "statestore/_any_/command/invoke";
        known.then(|| Self::Response { client_id: client_id.to_owned() })
    }
}
