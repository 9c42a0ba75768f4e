//! The filter of a monitor: by key, by client (pure).

use std::convert::Infallible;
use std::str::FromStr;

use crate::commands::monitor::traffic_event::TrafficEvent;

/// A key, or the prefix of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    text: String,
    is_prefix: bool,
}

impl FromStr for KeyPattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let prefix = text.strip_suffix('*');
        Ok(Self { text: prefix.unwrap_or(text).to_owned(), is_prefix: prefix.is_some() })
    }
}

/// A filter; the default lets every event pass.
#[derive(Debug, Default)]
pub struct Selection {
    pub key: Option<KeyPattern>,
    pub client: Option<String>,
}

impl Selection {
    /// Returns whether an event passes. An event without a key passes no filter by key, and likewise for clients.
    #[must_use]
    pub fn matches(&self, event: &TrafficEvent) -> bool {
        let key = self.key.as_ref().is_none_or(|pattern| {
            event.key().is_some_and(|key| match pattern.is_prefix {
                true => key.as_bytes().starts_with(pattern.text.as_bytes()),
                false => key.as_bytes() == pattern.text.as_bytes(),
            })
        });
        let client = self.client.as_ref().is_none_or(|wanted| event.client() == Some(wanted.as_bytes()));
        key && client
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::monitor::traffic_event::RequestSummary;
    use crate::protocol::Key;

    fn about(client: &'static str, key: Option<&'static str>) -> TrafficEvent {
        let key = key.map(|key| Key::new(key).unwrap());
        let summary = RequestSummary { client: Some(client.into()), verb: None, key };
        TrafficEvent::Unanswered { summary, waited: Duration::ZERO }
    }

    fn selects(key: Option<&str>, client: Option<&str>, event: &TrafficEvent) -> bool {
        let key = key.map(|key| key.parse().unwrap());
        Selection { key, client: client.map(str::to_owned) }.matches(event)
    }

    #[test]
    fn a_key_is_the_whole_key_unless_it_ends_in_a_star() {
        let event = about("c", Some("line1/temp"));
        for key in ["line1/temp", "line1/*", "*", "line1/temp*"] {
            assert!(selects(Some(key), None, &event), "{key}");
        }
        for key in ["line1", "line1/", "line2/*", "", "line1/temp2*"] {
            assert!(!selects(Some(key), None, &event), "{key}");
        }
        assert!(!selects(Some("*"), None, &about("c", None)));
    }

    #[test]
    fn key_and_client_must_both_match() {
        let event = about("c", Some("k"));
        assert!(selects(None, None, &event) && selects(Some("k"), Some("c"), &event));
        assert!(!selects(Some("k"), Some("d"), &event) && !selects(Some("x"), Some("c"), &event));
    }
}
