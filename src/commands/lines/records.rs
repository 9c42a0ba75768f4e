//! JSON records that are read: entries of an import, and the members of requests. Only `render` writes JSON.

use std::num::NonZeroU64;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::commands::encoding::parse_base64;
use crate::commands::error::{CommandError, Kind};
use crate::commands::process::file::value_within_limit;
use crate::protocol::{Condition, Key, Timestamp};

/// The id of a request, returned with its answer: any JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(Value);

impl Id {
    /// Returns the JSON value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }
}

/// A key and its value, as `export` writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Bytes,
    /// The time to live in milliseconds. `export` does not know it, but other programs may.
    pub ttl_ms: Option<NonZeroU64>,
}

impl Entry {
    /// Parses a line of an import. Unknown members are ignored, because later versions may write more.
    ///
    /// # Errors
    /// [`Kind::Data`] if the line is no entry.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let mut record = Record::parse(line)?;
        let key = Key::new(record.required_bytes("key", "key_encoding")?)
            .map_err(|error| data_error(error.to_string()))?;
        let value = record.required_bytes("value", "encoding")?;
        Ok(Self { key, value: value_within_limit(value)?, ttl_ms: record.ttl_ms()? })
    }
}

/// A JSON object whose members are taken one by one.
#[derive(Debug)]
pub struct Record(Map<String, Value>);

impl Record {
    /// Parses a line, and checks the version of its schema.
    ///
    /// # Errors
    /// [`Kind::Data`] if the line is no JSON object of schema 1.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let mut record = match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => Self(object),
            Ok(_) => return Err(data_error("not a JSON object: expected {\"op\":...}")),
            Err(error) if error.is_eof() => return Err(data_error("invalid JSON: unexpected end of line")),
            Err(error) => return Err(data_error(format!("invalid JSON: {}", without_line(&error)))),
        };
        match record.0.remove("v") {
            None => Ok(record),
            Some(version) if version == 1 => Ok(record),
            Some(version) => {
                Err(data_error(format!("unsupported schema version {version}: expected \"v\":1")))
            }
        }
    }

    /// Takes the member `id`.
    pub fn id(&mut self) -> Option<Id> {
        self.0.remove("id").map(Id)
    }

    /// Takes a string.
    ///
    /// # Errors
    /// The member is no string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, CommandError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(data_error(format!("invalid \"{name}\": not a string"))),
        }
    }

    /// Takes a string that must exist.
    ///
    /// # Errors
    /// The member is missing or no string.
    pub fn required_text(&mut self, name: &str) -> Result<String, CommandError> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// Takes bytes, which are UTF-8 or encoded as the member `encoding_name` states.
    ///
    /// # Errors
    /// The member is malformed, or the encoding is unknown.
    pub fn bytes(&mut self, name: &str, encoding_name: &str) -> Result<Option<Vec<u8>>, CommandError> {
        let encoding = self.text(encoding_name)?;
        let Some(text) = self.text(name)? else { return Ok(None) };
        match encoding.as_deref() {
            None | Some("utf-8") => Ok(Some(text.into_bytes())),
            Some("base64") => match parse_base64(&text) {
                Ok(encoded) => Ok(Some(encoded.0)),
                Err(error) => Err(data_error(format!("invalid \"{name}\": {error}"))),
            },
            Some(other) => Err(data_error(format!("invalid \"{encoding_name}\": {other}"))
                .hint("use \"utf-8\" or \"base64\"")),
        }
    }

    /// Takes bytes that must exist.
    ///
    /// # Errors
    /// The member is missing or malformed.
    pub fn required_bytes(&mut self, name: &str, encoding_name: &str) -> Result<Vec<u8>, CommandError> {
        self.bytes(name, encoding_name)?.ok_or_else(|| missing(name))
    }

    /// Takes the member `ttl_ms`.
    ///
    /// # Errors
    /// It is no positive integer.
    pub fn ttl_ms(&mut self) -> Result<Option<NonZeroU64>, CommandError> {
        match self.0.remove("ttl_ms") {
            None => Ok(None),
            Some(number) => match number.as_u64().and_then(NonZeroU64::new) {
                Some(ttl_ms) => Ok(Some(ttl_ms)),
                None => Err(data_error("invalid \"ttl_ms\": not a positive integer")),
            },
        }
    }

    /// Takes the member `condition`.
    ///
    /// # Errors
    /// It is unknown.
    pub fn condition(&mut self) -> Result<Option<Condition>, CommandError> {
        match self.text("condition")?.as_deref() {
            None => Ok(None),
            Some("nx") => Ok(Some(Condition::Absent)),
            Some("nex") => Ok(Some(Condition::AbsentOrEqual)),
            Some(other) => {
                Err(data_error(format!("invalid \"condition\": {other}")).hint("use \"nx\" or \"nex\""))
            }
        }
    }

    /// Takes the member `fence`.
    ///
    /// # Errors
    /// It is no fencing token.
    pub fn fence(&mut self) -> Result<Option<Timestamp>, CommandError> {
        let parse =
            |text: String| text.parse().map_err(|error| data_error(format!("invalid \"fence\": {error}")));
        self.text("fence")?.map(parse).transpose()
    }

    /// Takes a boolean; false if it is missing.
    ///
    /// # Errors
    /// The member is no boolean.
    pub fn flag(&mut self, name: &str) -> Result<bool, CommandError> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(data_error(format!("invalid \"{name}\": neither true nor false"))),
        }
    }

    /// Checks that all members have been taken: a misspelt member would be a condition or an expiry that is silently
    /// left out.
    ///
    /// # Errors
    /// A member is left.
    pub fn finish(self, op: &str) -> Result<(), CommandError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(data_error(format!("unknown member \"{name}\" of {op}"))),
        }
    }
}

/// Returns an error of [`Kind::Data`].
pub fn data_error(message: impl Into<String>) -> CommandError {
    CommandError::new(Kind::Data, message)
}

fn missing(name: &str) -> CommandError {
    data_error(format!("missing member \"{name}\""))
}

/// Removes the line number, which is always 1 because lines are parsed one by one.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::encoding::to_base64;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn an_entry_ignores_unknown_members_and_rejects_a_later_schema() {
        let read = Entry::parse(
            br#"{"v":1,"op":"get","key":"k","found":true,"value":"v","encoding":"utf-8","size":1}"#,
        );
        assert_eq!(read, Ok(Entry { key: Key::new("k").unwrap(), value: "v".into(), ttl_ms: None }));
        assert!(Entry::parse(br#"{"v":2,"key":"k","value":"v"}"#).is_err());
        assert!(Entry::parse(br#"{"key":"","value":"v"}"#).unwrap_err().message.contains("empty"));
        assert_eq!(
            Entry::parse(br#"{"key":"k","value":"v","ttl_ms":7}"#).unwrap().ttl_ms,
            NonZeroU64::new(7)
        );
    }

    proptest! {
        #[test]
        fn bytes_survive_base64(key in vec(any::<u8>(), 1..20), value in vec(any::<u8>(), 0..40)) {
            let line = format!(
                r#"{{"key":"{}","key_encoding":"base64","value":"{}","encoding":"base64"}}"#,
                to_base64(&key), to_base64(&value),
            );
            let read = Entry::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(read.key.as_bytes(), &key[..]);
            prop_assert_eq!(&read.value[..], &value[..]);
        }

        #[test]
        fn any_line_is_parsed_or_rejected(line in vec(any::<u8>(), 0..60)) {
            let _ = Entry::parse(&line);
        }
    }
}
