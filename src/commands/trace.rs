//! The types of trace events, for `render`.

pub use crate::client::ReasonCode;
pub use crate::client::trace::{ConnectPacket, Packet, Property, TraceEvent};
