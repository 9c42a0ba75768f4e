//! Which events of a watch are records, and which of them end it (pure).

use std::ffi::OsStr;

use bytes::Bytes;
use clap::ValueEnum;

use crate::client::{VersionedValue, WatchEvent};
use crate::commands::error::CommandError;
use crate::protocol::{Key, Timestamp, Value};

/// What a key is set to or deleted by, as `--only` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The key has a value
    Set,
    /// The key is gone
    #[value(alias = "delete")]
    Del,
}

/// What can fire a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trigger {
    /// The key was set
    Set,
    /// The key was deleted or has expired
    #[value(alias = "delete")]
    Del,
    /// The value at the beginning
    Initial,
    /// The value after a lost connection, where it differs from the last one
    Resync,
}

impl Trigger {
    /// What `MQKV_EVENT` says.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Del => "delete",
            Self::Initial => "initial",
            Self::Resync => "resync",
        }
    }
}

/// What an event says about its key.
#[derive(Clone, Copy, Debug)]
pub struct News<'a> {
    /// How it came to be known.
    pub trigger: Trigger,
    /// The key.
    pub key: &'a Key,
    /// Whether the key exists now.
    pub found: bool,
    /// Its value, where that is told.
    pub value: Option<&'a Value>,
    /// The version that came with it.
    pub version: Option<&'a Timestamp>,
}

impl<'a> News<'a> {
    /// What an event says; none if it is not about a key.
    #[must_use]
    pub fn of(event: &'a WatchEvent) -> Option<Self> {
        let state = |trigger, key, found: &'a Option<VersionedValue>| {
            let value = found.as_ref().map(|found| &found.value);
            let version = found.as_ref().and_then(|found| found.version.as_ref());
            Self { trigger, key, found: found.is_some(), value, version }
        };
        Some(match event {
            WatchEvent::Current { key, found } => state(Trigger::Initial, key, found),
            WatchEvent::Resync { key, found } => state(Trigger::Resync, key, found),
            WatchEvent::Set { key, value, version } => Self {
                trigger: Trigger::Set,
                key,
                found: true,
                value: value.as_ref(),
                version: version.as_ref(),
            },
            WatchEvent::Delete { key, version } => {
                Self { trigger: Trigger::Del, key, found: false, value: None, version: version.as_ref() }
            }
            WatchEvent::Lost { .. } | WatchEvent::Gap { .. } | WatchEvent::Skipped { .. } => return None,
        })
    }

    fn kind(&self) -> Kind {
        if self.found { Kind::Set } else { Kind::Del }
    }
}

/// What `--until` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// A key has a value.
    Set,
    /// A key is gone.
    Del,
    /// A key has this value.
    Value(Bytes),
}

impl Until {
    /// Reads `set`, `del` or `value=STR`, where STR may be any bytes.
    ///
    /// # Errors
    /// A usage error.
    pub fn parse(text: &OsStr) -> Result<Self, CommandError> {
        match text.as_encoded_bytes() {
            b"set" => Ok(Self::Set),
            b"del" | b"delete" => Ok(Self::Del),
            bytes => match bytes.strip_prefix(b"value=") {
                Some(value) => Ok(Self::Value(Bytes::copy_from_slice(value))),
                None => Err(CommandError::usage("--until takes set, del or value=STR")),
            },
        }
    }

    fn is_met(&self, news: &News<'_>) -> bool {
        match self {
            Self::Set => news.found,
            Self::Del => !news.found,
            Self::Value(value) => news.value == Some(value),
        }
    }
}

/// Which events are records, and which of them end the watch.
#[derive(Debug)]
pub struct Rules {
    /// What is a record; the values at the beginning are subject to it, too.
    pub triggers: Vec<Trigger>,
    /// Only such news are records.
    pub only: Vec<Kind>,
    /// Ends with the first news that are so, record or not.
    pub until: Option<Until>,
    /// Ends with this many changes among the records.
    pub count: Option<u64>,
    /// How many there have been.
    pub changes: u64,
}

/// What becomes of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// They are a record.
    pub is_record: bool,
    /// They end the watch.
    pub is_end: bool,
}

impl Rules {
    /// Says what becomes of news, and counts them.
    pub fn judge(&mut self, news: &News<'_>) -> Judgement {
        let is_record = self.triggers.contains(&news.trigger) && self.only.contains(&news.kind());
        if is_record && news.trigger != Trigger::Initial {
            self.changes = self.changes.saturating_add(1);
        }
        let is_enough = self.count.is_some_and(|count| self.changes >= count);
        let is_met = self.until.as_ref().is_some_and(|until| until.is_met(news));
        Judgement { is_record, is_end: is_enough || is_met }
    }

    /// What was waited for, if the watch ends without it.
    #[must_use]
    pub fn missed(&self) -> Option<String> {
        match (self.count, &self.until) {
            (None, None) => None,
            (Some(count), None) => Some(format!("{} of {count} changes came", self.changes)),
            (_, Some(_)) => Some("what --until waits for did not come".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn found(value: &'static str) -> Option<VersionedValue> {
        Some(VersionedValue { value: value.into(), version: None })
    }

    fn current(found: Option<VersionedValue>) -> WatchEvent {
        WatchEvent::Current { key: key(), found }
    }

    fn resync(found: Option<VersionedValue>) -> WatchEvent {
        WatchEvent::Resync { key: key(), found }
    }

    fn set(value: &'static str) -> WatchEvent {
        WatchEvent::Set { key: key(), value: Some(value.into()), version: None }
    }

    fn delete() -> WatchEvent {
        WatchEvent::Delete { key: key(), version: None }
    }

    fn rules() -> Rules {
        Rules {
            triggers: Trigger::value_variants().to_vec(),
            only: Kind::value_variants().to_vec(),
            until: None,
            count: None,
            changes: 0,
        }
    }

    /// `r` for a record, `E` for the end, `-` for neither, an event after the other.
    fn judged(mut rules: Rules, events: &[WatchEvent]) -> String {
        let judge = |event| {
            let Judgement { is_record, is_end } = rules.judge(&News::of(event).unwrap());
            match (is_record, is_end) {
                (true, false) => "r",
                (true, true) => "rE",
                (false, true) => "E",
                (false, false) => "-",
            }
        };
        events.iter().map(judge).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_count_is_of_changes_and_not_of_initial_values() {
        let rules = Rules { count: Some(3), ..rules() };
        let events = [current(None), set("1"), current(found("x")), resync(None), delete()];
        assert_eq!(judged(rules, &events), "r r r r rE");
    }

    #[test]
    fn what_is_filtered_away_does_not_count() {
        let rules = Rules { count: Some(2), only: vec![Kind::Del], ..rules() };
        let events = [current(found("x")), set("1"), resync(found("2")), delete(), resync(None)];
        assert_eq!(judged(rules, &events), "- - - r rE");
    }

    #[test]
    fn a_wait_for_a_state_ends_with_the_initial_value_if_that_is_it() {
        let until = |until| Rules { until: Some(until), ..rules() };
        let events = [current(found("1")), delete(), set("2")];
        assert_eq!(judged(until(Until::Set), &events[..1]), "rE");
        assert_eq!(judged(until(Until::Del), &events[..2]), "r rE");
        assert_eq!(judged(until(Until::Value("2".into())), &events), "r r rE");
        assert_eq!(judged(until(Until::Del), &[resync(None)]), "rE");
    }

    #[test]
    fn a_wait_looks_at_what_is_not_shown_too() {
        let rules =
            Rules { triggers: vec![Trigger::Set], only: vec![Kind::Set], until: Some(Until::Del), ..rules() };
        assert_eq!(judged(rules, &[current(None)]), "E");
    }

    #[test]
    fn a_wait_is_for_set_del_or_a_value_of_any_bytes() {
        let parse = |text: &str| Until::parse(OsStr::new(text)).ok();
        assert_eq!(parse("set"), Some(Until::Set));
        assert_eq!(parse("del"), Some(Until::Del));
        assert_eq!(parse("value=a=b"), Some(Until::Value("a=b".into())));
        assert_eq!(parse("value="), Some(Until::Value(Bytes::new())));
        for text in ["", "value", "SET", "values=1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_set_without_its_value_meets_no_value() {
        let news = WatchEvent::Set { key: key(), value: None, version: None };
        let rules = Rules { until: Some(Until::Value(Bytes::new())), ..rules() };
        assert_eq!(judged(rules, &[news]), "r");
    }
}
