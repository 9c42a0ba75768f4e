//! Published messages until their PUBACK (pure).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::protocol::Message;

/// The packet ids of messages are 1 to this. The others are for subscriptions.
pub(super) const MESSAGE_PACKET_IDS: u16 = 60_000;

/// The memory of the messages at which none is added any more.
pub(super) const WINDOW_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The memory of a message beside its topic, payload and properties, about.
pub(super) const MESSAGE_BYTES: usize = 256;
/// The losses of the connection in a row after which the first message is dropped.
const LOSSES_MAX: u8 = 3;

/// Messages to publish with QoS 1, in order, until their PUBACK.
///
/// Packet ids are assigned in turn, so the position of a message follows from its packet id. They stay the same when a
/// message is sent again, also in a new session: there all are unused.
#[derive(Debug)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// The memory of the messages, about.
    bytes: usize,
    /// The packet id of the first entry, minus 1.
    first: u16,
    /// The number of entries that were sent on this connection, or need not be.
    sent: usize,
    /// Sent entries without a PUBACK.
    unacknowledged: usize,
    /// The broker's Receive Maximum; 0 without a connection.
    receive_max: usize,
    /// Losses of the connection in a row that may be due to a sent message, without a PUBACK in between.
    losses: u8,
}

#[derive(Debug)]
struct Entry {
    /// None: it is acknowledged, and only those before it are not.
    message: Option<Message>,
    tag: u64,
    /// Whether it was sent in the broker's current session.
    was_sent: bool,
}

/// A PUBLISH to send.
#[derive(Debug)]
pub(super) struct Publish<'a> {
    pub(super) packet_id: u16,
    pub(super) message: &'a Message,
    pub(super) is_duplicate: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            first: 0,
            sent: 0,
            unacknowledged: 0,
            receive_max: 0,
            losses: 0,
        }
    }

    /// Handles a new connection, on which all messages are sent again.
    pub(super) fn handle_connected(&mut self, receive_max: u16, is_resumed: bool) {
        self.handle_lost(false);
        self.receive_max = receive_max.max(1).into();
        if !is_resumed {
            self.entries.iter_mut().for_each(|entry| entry.was_sent = false);
        }
    }

    /// Handles the loss of the connection, or a failed attempt to connect. `is_refusal`: a sent message may be its cause. Returns
    /// the tag of a message that is dropped for that: a broker may close the connection whenever it receives the message.
    pub(super) fn handle_lost(&mut self, is_refusal: bool) -> Option<u64> {
        let was_sent = self.unacknowledged > 0;
        (self.sent, self.unacknowledged, self.receive_max) = (0, 0, 0);
        if !was_sent || !is_refusal {
            return None;
        }
        self.losses = self.losses.saturating_add(1);
        if self.losses < LOSSES_MAX {
            return None;
        }
        self.take(0)
    }

    /// Returns whether a message that is added now can be sent at once.
    pub(super) fn has_room(&self) -> bool {
        self.sent == self.entries.len()
            && self.unacknowledged < self.in_flight_max()
            && self.bytes < WINDOW_BYTES_MAX
            && self.entries.len() < MESSAGE_PACKET_IDS.into()
    }

    /// Returns whether messages wait for PUBACKs of those before them.
    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a message. Only while there is room: otherwise two messages could get the same packet id.
    pub(super) fn add(&mut self, message: Message, tag: u64) {
        self.bytes = self.bytes.saturating_add(memory_bytes(&message));
        self.entries.push_back(Entry { message: Some(message), tag, was_sent: false });
    }

    /// Returns the next message to send, if the broker may receive one.
    pub(super) fn poll(&mut self) -> Option<Publish<'_>> {
        // Acknowledged entries between others need not be sent again.
        while self.entries.get(self.sent)?.message.is_none() {
            self.sent = self.sent.saturating_add(1);
        }
        if self.unacknowledged >= self.in_flight_max() {
            return None;
        }
        let packet_id = self.packet_id(self.sent)?;
        let entry = self.entries.get_mut(self.sent)?;
        self.sent = self.sent.saturating_add(1);
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let is_duplicate = std::mem::replace(&mut entry.was_sent, true);
        entry.message.as_ref().map(|message| Publish { packet_id, message, is_duplicate })
    }

    /// Removes the message with this packet id, and returns its tag; None if it was not sent on this connection.
    pub(super) fn remove(&mut self, packet_id: u16) -> Option<u64> {
        let position = self.position(packet_id).filter(|position| *position < self.sent)?;
        let tag = self.take(position)?;
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        Some(tag)
    }

    /// Ends a message, and returns its tag.
    fn take(&mut self, position: usize) -> Option<u64> {
        let entry = self.entries.get_mut(position)?;
        let message = entry.message.take()?;
        let tag = entry.tag;
        self.losses = 0;
        self.bytes = self.bytes.saturating_sub(memory_bytes(&message));
        while self.entries.pop_front_if(|entry| entry.message.is_none()).is_some() {
            self.sent = self.sent.saturating_sub(1);
            self.first = self.first.wrapping_add(1).checked_rem(MESSAGE_PACKET_IDS).unwrap_or(0);
        }
        Some(tag)
    }

    /// Returns the most sent messages without a PUBACK. The last time, the first message is sent alone: if the connection is lost
    /// again, no other one is the cause.
    fn in_flight_max(&self) -> usize {
        if self.losses.saturating_add(1) >= LOSSES_MAX { self.receive_max.min(1) } else { self.receive_max }
    }

    fn packet_id(&self, position: usize) -> Option<u16> {
        let number = usize::from(self.first).checked_add(position)?.checked_rem(MESSAGE_PACKET_IDS.into())?;
        u16::try_from(number).ok()?.checked_add(1)
    }

    fn position(&self, packet_id: u16) -> Option<usize> {
        let number = packet_id.checked_sub(1).filter(|number| *number < MESSAGE_PACKET_IDS)?;
        let (number, first) = (usize::from(number), usize::from(self.first));
        number
            .checked_sub(first)
            .or_else(|| number.checked_add(MESSAGE_PACKET_IDS.into())?.checked_sub(first))
    }
}

/// Returns the memory that a message takes, about.
pub(super) fn memory_bytes(message: &Message) -> usize {
    [
        MESSAGE_BYTES,
        message.topic.len(),
        message.payload.len(),
        message.response_topic.as_ref().map_or(0, String::len),
        message.correlation.as_ref().map_or(0, Bytes::len),
        message.content_type.as_ref().map_or(0, |content_type| content_type.len()),
        message.user_properties.capacity(),
    ]
    .into_iter()
    .fold(0, usize::saturating_add)
}
