//! The MQTT-neutral envelope of everything that is published: no type of an MQTT crate passes this point.

use std::borrow::Cow;

use bytes::Bytes;

/// User property: the hybrid logical clock of the sender, or the version of a value (protocol §1, §2).
pub const TIMESTAMP: &str = "__ts";
/// User property: the fencing token of a SET, DEL or VDEL (protocol §5).
pub const FENCE: &str = "__ft";
/// User property: the status of a response, always [`STATUS_OK`] (protocol §2).
pub const STATUS: &str = "__stat";
/// User property: the sender's client id; information only (protocol §1).
pub const SOURCE: &str = "__srcId";
/// User property: the version of the request and response protocol (protocol §0 row 13).
pub const PROTOCOL_VERSION: &str = "__protVer";
/// User property: the partition of a request, the client id (protocol §1).
pub const PARTITION: &str = "$partition";
/// User property: marks a request as urgent for the broker (protocol §1).
pub const HIGH_PRIORITY: &str = "$high_priority";
/// User property: `true` on a SET asks for the disk (protocol §7).
pub const PERSIST: &str = "aio-persistence";

/// The only value of [`STATUS`], also of a error_reply.
pub const STATUS_OK: &str = "200";
/// The protocol version that both sides send.
pub const PROTOCOL_VERSION_1: &str = "1.0";
/// The content type of requests and responses.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// The longest topic, response topic or user property in bytes (MQTT 5, 1.5.4).
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// A text that comes along with a message: most of them are known, and then nothing is allocated for them.
pub type PropertyText = Cow<'static, str>;

/// The name of a user property, if it is one of those above.
#[must_use]
pub fn known_name(name: &[u8]) -> Option<&'static str> {
    const NAMES: [&str; 8] =
        [SOURCE, TIMESTAMP, PROTOCOL_VERSION, PARTITION, HIGH_PRIORITY, FENCE, PERSIST, STATUS];
    NAMES.into_iter().find(|known| known.as_bytes() == name)
}

/// The value of a user property, or a content type, if it is one of those above.
#[must_use]
pub fn known_value(value: &[u8]) -> Option<&'static str> {
    const VALUES: [&str; 3] = [PROTOCOL_VERSION_1, CONTENT_TYPE, STATUS_OK];
    VALUES.into_iter().find(|known| known.as_bytes() == value)
}

/// How surely a message is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// QoS 0: at most once.
    AtMostOnce = 0,
    /// QoS 1: at least once. All of the state store's traffic.
    #[default]
    AtLeastOnce = 1,
    /// QoS 2: exactly once.
    ExactlyOnce = 2,
}

/// One published message: a topic, a payload, and the properties that travel with it.
///
/// Properties are forwarded in order and unchanged (MQTT 5, 3.3.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The topic name: no wildcards, at most [`TOPIC_BYTES_MAX`] bytes.
    pub topic: String,
    /// The payload as sent.
    pub payload: Bytes,
    /// The quality of service of the publish.
    pub qos: Qos,
    /// Whether the message is (to be) retained.
    pub retain: bool,
    /// Where an answer goes.
    pub response_topic: Option<String>,
    /// What an answer echoes, byte for byte.
    pub correlation: Option<Bytes>,
    /// What the payload is, as the sender says.
    pub content_type: Option<PropertyText>,
    /// Seconds after which the message must not be delivered any more.
    pub expiry_s: Option<u32>,
    /// 0: bytes, 1: UTF-8 (MQTT 5, 3.3.2.3.2).
    pub payload_format: Option<u8>,
    /// Name and value pairs; names may repeat.
    pub user_properties: Vec<(PropertyText, PropertyText)>,
}

impl Message {
    /// The value of the first user property with this name.
    #[must_use]
    pub fn user_property(&self, name: &str) -> Option<&str> {
        self.user_properties.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_properties_are_those_of_the_wire() {
        let requests = ["__srcId", "__ts", "__protVer", "$partition", "$high_priority"];
        assert_eq!([SOURCE, TIMESTAMP, PROTOCOL_VERSION, PARTITION, HIGH_PRIORITY], requests);
        assert_eq!([FENCE, PERSIST, STATUS], ["__ft", "aio-persistence", "__stat"]);
        assert_eq!([STATUS_OK, PROTOCOL_VERSION_1], ["200", "1.0"]);
        assert_eq!(CONTENT_TYPE, "application/octet-stream");
    }

    #[test]
    fn the_first_of_repeated_properties_counts_and_names_have_a_case() {
        let property = |name: &str, value: &str| (name.to_owned().into(), value.to_owned().into());
        let message = Message {
            user_properties: vec![property("__TS", "0"), property("__ts", "1"), property("__ts", "2")],
            ..Message::default()
        };
        assert_eq!(message.user_property(TIMESTAMP), Some("1"));
        assert_eq!(message.user_property(FENCE), None);
    }
}
