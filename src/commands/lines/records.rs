//! JSON lines that are read: requests of a batch, entries of an import. Writing JSON is the business of `render`.

use std::num::NonZeroU64;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::commands::Command;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::{KeyArgs, KeysArgs};
use crate::commands::args::value::ValueArgs;
use crate::commands::del::DelArgs;
use crate::commands::encoding::parse_base64;
use crate::commands::error::{CommandError, Kind};
use crate::commands::get::GetArgs;
use crate::commands::session::value_within_limit;
use crate::commands::set::SetArgs;
use crate::commands::vdel::VdelArgs;
use crate::protocol::{Condition, Key, Timestamp};

/// What a request calls itself, given back with its answer: any JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(Value);

impl Id {
    /// The JSON value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }
}

/// A key and its value, of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Bytes,
    /// Milliseconds until it expires; `export` cannot know it, but others may.
    pub ttl_ms: Option<NonZeroU64>,
}

/// Reads a request of a batch, and its id as far as it can be read.
pub fn request(line: &[u8]) -> (Option<Id>, Result<Command, CommandError>) {
    let mut record = match Record::parse(line) {
        Ok(record) => record,
        Err(error) => return (None, Err(error)),
    };
    let id = record.0.remove("id").map(Id);
    (id, record.into_request())
}

/// Reads an entry of an import. Members that it does not know are ignored: files of later versions may have more.
///
/// # Errors
/// It is none.
pub fn entry(line: &[u8]) -> Result<Entry, CommandError> {
    let mut record = Record::parse(line)?;
    let key = Key::new(record.bytes("key", "key_encoding")?.ok_or_else(|| missing("key"))?)
        .map_err(|error| data(error.to_string()))?;
    let value = record.bytes("value", "encoding")?.ok_or_else(|| missing("value"))?;
    Ok(Entry { key, value: value_within_limit(value)?, ttl_ms: record.ttl_ms()? })
}

/// A JSON object, of which members are taken.
struct Record(Map<String, Value>);

impl Record {
    fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let mut record = match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => Self(object),
            Ok(_) => return Err(data("a record is a JSON object, {\"op\":...}")),
            Err(error) if error.is_eof() => return Err(data("the JSON ends too early")),
            Err(error) => return Err(data(format!("no JSON: {}", in_line(&error)))),
        };
        match record.0.remove("v") {
            None => Ok(record),
            Some(version) if version == 1 => Ok(record),
            Some(version) => Err(data(format!("\"v\" is {version}; this program knows schema 1"))),
        }
    }

    fn into_request(mut self) -> Result<Command, CommandError> {
        let op = self.text("op")?.ok_or_else(|| missing("op"))?;
        let key = self.bytes("key", "key_encoding")?.ok_or_else(|| missing("key"))?;
        let has_value = matches!(op.as_str(), "set" | "vdel");
        let writes = matches!(op.as_str(), "set" | "del" | "vdel");
        let value = if has_value { self.bytes("value", "encoding")? } else { None };
        let value = || value.map(ValueArgs::bytes).ok_or_else(|| missing("value"));
        let fence = if writes { FenceArgs::token(self.fence()?) } else { FenceArgs::default() };
        let command = match op.as_str() {
            "get" => Command::Get(GetArgs::plain(KeyArgs::bytes(key))),
            "set" => {
                let (condition, ttl) = (self.condition()?, self.ttl_ms()?);
                let set = SetArgs::plain(KeyArgs::bytes(key), value()?, condition, ttl);
                Command::Set(set.stamped(fence, self.flag("persist")?))
            }
            "del" => Command::Del(DelArgs::plain(KeysArgs::bytes(key), fence)),
            "vdel" => Command::Vdel(VdelArgs::plain(KeyArgs::bytes(key), value()?, fence)),
            other => return Err(data(format!("no such op: {other}")).hint("get, set, del, vdel")),
        };
        // A member that is misspelt would be a condition or an expiry that is silently left out.
        match self.0.keys().next() {
            None => Ok(command),
            Some(name) => Err(data(format!("{op} knows no member \"{name}\""))),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, CommandError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(data(format!("\"{name}\" is no string"))),
        }
    }

    fn bytes(&mut self, name: &str, encoding_name: &str) -> Result<Option<Vec<u8>>, CommandError> {
        let encoding = self.text(encoding_name)?;
        let Some(text) = self.text(name)? else { return Ok(None) };
        match encoding.as_deref() {
            None | Some("utf-8") => Ok(Some(text.into_bytes())),
            Some("base64") => match parse_base64(&text) {
                Ok(encoded) => Ok(Some(encoded.0)),
                Err(error) => Err(data(format!("\"{name}\": {error}"))),
            },
            Some(other) => {
                Err(data(format!("\"{encoding_name}\" is {other}")).hint("\"utf-8\" or \"base64\""))
            }
        }
    }

    fn ttl_ms(&mut self) -> Result<Option<NonZeroU64>, CommandError> {
        match self.0.remove("ttl_ms") {
            None => Ok(None),
            Some(number) => match number.as_u64().and_then(NonZeroU64::new) {
                Some(ttl_ms) => Ok(Some(ttl_ms)),
                None => Err(data("\"ttl_ms\" is no whole number above 0")),
            },
        }
    }

    fn condition(&mut self) -> Result<Option<Condition>, CommandError> {
        match self.text("condition")?.as_deref() {
            None => Ok(None),
            Some("nx") => Ok(Some(Condition::Absent)),
            Some("nex") => Ok(Some(Condition::AbsentOrEqual)),
            Some(other) => Err(data(format!("\"condition\" is {other}")).hint("\"nx\" or \"nex\"")),
        }
    }

    fn fence(&mut self) -> Result<Option<Timestamp>, CommandError> {
        let parse = |text: String| text.parse().map_err(|error| data(format!("\"fence\": {error}")));
        self.text("fence")?.map(parse).transpose()
    }

    fn flag(&mut self, name: &str) -> Result<bool, CommandError> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(data(format!("\"{name}\" is neither true nor false"))),
        }
    }
}

fn data(message: impl Into<String>) -> CommandError {
    CommandError::new(Kind::Data, message)
}

fn missing(name: &str) -> CommandError {
    data(format!("\"{name}\" is missing"))
}

/// The place within the line: to the parser each is line 1.
fn in_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::encoding::to_base64;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn failure(line: &str) -> String {
        request(line.as_bytes()).1.unwrap_err().message
    }

    fn shown(line: &str) -> String {
        format!("{:?}", request(line.as_bytes()).1.unwrap())
    }

    #[test]
    fn a_request_has_all_that_a_line_can_say() {
        let plain = |key: &str| KeyArgs::bytes(key.into());
        assert_eq!(
            shown(
                r#"{"op":"set","key":"k","value":"AP8=","encoding":"base64","ttl_ms":5,"condition":"nx","persist":true}"#
            ),
            format!(
                "{:?}",
                Command::Set(
                    SetArgs::plain(
                        plain("k"),
                        ValueArgs::bytes(vec![0, 255]),
                        Some(Condition::Absent),
                        NonZeroU64::new(5)
                    )
                    .stamped(FenceArgs::default(), true)
                )
            )
        );
        assert_eq!(
            shown(r#"{"v":1,"op":"get","key":"k"}"#),
            format!("{:?}", Command::Get(GetArgs::plain(plain("k"))))
        );
        assert!(
            shown(r#"{"op":"del","key":"/w==","key_encoding":"base64","fence":"1:2:n"}"#).contains("255")
        );
    }

    #[test]
    fn an_id_is_any_json_and_is_known_even_where_the_rest_is_wrong() {
        let (id, result) = request(br#"{"id":{"a":[1]},"op":"gte","key":"k"}"#);
        assert_eq!(id.unwrap().value().to_string(), r#"{"a":[1]}"#);
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Data, "no such op: gte"));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        for (line, message) in [
            ("set k v", "no JSON: expected value at column 1"),
            ("[1]", "a record is a JSON object, {\"op\":...}"),
            (r#"{"op":"get","key":"k""#, "the JSON ends too early"),
            (r#"{"op":"get"}"#, "\"key\" is missing"),
            (r#"{"key":"k"}"#, "\"op\" is missing"),
            (r#"{"op":"set","key":"k"}"#, "\"value\" is missing"),
            (r#"{"op":"set","key":"k","value":5}"#, "\"value\" is no string"),
            (r#"{"op":"set","key":"k","value":"v","ttl":5}"#, "set knows no member \"ttl\""),
            (r#"{"op":"get","key":"k","value":"v"}"#, "get knows no member \"value\""),
            (r#"{"op":"set","key":"k","value":"v","ttl_ms":0}"#, "\"ttl_ms\" is no whole number above 0"),
            (r#"{"v":2,"op":"get","key":"k"}"#, "\"v\" is 2; this program knows schema 1"),
            (r#"{"op":"get","key":"k","key_encoding":"hex"}"#, "\"key_encoding\" is hex"),
        ] {
            assert_eq!(failure(line), message, "{line}");
        }
        assert!(
            failure(r#"{"op":"get","key":"!","key_encoding":"base64"}"#).starts_with("\"key\": no base64")
        );
        assert!(failure(r#"{"op":"del","key":"k","fence":"5"}"#).starts_with("\"fence\": "));
    }

    #[test]
    fn an_entry_ignores_what_it_does_not_know_but_not_a_later_schema() {
        let read =
            entry(br#"{"v":1,"op":"get","key":"k","found":true,"value":"v","encoding":"utf-8","size":1}"#);
        assert_eq!(read, Ok(Entry { key: Key::new("k").unwrap(), value: "v".into(), ttl_ms: None }));
        assert!(entry(br#"{"v":2,"key":"k","value":"v"}"#).is_err());
        assert!(entry(br#"{"key":"","value":"v"}"#).unwrap_err().message.contains("empty"));
        assert_eq!(entry(br#"{"key":"k","value":"v","ttl_ms":7}"#).unwrap().ttl_ms, NonZeroU64::new(7));
    }

    proptest! {
        #[test]
        fn bytes_survive_base64(key in vec(any::<u8>(), 1..20), value in vec(any::<u8>(), 0..40)) {
            let line = format!(
                r#"{{"key":"{}","key_encoding":"base64","value":"{}","encoding":"base64"}}"#,
                to_base64(&key), to_base64(&value),
            );
            let read = entry(line.as_bytes()).unwrap();
            prop_assert_eq!(read.key.as_bytes(), &key[..]);
            prop_assert_eq!(&read.value[..], &value[..]);
        }

        #[test]
        fn any_line_is_read_or_refused(line in vec(any::<u8>(), 0..60)) {
            let _ = request(&line);
            let _ = entry(&line);
        }
    }
}
