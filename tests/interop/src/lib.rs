//! What the tests with the official SDK stand on: brokers, a line that can be cut, guests and a store of the SDK's.
//!
//! A panic here is a failed test.

mod brokers;
mod guest;
mod line;
mod responder;

pub use brokers::{Mosquitto, Mqkv, add_user, run};
pub use guest::{Guest, come_in_vain, later, now, order, settings, within};
pub use line::Line;
pub use responder::Responder;
