//! The topics of requests at an external broker, and the client that a request is of (pure).

use std::fmt;

use crate::protocol::Message;
use crate::protocol::message::{SOURCE, TOPIC_BYTES_MAX};
use crate::protocol::topic::{self, Topic};

/// The longest client id, in bytes: the store holds the ids of all clients in memory.
pub const CLIENT_ID_BYTES_MAX: usize = 1024;

const SHAPE: &str = "a topic; one level that is +, or # at its end, stands for the client id";

/// The topic filter of requests. With a wildcard, the broker writes the client id in its place, so that no client can claim another
/// one's; without one, each request names its client itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFilter {
    filter: String,
    client: Option<ClientLevels>,
}

/// The levels of the topic that are the client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientLevels {
    /// The level of `+`, at this byte.
    One(usize),
    /// All levels from this byte on: `#`.
    Rest(usize),
}

/// Why a message cannot be a request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoClient(&'static str);

impl fmt::Display for NoClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl Default for RequestFilter {
    fn default() -> Self {
        Self { filter: topic::REQUEST.to_owned(), client: None }
    }
}

impl RequestFilter {
    /// Parses a topic filter with at most one wildcard.
    ///
    /// # Errors
    /// Why it is none, for a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > TOPIC_BYTES_MAX || text.contains('\0') {
            return Err(SHAPE.to_owned());
        }
        if text.starts_with("$share/") {
            return Err("the order of one client's requests does not allow a shared subscription".to_owned());
        }
        let is_wildcard = |level: &str| level == "+" || level == "#";
        let mut client = None;
        let mut at: usize = 0;
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            if topic::has_wildcard(level) {
                let is_last = levels.peek().is_none();
                if !is_wildcard(level) || client.is_some() || (level == "#" && !is_last) {
                    return Err(SHAPE.to_owned());
                }
                client = Some(if level == "#" { ClientLevels::Rest(at) } else { ClientLevels::One(at) });
            }
            at = at.saturating_add(level.len()).saturating_add(1);
        }
        if client.is_some() && topic::filter_matches(text, topic::REQUEST) {
            return Err(format!("it matches {}, on which requests name no client", topic::REQUEST));
        }
        Ok(Self { filter: text.to_owned(), client })
    }

    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Whether the topic of a request names its client.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.client.is_some()
    }

    /// Returns the client id of a request.
    ///
    /// # Errors
    /// [`NoClient`]: the request cannot be handled.
    pub fn client_of<'a>(&self, message: &'a Message) -> Result<&'a str, NoClient> {
        let response_topic = message.response_topic.as_deref().unwrap_or_default();
        // The store would take its own response for a request.
        if topic::filter_matches(&self.filter, response_topic) {
            return Err(NoClient("its response topic is one of the requests"));
        }
        let id = match self.client {
            Some(levels) => {
                let id = self.client_of_topic(levels, &message.topic);
                id.ok_or(NoClient("its topic has no client id"))?
            }
            None => claimed_client(message, response_topic)?,
        };
        if id.len() > CLIENT_ID_BYTES_MAX {
            return Err(NoClient("its client id is longer than 1024 bytes"));
        }
        Ok(id)
    }

    fn client_of_topic<'a>(&self, levels: ClientLevels, topic: &'a str) -> Option<&'a str> {
        let (at, rest) = match levels {
            ClientLevels::One(at) => (at, self.filter.get(at.checked_add(1)?..)?),
            ClientLevels::Rest(at) => (at, ""),
        };
        let id = topic.strip_prefix(self.filter.get(..at)?)?.strip_suffix(rest)?;
        let is_one = !id.contains('/') || matches!(levels, ClientLevels::Rest(_));
        (!id.is_empty() && is_one).then_some(id)
    }
}

/// Returns the client that a request claims to be of: its response topic and `__srcId` must agree (protocol §1).
fn claimed_client<'a>(message: &'a Message, response_topic: &'a str) -> Result<&'a str, NoClient> {
    // The id is a part of the response topic, after its first level.
    let client_id = match Topic::parse(response_topic) {
        Some(Topic::Response { client_id }) => {
            response_topic.split_once('/').and_then(|(_, rest)| rest.get(..client_id.len()))
        }
        _ => None,
    };
    let level = client_id.ok_or(NoClient("its response topic names no client"))?;
    match message.user_property(SOURCE).filter(|source| !source.is_empty()) {
        Some(source) if topic::is_client_level(level, source) => Ok(source),
        Some(_) => Err(NoClient("its response topic and its __srcId name different clients")),
        None => Ok(level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: &str, response_topic: &str, source: Option<&str>) -> Message {
        Message {
            topic: topic.to_owned().into(),
            response_topic: Some(response_topic.to_owned()),
            user_properties: source.map(|id| (SOURCE, id)).into_iter().collect(),
            ..Message::default()
        }
    }

    fn client(filter: &str, message: &Message) -> Option<String> {
        RequestFilter::parse(filter).unwrap().client_of(message).ok().map(str::to_owned)
    }

    #[test]
    fn without_a_wildcard_response_topic_and_source_must_agree() {
        let of = |response: &str, source| client(topic::REQUEST, &message(topic::REQUEST, response, source));
        let response = topic::response("press/7");
        assert_eq!(of(&response, Some("press/7")).as_deref(), Some("press/7"));
        assert_eq!(of(&response, None).as_deref(), Some("press/7"));
        let digits = topic::response("70726573732F37");
        assert_eq!(of(&digits, Some("press/7")).as_deref(), Some("press/7"), "the Go SDK");
        let others = [(&*response, Some("press/8")), ("answers", None), ("answers", Some("press/7"))];
        for (response, source) in others.into_iter().chain([(topic::REQUEST, Some("press/7"))]) {
            assert_eq!(of(response, source), None, "{response} {source:?}");
        }
        let long = "x".repeat(CLIENT_ID_BYTES_MAX + 1);
        assert_eq!(of(&topic::response(&long), Some(&long)), None);
    }

    #[test]
    fn the_level_of_the_wildcard_is_the_client_whatever_the_request_claims() {
        let of =
            |filter: &str, topic: &str| client(filter, &message(topic, &topic::response("b"), Some("b")));
        assert_eq!(of("in/+", "in/a").as_deref(), Some("a"));
        assert_eq!(of("in/+/store", "in/a/store").as_deref(), Some("a"));
        assert_eq!(of("+/store", "a/store").as_deref(), Some("a"));
        assert_eq!(of("in/#", "in/a/b").as_deref(), Some("a/b"));
        for topic in ["in/", "in", "in/a/b", "out/a"] {
            assert_eq!(of("in/+", topic), None, "{topic}");
        }
        assert_eq!(of("in/#", "in"), None);
    }

    #[test]
    fn a_filter_has_at_most_one_wildcard_for_the_client() {
        for text in ["", "a/+/+", "a/+/#", "a/#/b", "a+", "a/b#", "$share/g/a/+", "a\0", "#", "statestore/#"]
        {
            assert!(RequestFilter::parse(text).is_err(), "{text}");
        }
        assert!(!RequestFilter::default().has_client());
        assert!(RequestFilter::parse("+").unwrap().has_client());
        let own = message("in/a", "in/b", None);
        assert_eq!(client("in/+", &own), None, "its response would be a request");
    }
}
