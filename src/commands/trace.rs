//! What a trace tells, for those who show it.

pub use crate::client::ReasonCode;
pub use crate::client::trace::{ConnectPacket, Packet, Property, TraceEvent};
