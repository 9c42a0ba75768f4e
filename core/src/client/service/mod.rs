//! MQTT session of a service: requests in, responses out with QoS 1, through losses of the connection.

mod connection;
mod driver;
mod node;
mod session;
mod window;

pub use connection::{ServiceConnection, ServiceSettings};
pub use node::{ServiceConnected, ServiceNode};

#[cfg(test)]
mod tests;
