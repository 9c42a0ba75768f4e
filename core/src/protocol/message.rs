//! An MQTT message with its properties, in a form that depends on no MQTT crate.

use std::borrow::Cow;

use bytes::Bytes;

use super::user_properties::UserProperties;

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
/// User property: `true` on a SET makes the key persistent (protocol §7).
pub const PERSIST: &str = "aio-persistence";
/// User property: `true` on a request asks a store of mqkv for the next ones; others ignore it (docs/protocol.md).
pub const DETAILS: &str = "mqkv-details";
/// User property: the milliseconds until a key expires, or `none`.
pub const TIME_TO_LIVE: &str = "mqkv-ttl";
/// User property: the fencing token that protects a key.
pub const KEY_FENCE: &str = "mqkv-fence";
/// User property: `true` on a KEYNOTIFY with a pattern asks a store of mqkv to watch all keys with a prefix. It is on the response
/// if the store does; others watch the key of this name (docs/protocol.md).
pub const PREFIX: &str = "mqkv-prefix";
/// User property: `true` on the response to a SCAN whose pattern matches more than the client may read, whatever keys there are.
pub const LIMITED: &str = "mqkv-limited";
/// User property: `true` on the response to a write at a leaf of an exchange that is not linked: the change waits for the root.
pub const PENDING: &str = "mqkv-pending";

/// The only value of [`STATUS`], also with an error reply.
pub const STATUS_OK: &str = "200";
/// The protocol version of client and store.
pub const PROTOCOL_VERSION_1: &str = "1.0";
/// The content type of requests and responses.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// The longest topic, response topic or user property in bytes (MQTT 5, 1.5.4).
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// A content type. Most of them are [`CONTENT_TYPE`], for which no memory is allocated.
pub type ContentType = Cow<'static, str>;

/// Quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// QoS 0: at most once.
    AtMostOnce = 0,
    /// QoS 1: at least once. The state store uses no other.
    #[default]
    AtLeastOnce = 1,
    /// QoS 2: exactly once.
    ExactlyOnce = 2,
}

/// An application message with its properties.
///
/// User properties are forwarded unchanged and in order (MQTT 5, 3.3.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The topic name: without wildcards, at most [`TOPIC_BYTES_MAX`] bytes. Most of those that a broker receives are
    /// [`REQUEST`](super::topic::REQUEST), for which no memory is allocated.
    pub topic: Cow<'static, str>,
    pub payload: Bytes,
    pub qos: Qos,
    pub retain: bool,
    /// The response topic of a request.
    pub response_topic: Option<String>,
    /// The correlation data, which a response repeats byte for byte.
    pub correlation: Option<Bytes>,
    pub content_type: Option<ContentType>,
    /// Message expiry interval in seconds.
    pub expiry_s: Option<u32>,
    /// Payload format indicator: 0 for bytes, 1 for UTF-8 (MQTT 5, 3.3.2.3.2).
    pub payload_format: Option<u8>,
    pub user_properties: UserProperties,
}

impl Message {
    /// Returns the value of the first user property with this name.
    #[must_use]
    pub fn user_property(&self, name: &str) -> Option<&str> {
        self.user_properties.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_properties_are_as_on_the_wire() {
        let requests = ["__srcId", "__ts", "__protVer", "$partition", "$high_priority"];
        assert_eq!([SOURCE, TIMESTAMP, PROTOCOL_VERSION, PARTITION, HIGH_PRIORITY], requests);
        assert_eq!([FENCE, PERSIST, STATUS], ["__ft", "aio-persistence", "__stat"]);
        assert_eq!([DETAILS, TIME_TO_LIVE, KEY_FENCE], ["mqkv-details", "mqkv-ttl", "mqkv-fence"]);
        assert_eq!([LIMITED, PREFIX], ["mqkv-limited", "mqkv-prefix"]);
        assert_eq!([STATUS_OK, PROTOCOL_VERSION_1], ["200", "1.0"]);
        assert_eq!(CONTENT_TYPE, "application/octet-stream");
    }

    #[test]
    fn the_first_of_repeated_properties_counts_and_names_are_case_sensitive() {
        let user_properties = [("__TS", "0"), ("__ts", "1"), ("__ts", "2")].into_iter().collect();
        let message = Message { user_properties, ..Message::default() };
        assert_eq!(message.user_property(TIMESTAMP), Some("1"));
        assert_eq!(message.user_property(FENCE), None);
    }
}
