//! The messages of the owner that the broker has not acknowledged (pure).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::client::error::Outcome;
use crate::protocol::message::{Message, Qos};

/// The messages of the owner that the broker has not acknowledged, by number.
#[derive(Debug)]
pub(super) struct Messages<T>(BTreeMap<u64, Unacknowledged<T>>);

#[derive(Debug)]
struct Unacknowledged<T> {
    /// None once it is sent.
    message: Option<Message>,
    ticket: T,
}

impl<T> Messages<T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, id: u64, topic: String, payload: Bytes, ticket: T) {
        let message = Message { topic: topic.into(), payload, qos: Qos::AtLeastOnce, ..Message::default() };
        self.0.insert(id, Unacknowledged { message: Some(message), ticket });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(id, _)| *id)
    }

    /// Returns a message to send, the first time that it is called for it.
    pub(super) fn take(&mut self, id: u64) -> Option<Message> {
        self.0.get_mut(&id)?.message.take()
    }

    /// Removes a message. Without a PUBACK its outcome is the returned one.
    pub(super) fn remove(&mut self, id: u64) -> Option<(T, Outcome)> {
        let Unacknowledged { message, ticket } = self.0.remove(&id)?;
        Some((ticket, if message.is_some() { Outcome::Unchanged } else { Outcome::Unknown }))
    }
}
