//! Topics of the state store: requests, responses, notifications; keys in hexadecimal.

use super::exchange;
use super::key::Key;
use super::message::TOPIC_BYTES_MAX;

/// The topic of requests (protocol §1).
pub const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// The prefix of the store's own topics. No response topic may have it (protocol §1).
pub const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

const NOTIFY: &str = "/command/notify/";

/// Returns the response topic of this program's client, in the form of the Rust SDK (protocol §0 row 9).
#[must_use]
pub fn response(client_id: &str) -> String {
    format!("clients/{client_id}/services/{REQUEST}/response")
}

/// Whether a level of a response topic stands for this client: the id or, as one SDK has it, its hexadecimal digits.
#[must_use]
pub fn is_client_level(level: &str, client_id: &str) -> bool {
    level == client_id || level == hex::encode_upper(client_id)
}

/// Whether a response topic is reserved, or one of an exchange. A client that names one is disconnected (protocol §1).
#[must_use]
pub fn is_reserved_for_response(topic: &str) -> bool {
    topic == REQUEST || topic.starts_with(RESERVED) || topic.starts_with(exchange::topic::PREFIX)
}

/// Returns the topic of the notifications of a key for one client; `None` if it would be longer than MQTT
/// allows.
#[must_use]
pub fn notify(client_id: &str, key: &Key) -> Option<String> {
    let client_id = hex::encode_upper(client_id);
    let key = hex::encode_upper(key.as_bytes());
    let topic = [RESERVED, "/", &client_id, NOTIFY, &key].concat();
    (topic.len() <= TOPIC_BYTES_MAX).then_some(topic)
}

/// Returns the topic filter for all notifications of a client.
#[must_use]
pub fn notify_filter(client_id: &str) -> String {
    format!("{RESERVED}/{}{NOTIFY}#", hex::encode_upper(client_id))
}

/// Whether a topic filter matches notifications of one client alone. The filter has the client id in
/// hexadecimal digits or, as one SDK has it, unchanged (protocol §0 row 11).
///
/// A client id that consists of upper case hexadecimal digits may be the encoding of another client's id.
/// Unchanged, it is therefore accepted only in the one filter that matches no notification.
#[must_use]
pub fn is_notification_filter_of(client_id: &str, filter: &str) -> bool {
    let rest = filter.strip_prefix(RESERVED).and_then(|rest| rest.strip_prefix('/'));
    let is_below =
        |id: &str| rest.and_then(|rest| rest.strip_prefix(id)).is_some_and(|rest| rest.starts_with('/'));
    let is_digits = client_id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
    let is_plain = || match is_digits {
        true => rest.and_then(|rest| rest.strip_prefix(client_id)) == Some("/command/notify"),
        false => !client_id.contains(['/', '+', '#']) && is_below(client_id),
    };
    !client_id.is_empty() && (is_below(&hex::encode_upper(client_id)) || is_plain())
}

/// Whether a topic has a character that only topic filters may have.
#[must_use]
pub fn has_wildcard(topic: &str) -> bool {
    // The loop does not stop at the first wildcard, so that several bytes are compared at once.
    topic.bytes().fold(false, |has_one, byte| has_one | matches!(byte, b'+' | b'#'))
}

/// Whether a valid topic filter matches a topic (MQTT 5, 4.7).
#[must_use]
pub fn filter_matches(filter: &str, topic: &str) -> bool {
    // A wildcard at the start of a filter does not match topics that begin with `$` (MQTT 5, 4.7.2).
    if topic.starts_with('$') && !filter.starts_with('$') {
        return false;
    }
    let (mut levels, mut filters) = (topic.split('/'), filter.split('/'));
    loop {
        match (filters.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

/// A parsed topic of the state store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    Request,
    /// Responses to a client.
    Response {
        /// The client id as in the topic.
        client_id: String,
    },
    /// Notifications of a key for a client.
    Notify {
        client_id: Vec<u8>,
        key: Key,
    },
}

impl Topic {
    /// Parses a topic, with hexadecimal digits in either case; `None` for any other topic.
    #[must_use]
    pub fn parse(topic: &str) -> Option<Self> {
        if topic == REQUEST {
            return Some(Self::Request);
        }
        if let Some(rest) = topic.strip_prefix(RESERVED) {
            let (client_id, key) = rest.strip_prefix('/')?.split_once(NOTIFY)?;
            let key = Key::new(hex::decode(key).ok()?).ok()?;
            return Some(Self::Notify { client_id: hex::decode(client_id).ok()?, key });
        }
        // A client id may contain slashes, so the topic is parsed from its end.
        let rest = topic.strip_prefix("clients/")?;
        let rest = rest.strip_suffix("/response").unwrap_or(rest);
        let rest =
            rest.strip_suffix(REQUEST).or_else(|| rest.strip_suffix("statestore/_any_/command/invoke"))?;
        let client_id = rest.strip_suffix('/')?;
        let client_id = client_id.strip_suffix("/services").unwrap_or(client_id);
        Some(Self::Response { client_id: client_id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::strategies::key;
    use super::super::vectors::{Case, check, escape, unescape};
    use super::*;

    fn text(escaped: &str) -> String {
        String::from_utf8(unescape(escaped)).unwrap()
    }

    fn show(topic: Option<Topic>) -> String {
        match topic {
            None => "none".to_owned(),
            Some(Topic::Request) => "request".to_owned(),
            Some(Topic::Response { client_id }) => format!("response to {}", escape(client_id.as_bytes())),
            Some(Topic::Notify { client_id, key }) => {
                format!("notify {} of {}", escape(&client_id), escape(key.as_bytes()))
            }
        }
    }

    fn run(case: &Case<'_>) -> String {
        match case.operation() {
            ["parse"] => show(Topic::parse(&text(case.operands::<1>()[0]))),
            ["notify"] => {
                let [client_id, key] = case.operands();
                let (client_id, key) = (text(client_id), Key::new(unescape(key)).unwrap());
                let topic = notify(&client_id, &key).unwrap();
                let client_id = client_id.into_bytes();
                assert_eq!(Topic::parse(&topic), Some(Topic::Notify { client_id, key }));
                topic
            }
            ["filter"] => notify_filter(&text(case.operands::<1>()[0])),
            ["response"] => {
                let client_id = text(case.operands::<1>()[0]);
                let topic = response(&client_id);
                assert_eq!(Topic::parse(&topic), Some(Topic::Response { client_id }));
                topic
            }
            ["reserved"] => {
                let reserved = is_reserved_for_response(&text(case.operands::<1>()[0]));
                if reserved { "yes" } else { "no" }.to_owned()
            }
            _ => case.unknown(),
        }
    }

    #[test]
    fn only_filters_for_the_clients_own_notifications_are_its_own() {
        let filter = |id: &str| format!("{RESERVED}/{id}/command/notify/#");
        assert!(
            is_notification_filter_of("ab", &filter("6162"))
                && is_notification_filter_of("ab", &filter("ab"))
        );
        assert!(is_notification_filter_of("ab", &notify_filter("ab")));
        assert!(is_notification_filter_of("6162", &format!("{RESERVED}/6162/command/notify")));
        for (id, filter) in [
            ("ab", filter("6163")),
            ("ab", filter("+")),
            ("+", filter("+")),
            ("a", filter("ab")),
            // These are the notifications of the client `ab`.
            ("6162", filter("6162")),
        ] {
            assert!(!is_notification_filter_of(id, &filter), "{id} {filter}");
        }
        assert!(
            !is_notification_filter_of("ab", "clients/ab/x")
                && !is_notification_filter_of("", &format!("{RESERVED}//x"))
        );
    }

    #[test]
    fn topics_are_as_in_the_vectors() {
        check(include_str!("../../../tests/vectors/topic.txt"), run);
    }

    #[test]
    fn a_filter_matches_its_levels_and_the_levels_below() {
        for (filter, topic) in [("a/b", "a/b"), ("a/+", "a/"), ("a/#", "a"), ("#", "a/b"), ("+/+/c", "a/b/c")]
        {
            assert!(filter_matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in
            [("a/b", "a"), ("a", "a/b"), ("a/+", "a"), ("+", "a/b"), ("#", "$SYS/a"), ("b/#", "a")]
        {
            assert!(!filter_matches(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn a_key_too_long_for_a_topic_has_no_notification_topic() {
        // 58 bytes before the client id, 17 around it, two for each byte of it and of the key: 65,535 in all.
        let fits = Key::new(vec![b'k'; 32_729]).unwrap();
        let too_long = Key::new(vec![b'k'; 32_730]).unwrap();
        assert_eq!(notify("c", &fits).unwrap().len(), TOPIC_BYTES_MAX);
        assert_eq!(notify("c", &too_long), None);
        assert_eq!(notify("cc", &fits), None);
    }

    proptest! {
        #[test]
        fn a_notification_topic_yields_client_and_key_in_either_case(
            client_id in ".{1,20}",
            key in key(),
        ) {
            let topic = notify(&client_id, &key).unwrap();
            let (tail, prefix) = (topic.strip_prefix(RESERVED).unwrap(), RESERVED.to_owned());
            let lower = prefix + &tail.to_ascii_lowercase();
            let expected = Some(Topic::Notify { client_id: client_id.clone().into_bytes(), key });
            prop_assert!(!tail.replace(NOTIFY, "").contains(|c: char| c.is_ascii_lowercase()));
            prop_assert!(topic.starts_with(notify_filter(&client_id).strip_suffix('#').unwrap()));
            prop_assert_eq!(Topic::parse(&topic), expected.clone());
            prop_assert_eq!(Topic::parse(&lower), expected);
        }

        #[test]
        fn a_response_topic_yields_the_client(client_id in "[^+#\0]{1,20}") {
            let topic = response(&client_id);
            prop_assert!(!is_reserved_for_response(&topic));
            prop_assert_eq!(Topic::parse(&topic), Some(Topic::Response { client_id }));
        }

        #[test]
        fn parsing_any_topic_does_not_panic(end in "[0-9A-Fa-f/é]{0,12}(/command/notify/)?[0-9A-Fg]{0,5}", cut in 0..80_usize) {
            for topic in [[RESERVED, "/", &end].concat(), ["clients/", &end, "/", REQUEST].concat()] {
                let cut = topic.floor_char_boundary(cut);
                let _ = (Topic::parse(&topic), Topic::parse(&topic[..cut]));
            }
        }
    }
}
