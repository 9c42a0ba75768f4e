//! Events and errors of a session (pure).

use std::time::Instant;

use crate::client::error::{Error, ReasonCode};
use crate::client::request::Response;
use crate::protocol::Message;
use crate::protocol::message::Qos;

/// An event of a session.
#[derive(Debug)]
pub enum Event<T> {
    /// The end of a request, with the ticket of `Session::send`.
    Answer { ticket: T, result: Result<Response, Error> },
    /// The answer to a subscription, with the ticket of `Session::subscribe` and the granted QoS.
    Subscribed { ticket: T, result: Result<Qos, Error> },
    /// The end of a message, with the ticket of `Session::publish` and the reason code of the PUBACK, which is a success.
    Published { ticket: T, result: Result<ReasonCode, Error> },
    /// A received message that is not a response. In a box: nearly all events are answers, and smaller.
    Message(Box<Message>),
    /// The end of a re-authentication. Not confirmed: the broker has not answered in time.
    Authenticated { is_confirmed: bool },
    /// The broker has not answered the packets that were sent before its CONNACK. They are sent again.
    EarlyPacketsDropped,
}

/// The broker has sent nothing for one and a half keep-alives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveTimeout {
    /// The time of its last packet.
    pub since: Instant,
}
