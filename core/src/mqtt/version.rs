//! Protocol versions of MQTT.

/// Version of MQTT that a connection uses. The client chooses it with its CONNECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolVersion {
    /// MQTT 5.
    #[default]
    V5,
    /// MQTT 3.1.1: no properties, and reason codes in CONNACK and SUBACK only.
    V311,
}
