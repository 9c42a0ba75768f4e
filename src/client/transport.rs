//! The only file that names the MQTT crate on this side.
