//! The requests that an instance of a cluster has received while another one answers (pure).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::protocol::Message;
use crate::server::metrics::cluster::Held;

/// How long requests may wait in addition when this instance answers: for room behind others. With the longest time for which
/// they are held before, less than the writes of other instances are known, so that none is applied twice.
const RELEASED_FOR: Duration = Duration::from_secs(25);
/// The memory of a request besides its payload and its texts, in bytes.
const REQUEST_BYTES: usize = 512;

/// The last requests, in their order.
#[derive(Debug)]
pub struct HeldRequests {
    held_for: Duration,
    /// The most bytes of requests that are held; above it, the first ones are dropped.
    bytes_max: usize,
    requests: VecDeque<(Message, Instant)>,
    bytes: usize,
    /// Whether this instance answers them.
    is_released: bool,
}

impl HeldRequests {
    /// Returns no requests. They are held for this time, longer than another instance takes to become the owner, up to this many
    /// bytes.
    #[must_use]
    pub fn new(held_for: Duration, bytes_max: usize) -> Self {
        Self { held_for, bytes_max, requests: VecDeque::new(), bytes: 0, is_released: false }
    }

    /// Returns the number of the requests and their bytes.
    #[must_use]
    pub fn held(&self) -> Held {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Held { requests: count(self.requests.len()), bytes: count(self.bytes) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Notes whether this instance answers the requests from now on. Those that are too old at first are dropped; the others may
    /// wait longer than before.
    pub fn set_released(&mut self, is_released: bool, now: Instant) {
        if !self.is_released {
            self.drop_old(now);
        }
        self.is_released = is_released;
    }

    /// Adds a request that was received now, and drops those that are too old, or for which there is no room.
    pub fn push(&mut self, message: Message, now: Instant) {
        self.bytes = self.bytes.saturating_add(bytes_of(&message));
        self.requests.push_back((message, now));
        self.drop_old(now);
        while self.bytes > self.bytes_max && self.take_first().is_some() {}
    }

    /// Takes the first request that is not too old.
    pub fn pop(&mut self, now: Instant) -> Option<Message> {
        self.drop_old(now);
        self.take_first()
    }

    fn drop_old(&mut self, now: Instant) {
        let released_for = if self.is_released { RELEASED_FOR } else { Duration::ZERO };
        let held_for = self.held_for.saturating_add(released_for);
        let is_old = |received: Instant, message: &Message| {
            let age = now.saturating_duration_since(received);
            let expiry = message.expiry_s.map(|expiry_s| Duration::from_secs(u64::from(expiry_s)));
            age >= expiry.map_or(held_for, |expiry| expiry.min(held_for))
        };
        while self.requests.front().is_some_and(|(message, received)| is_old(*received, message)) {
            self.take_first();
        }
    }

    fn take_first(&mut self) -> Option<Message> {
        let (first, _) = self.requests.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes_of(&first));
        Some(first)
    }
}

fn bytes_of(message: &Message) -> usize {
    [
        message.payload.len(),
        message.topic.len(),
        message.response_topic.as_ref().map_or(0, String::len),
        message.correlation.as_ref().map_or(0, |correlation| correlation.len()),
        message.user_properties.capacity(),
    ]
    .into_iter()
    .fold(REQUEST_BYTES, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const HELD_FOR: Duration = Duration::from_secs(5);
    const BYTES_MAX: usize = 64 * 1024 * 1024;

    fn request(payload: Vec<u8>, expiry_s: Option<u32>) -> Message {
        Message { payload: payload.into(), expiry_s, ..Message::default() }
    }

    #[test]
    fn requests_are_held_in_order_until_they_are_too_old() {
        let (mut held, start) = (HeldRequests::new(HELD_FOR, BYTES_MAX), clock::monotonic());
        held.push(request(vec![1], None), start);
        held.push(request(vec![2], Some(1)), start + Duration::from_secs(1));
        held.push(request(vec![3], None), start + Duration::from_secs(2));
        let payload = |popped: Option<Message>| popped.map(|message| message.payload[0]);
        assert_eq!(payload(held.pop(start + Duration::from_secs(4))), Some(1));
        assert_eq!(payload(held.pop(start + Duration::from_secs(4))), Some(3), "the second one has expired");
        held.push(request(vec![4], None), start);
        assert_eq!(payload(held.pop(start + HELD_FOR)), None);
        assert!(held.is_empty() && held.bytes == 0);
    }

    #[test]
    fn requests_wait_for_room_longer_than_they_are_held_unless_they_expire() {
        let (mut held, start) = (HeldRequests::new(HELD_FOR, BYTES_MAX), clock::monotonic());
        let at = |seconds| start + Duration::from_secs(seconds);
        held.push(request(vec![1], None), start);
        held.push(request(vec![2], None), at(2));
        held.push(request(vec![3], Some(5)), at(2));
        held.push(request(vec![4], None), at(3));
        held.set_released(true, at(6));
        let payload = |popped: Option<Message>| popped.map(|message| message.payload[0]);
        assert_eq!(payload(held.pop(at(9))), Some(2));
        assert_eq!(payload(held.pop(at(9))), Some(4));
        held.push(request(vec![5], None), at(9));
        held.set_released(false, at(20));
        assert_eq!(payload(held.pop(at(20))), None);
    }

    #[test]
    fn the_first_requests_are_dropped_above_a_number_of_bytes() {
        let (mut held, now) = (HeldRequests::new(HELD_FOR, BYTES_MAX), clock::monotonic());
        for number in 0..100 {
            held.push(request(vec![number; 1024 * 1024], None), now);
        }
        assert!(held.bytes <= BYTES_MAX && held.bytes > BYTES_MAX - 2 * 1024 * 1024);
        assert_eq!(held.pop(now).unwrap().payload[0], 100 - 63);
    }
}
