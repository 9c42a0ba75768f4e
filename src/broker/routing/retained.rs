//! Retained messages: the last one of each topic (MQTT 5, 3.3.1.3).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use crate::broker::publication::Publication;
use crate::mqtt::filter;

/// The retained messages by topic. Pure: time is an argument.
#[derive(Debug)]
pub struct RetainedMessages {
    messages: BTreeMap<String, Arc<Publication>>,
    messages_max: usize,
    bytes: usize,
    bytes_max: usize,
}

/// There is no room for another retained message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl RetainedMessages {
    #[must_use]
    pub fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self { messages: BTreeMap::new(), messages_max, bytes: 0, bytes_max }
    }

    /// Replaces the message of a topic; an empty payload only removes it.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit is reached; then nothing changes.
    pub fn handle_publish(&mut self, publication: &Arc<Publication>, now: Instant) -> Result<(), Full> {
        let message = &publication.message;
        if message.payload.is_empty() {
            self.remove(&message.topic);
            return Ok(());
        }
        if !self.has_room(publication) {
            self.remove_expired(now);
            if !self.has_room(publication) {
                return Err(Full);
            }
        }
        self.remove(&message.topic);
        self.bytes = self.bytes.saturating_add(publication.bytes);
        self.messages.insert(message.topic.clone(), Arc::clone(publication));
        Ok(())
    }

    /// Returns the number of messages, and their bytes as charged by `Publication::bytes`.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.messages.len(), self.bytes)
    }

    /// Returns the messages that match a valid topic filter and have not expired.
    pub fn matching<'a>(
        &'a self,
        filter: &'a str,
        now: Instant,
    ) -> impl Iterator<Item = &'a Arc<Publication>> {
        // The topics are sorted: only those with the part of the filter before its first wildcard are looked at.
        let prefix = filter::literal_prefix(filter);
        self.messages
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(topic, _)| topic.starts_with(prefix))
            .filter(move |(topic, publication)| {
                filter::matches(filter, topic) && !publication.is_expired(now)
            })
            .map(|(_, publication)| publication)
    }

    /// Removes the message of a topic.
    pub fn remove(&mut self, topic: &str) {
        if let Some(last) = self.messages.remove(topic) {
            self.bytes = self.bytes.saturating_sub(last.bytes);
        }
    }

    /// Whether there is room for a message in place of the last one of its topic.
    fn has_room(&self, publication: &Publication) -> bool {
        let last = self.messages.get(&publication.message.topic);
        let (others, freed) = (self.messages.len(), last.map_or(0, |last| last.bytes));
        let others = others.saturating_sub(usize::from(last.is_some()));
        let bytes = self.bytes.saturating_sub(freed).saturating_add(publication.bytes);
        others < self.messages_max && bytes <= self.bytes_max
    }

    fn remove_expired(&mut self, now: Instant) {
        self.messages.retain(|_, publication| !publication.is_expired(now));
        self.bytes = self.messages.values().fold(0, |sum, publication| sum.saturating_add(publication.bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::message::Message;

    fn publication(
        topic: &str,
        payload: &'static str,
        expiry_s: Option<u32>,
        now: Instant,
    ) -> Arc<Publication> {
        let payload = payload.into();
        Arc::new(Publication::new(
            Message { topic: topic.to_owned(), payload, expiry_s, ..Message::default() },
            now,
        ))
    }

    fn topics(retained: &RetainedMessages, filter: &str, now: Instant) -> Vec<String> {
        retained.matching(filter, now).map(|found| found.message.topic.clone()).collect()
    }

    #[test]
    fn the_last_message_of_a_topic_is_retained_and_an_empty_payload_removes_it() {
        let now = crate::clock::monotonic();
        let mut retained = RetainedMessages::new(10, 10_000);
        for topic in ["a", "a/b", "a/c", "b"] {
            retained.handle_publish(&publication(topic, "1", None, now), now).unwrap();
        }
        assert_eq!(topics(&retained, "a/#", now), ["a", "a/b", "a/c"]);
        assert_eq!(topics(&retained, "+", now), ["a", "b"]);
        assert_eq!(topics(&retained, "a/c", now), ["a/c"]);
        retained.handle_publish(&publication("a/b", "", None, now), now).unwrap();
        assert_eq!(topics(&retained, "a/+", now), ["a/c"]);
    }

    #[test]
    fn an_expired_message_does_not_match_and_makes_room_for_another() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(2);
        let mut retained = RetainedMessages::new(1, 10_000);
        retained.handle_publish(&publication("a", "1", Some(1), start), start).unwrap();
        assert_eq!(retained.handle_publish(&publication("b", "1", None, start), start), Err(Full));
        assert!(topics(&retained, "#", later).is_empty());
        retained.handle_publish(&publication("b", "1", None, later), later).unwrap();
        assert_eq!(topics(&retained, "#", later), ["b"]);
    }

    #[test]
    fn bytes_are_limited_and_a_removed_message_frees_them() {
        let now = crate::clock::monotonic();
        let one = publication("a", "1", None, now);
        let mut retained = RetainedMessages::new(10, one.bytes);
        retained.handle_publish(&one, now).unwrap();
        retained.handle_publish(&publication("a", "2", None, now), now).unwrap();
        assert_eq!(retained.handle_publish(&publication("b", "1", None, now), now), Err(Full));
        assert_eq!(retained.handle_publish(&publication("a", "longer", None, now), now), Err(Full));
        assert_eq!(topics(&retained, "#", now), ["a"], "nothing changes");
        retained.handle_publish(&publication("a", "", None, now), now).unwrap();
        retained.handle_publish(&publication("b", "1", None, now), now).unwrap();
    }
}
