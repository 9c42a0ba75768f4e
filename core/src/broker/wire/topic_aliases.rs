//! Topic aliases of one connection, in each direction (MQTT 5, 3.3.2.3.4). They end with the connection.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::mqtt::ReasonCode;
use crate::mqtt::packet::TopicAlias;

/// The most aliases that the broker assigns on one connection, whatever the client's Topic Alias Maximum.
const ALIASES_MAX: u16 = 64;
/// The most bytes of topics with an alias that the broker has assigned on one connection.
const TOPIC_BYTES_MAX: usize = 16 * 1024;
/// Shorter topics get no alias: the alias takes three bytes itself.
const TOPIC_BYTES_MIN: usize = 8;

/// The aliases that the client has assigned.
#[derive(Debug)]
pub struct InboundAliases {
    topics: HashMap<u16, Cow<'static, str>>,
    /// Of the topics.
    bytes: usize,
    alias_max: u16,
}

impl InboundAliases {
    /// Returns an empty table for aliases up to `alias_max`.
    #[must_use]
    pub fn new(alias_max: u16) -> Self {
        Self { topics: HashMap::new(), bytes: 0, alias_max }
    }

    /// Returns the bytes of the topics.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces an empty topic by the topic of its alias, or assigns the alias to the topic.
    ///
    /// # Errors
    ///
    /// The reason code and the reason to close the connection with.
    pub fn resolve(
        &mut self,
        alias: Option<u16>,
        topic: &mut Cow<'static, str>,
    ) -> Result<(), (ReasonCode, &'static str)> {
        let Some(alias) = alias else {
            return if topic.is_empty() {
                Err((ReasonCode::ProtocolError, "a PUBLISH without a topic"))
            } else {
                Ok(())
            };
        };
        if alias == 0 || alias > self.alias_max {
            return Err((ReasonCode::TopicAliasInvalid, "a topic alias above the maximum"));
        }
        if topic.is_empty() {
            let known =
                self.topics.get(&alias).ok_or((ReasonCode::ProtocolError, "an unknown topic alias"))?;
            topic.clone_from(known);
        } else {
            let last = self.topics.insert(alias, topic.clone());
            self.bytes = self.bytes.saturating_add(topic.len());
            self.bytes = self.bytes.saturating_sub(last.map_or(0, |last| last.len()));
        }
        Ok(())
    }
}

/// The aliases that the broker has assigned: to the topics that come first, as long as there is room.
#[derive(Debug)]
pub struct OutboundAliases {
    numbers: HashMap<Box<str>, u16>,
    alias_max: u16,
    bytes: usize,
}

impl OutboundAliases {
    /// Returns an empty table; `alias_max` is the client's Topic Alias Maximum.
    #[must_use]
    pub fn new(alias_max: u16) -> Self {
        Self { numbers: HashMap::new(), alias_max: alias_max.min(ALIASES_MAX), bytes: 0 }
    }

    /// Returns the alias to send a topic with.
    #[must_use]
    pub fn of(&self, topic: &str) -> Option<TopicAlias> {
        if self.alias_max == 0 || topic.len() < TOPIC_BYTES_MIN {
            return None;
        }
        if let Some(number) = self.numbers.get(topic) {
            return Some(TopicAlias { number: *number, is_new: false });
        }
        let count = u16::try_from(self.numbers.len()).unwrap_or(u16::MAX);
        let has_room = count < self.alias_max && self.bytes.saturating_add(topic.len()) <= TOPIC_BYTES_MAX;
        has_room.then_some(TopicAlias { number: count.saturating_add(1), is_new: true })
    }

    /// Notes that a topic has been sent with its alias. A message that could not be sent assigns none.
    pub fn handle_sent(&mut self, topic: &str, alias: TopicAlias) {
        if alias.is_new {
            self.bytes = self.bytes.saturating_add(topic.len());
            self.numbers.insert(topic.into(), alias.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a topic; returns its alias, and whether that is new.
    fn send(taken: &mut OutboundAliases, topic: &str) -> Option<(u16, bool)> {
        let alias = taken.of(topic)?;
        taken.handle_sent(topic, alias);
        Some((alias.number, alias.is_new))
    }

    #[test]
    fn the_first_topics_get_the_aliases() {
        let mut taken = OutboundAliases::new(2);
        assert_eq!(send(&mut taken, "topic/one"), Some((1, true)));
        assert_eq!(send(&mut taken, "topic/two"), Some((2, true)));
        assert_eq!(send(&mut taken, "topic/one"), Some((1, false)));
        assert_eq!(send(&mut taken, "topic/three"), None);
        assert_eq!(send(&mut taken, "short"), None);
        assert_eq!(send(&mut OutboundAliases::new(0), "topic/one"), None);
    }

    #[test]
    fn a_topic_that_was_not_sent_has_no_alias() {
        let taken = OutboundAliases::new(2);
        for _ in 0..2 {
            assert_eq!(taken.of("topic/one"), Some(TopicAlias { number: 1, is_new: true }));
        }
    }

    #[test]
    fn the_number_and_the_bytes_of_aliases_are_limited_whatever_the_client_accepts() {
        let mut taken = OutboundAliases::new(u16::MAX);
        let many = (0..1000).filter(|number| send(&mut taken, &format!("topic/{number}")).is_some()).count();
        assert_eq!(many, usize::from(ALIASES_MAX));
        let mut taken = OutboundAliases::new(u16::MAX);
        let long = |number: usize| format!("{number}{}", "x".repeat(TOPIC_BYTES_MAX / 2 - 1));
        assert_eq!((0..9).filter(|number| send(&mut taken, &long(*number)).is_some()).count(), 2);
    }

    #[test]
    fn a_clients_alias_is_known_once_it_was_sent_with_a_topic() {
        let mut given = InboundAliases::new(5);
        let mut resolve = |alias, topic: &str| {
            let mut topic = Cow::from(topic.to_owned());
            given.resolve(alias, &mut topic).map(|()| topic).map_err(|(reason, _)| reason)
        };
        assert_eq!(resolve(Some(5), ""), Err(ReasonCode::ProtocolError));
        assert_eq!(resolve(Some(5), "a").as_deref(), Ok("a"));
        assert_eq!(resolve(Some(5), "").as_deref(), Ok("a"));
        assert_eq!(resolve(Some(5), "b").as_deref(), Ok("b"));
        assert_eq!(resolve(Some(5), "").as_deref(), Ok("b"));
        assert_eq!(resolve(Some(4), "long").as_deref(), Ok("long"));
        assert_eq!(resolve(Some(6), "a"), Err(ReasonCode::TopicAliasInvalid));
        assert_eq!(resolve(Some(0), "a"), Err(ReasonCode::TopicAliasInvalid));
        assert_eq!(resolve(None, ""), Err(ReasonCode::ProtocolError));
        assert_eq!(given.bytes(), "b".len() + "long".len());
    }
}
