//! Wire format of the state store: frames, requests, replies, notifications, timestamps, topics. One type
//! encodes and decodes each of them; no I/O.

pub mod connection;
mod decimal;
pub mod details;
pub mod encoded_value;
pub mod error_reply;
pub mod exchange;
pub mod frame;
pub mod key;
pub mod key_prefix;
pub mod message;
pub mod notification;
pub mod reply;
pub mod request;
pub mod response_properties;
pub mod timestamp;
pub mod topic;
pub mod user_properties;

#[cfg(test)]
mod strategies;
#[cfg(test)]
pub(crate) mod vectors;

pub use connection::ConnectionId;
pub use details::Details;
pub use encoded_value::EncodedValue;
pub use error_reply::ErrorReply;
pub use key::{Key, Value};
pub use key_prefix::{KeyPrefix, prefix_pattern};
pub use message::Message;
pub use notification::Notification;
pub use reply::Reply;
pub use request::{Condition, Request};
pub use response_properties::ResponseProperties;
pub use timestamp::Timestamp;
pub use user_properties::UserProperties;
