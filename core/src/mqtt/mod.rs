//! MQTT packets for a broker: one decoder that validates while it decodes, one encoder, both protocol versions (pure).

pub mod decode;
pub mod encode;
pub mod error;
pub mod filter;
mod header;
pub mod packet;
mod property;
mod reader;
pub mod reason;
pub mod version;
mod writer;

#[cfg(test)]
mod generators;
#[cfg(test)]
mod oracle;

pub use decode::Decoded;
pub use error::DecodeError;
pub use packet::Incoming;
pub use reason::ReasonCode;
pub use version::ProtocolVersion;
