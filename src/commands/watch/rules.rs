//! Decides which events of a watch are records, and which end it (pure).

use std::ffi::OsStr;

use bytes::Bytes;
use clap::ValueEnum;

use crate::client::{VersionedValue, WatchEvent};
use crate::commands::error::CommandError;
use crate::protocol::{Key, Timestamp, Value};

/// The state of a key after an event, for `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateKind {
    /// The key has a value
    Set,
    /// The key does not exist
    #[value(alias = "delete")]
    Del,
}

/// An event that can run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trigger {
    /// The key was set
    Set,
    /// The key was deleted or has expired
    #[value(alias = "delete")]
    Del,
    /// The value when the watch starts
    Initial,
    /// The value after a lost connection, if it differs from the last one
    Resync,
}

impl Trigger {
    /// Returns the value of `MQKV_EVENT`.
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

/// The state of a key, as an event reports it.
#[derive(Clone, Copy, Debug)]
pub struct KeyUpdate<'a> {
    pub trigger: Trigger,
    pub key: &'a Key,
    /// Whether the key exists.
    pub found: bool,
    /// The value, if the event has it.
    pub value: Option<&'a Value>,
    pub version: Option<&'a Timestamp>,
}

impl<'a> KeyUpdate<'a> {
    /// Returns the state that an event reports; None if it is not about a key.
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
            WatchEvent::Set { key, value, version, .. } => Self {
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

    fn kind(&self) -> StateKind {
        if self.found { StateKind::Set } else { StateKind::Del }
    }
}

/// The state that `--until` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// A key exists.
    Set,
    /// A key does not exist.
    Del,
    /// A key has this value.
    Value(Bytes),
}

impl TargetState {
    /// Parses `set`, `del` or `value=STR`, where STR may be any bytes.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::commands::Kind::Usage).
    pub fn parse(text: &OsStr) -> Result<Self, CommandError> {
        match text.as_encoded_bytes() {
            b"set" => Ok(Self::Set),
            b"del" | b"delete" => Ok(Self::Del),
            bytes => match bytes.strip_prefix(b"value=") {
                Some(value) => Ok(Self::Value(Bytes::copy_from_slice(value))),
                None => Err(CommandError::usage("invalid value for --until: expected set, del or value=STR")),
            },
        }
    }

    fn matches(&self, update: &KeyUpdate<'_>) -> bool {
        match self {
            Self::Set => update.found,
            Self::Del => !update.found,
            Self::Value(value) => update.value == Some(value),
        }
    }
}

#[derive(Debug)]
pub struct WatchRules {
    /// Updates by other triggers are no records.
    pub triggers: Vec<Trigger>,
    /// Updates to other states are no records.
    pub only: Vec<StateKind>,
    /// The first update to this state ends the watch, whether it is a record or not.
    pub until: Option<TargetState>,
    /// The number of changes among the records that ends the watch.
    pub count: Option<u64>,
    /// The number of changes among the records so far.
    pub changes: u64,
}

/// The decision about an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub is_record: bool,
    pub is_end: bool,
}

impl WatchRules {
    /// Decides about an update, and counts it.
    pub fn decide(&mut self, update: &KeyUpdate<'_>) -> Decision {
        let is_record = self.triggers.contains(&update.trigger) && self.only.contains(&update.kind());
        if is_record && update.trigger != Trigger::Initial {
            self.changes = self.changes.saturating_add(1);
        }
        let is_count_reached = self.count.is_some_and(|count| self.changes >= count);
        let is_target = self.until.as_ref().is_some_and(|until| until.matches(update));
        Decision { is_record, is_end: is_count_reached || is_target }
    }

    /// Describes the condition that is not met yet.
    #[must_use]
    pub fn missed(&self) -> Option<String> {
        match (self.count, &self.until) {
            (None, None) => None,
            (Some(count), None) => Some(format!("{} of {count} changes received", self.changes)),
            (_, Some(_)) => Some("the state of --until was not reached".to_owned()),
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
        Some(VersionedValue { value: value.into(), version: None, details: None })
    }

    fn current(found: Option<VersionedValue>) -> WatchEvent {
        WatchEvent::Current { key: key(), found }
    }

    fn resync(found: Option<VersionedValue>) -> WatchEvent {
        WatchEvent::Resync { key: key(), found }
    }

    fn set(value: &'static str) -> WatchEvent {
        WatchEvent::Set { key: key(), value: Some(value.into()), version: None, details: None }
    }

    fn delete() -> WatchEvent {
        WatchEvent::Delete { key: key(), version: None }
    }

    fn rules() -> WatchRules {
        WatchRules {
            triggers: Trigger::value_variants().to_vec(),
            only: StateKind::value_variants().to_vec(),
            until: None,
            count: None,
            changes: 0,
        }
    }

    /// `r` for a record, `E` for the end, `-` for neither, one per event.
    fn decisions(mut rules: WatchRules, events: &[WatchEvent]) -> String {
        let decide = |event| {
            let Decision { is_record, is_end } = rules.decide(&KeyUpdate::of(event).unwrap());
            match (is_record, is_end) {
                (true, false) => "r",
                (true, true) => "rE",
                (false, true) => "E",
                (false, false) => "-",
            }
        };
        events.iter().map(decide).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn initial_values_do_not_count() {
        let rules = WatchRules { count: Some(3), ..rules() };
        let events = [current(None), set("1"), current(found("x")), resync(None), delete()];
        assert_eq!(decisions(rules, &events), "r r r r rE");
    }

    #[test]
    fn filtered_events_do_not_count() {
        let rules = WatchRules { count: Some(2), only: vec![StateKind::Del], ..rules() };
        let events = [current(found("x")), set("1"), resync(found("2")), delete(), resync(None)];
        assert_eq!(decisions(rules, &events), "- - - r rE");
    }

    #[test]
    fn an_initial_value_in_the_target_state_ends_the_watch() {
        let until = |until| WatchRules { until: Some(until), ..rules() };
        let events = [current(found("1")), delete(), set("2")];
        assert_eq!(decisions(until(TargetState::Set), &events[..1]), "rE");
        assert_eq!(decisions(until(TargetState::Del), &events[..2]), "r rE");
        assert_eq!(decisions(until(TargetState::Value("2".into())), &events), "r r rE");
        assert_eq!(decisions(until(TargetState::Del), &[resync(None)]), "rE");
    }

    #[test]
    fn a_filtered_event_in_the_target_state_ends_the_watch() {
        let rules = WatchRules {
            triggers: vec![Trigger::Set],
            only: vec![StateKind::Set],
            until: Some(TargetState::Del),
            ..rules()
        };
        assert_eq!(decisions(rules, &[current(None)]), "E");
    }

    #[test]
    fn a_target_state_is_set_del_or_a_value_of_any_bytes() {
        let parse = |text: &str| TargetState::parse(OsStr::new(text)).ok();
        assert_eq!(parse("set"), Some(TargetState::Set));
        assert_eq!(parse("del"), Some(TargetState::Del));
        assert_eq!(parse("value=a=b"), Some(TargetState::Value("a=b".into())));
        assert_eq!(parse("value="), Some(TargetState::Value(Bytes::new())));
        for text in ["", "value", "SET", "values=1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_set_without_its_value_is_in_no_target_state_with_a_value() {
        let event = WatchEvent::Set { key: key(), value: None, version: None, details: None };
        let rules = WatchRules { until: Some(TargetState::Value(Bytes::new())), ..rules() };
        assert_eq!(decisions(rules, &[event]), "r");
    }
}
