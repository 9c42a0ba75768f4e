//! The members of JSON lines: of requests, and of the entries of an import. Only `render` writes JSON.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::commands::duration::TTL_MAX;
use crate::commands::error::{CommandError, Kind};
use crate::protocol::Timestamp;
use crate::render::duration::parse_rfc3339;
use crate::render::encoding::parse_base64;

/// The id of a request, returned with its answer: any JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(Value);

impl Id {
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }
}

/// The members of a JSON line.
#[derive(Debug, Default)]
pub struct Members<'a> {
    version: Option<Member<'a>>,
    id: Option<Member<'a>>,
    pub op: Option<Member<'a>>,
    pub key: Option<Member<'a>>,
    pub key_encoding: Option<Member<'a>>,
    pub value: Option<Member<'a>>,
    pub encoding: Option<Member<'a>>,
    pub ttl_ms: Option<Member<'a>>,
    pub expires: Option<Member<'a>>,
    pub condition: Option<Member<'a>>,
    pub fence: Option<Member<'a>>,
    pub persist: Option<Member<'a>>,
    /// The first name that is none of these.
    pub unknown: Option<Cow<'a, str>>,
    /// A known name that stands twice.
    repeated: Option<Cow<'a, str>>,
}

impl<'a> Members<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// [`Kind::Data`] if the line is no JSON object, or has a member twice: no reader could know which one is meant.
    pub fn parse(line: &'a [u8]) -> Result<Self, CommandError> {
        // Checking the whole line costs less than checking each of its strings.
        let members = match std::str::from_utf8(line) {
            Ok(line) => serde_json::from_str::<Self>(line),
            Err(_) => serde_json::from_slice::<Self>(line),
        };
        let members = members.map_err(|error| invalid_json(line, &error))?;
        match &members.repeated {
            Some(name) => Err(data_error(format!("duplicate member \"{name}\""))),
            None => Ok(members),
        }
    }

    /// Checks the member `v`.
    ///
    /// # Errors
    /// [`Kind::Data`] if it is not schema 1.
    pub fn check_version(&mut self) -> Result<(), CommandError> {
        match self.version.take().map(Member::into_value) {
            Some(version) if version != 1 => {
                Err(data_error(format!("unsupported schema version {version}: expected \"v\":1")))
            }
            _ => Ok(()),
        }
    }

    /// Takes the member `id`.
    pub fn id(&mut self) -> Option<Id> {
        self.id.take().map(|id| Id(id.into_value()))
    }

    /// Takes the time to live.
    ///
    /// # Errors
    /// It is no positive integer, or too long.
    pub fn ttl_ms(&mut self) -> Result<Option<NonZeroU64>, CommandError> {
        let Some(member) = self.ttl_ms.take() else { return Ok(None) };
        let ms = match member {
            Member::Other(number) => number.as_u64().and_then(NonZeroU64::new),
            Member::Text(_) => None,
        };
        let ms = ms.ok_or_else(|| data_error("invalid \"ttl_ms\": not a positive integer"))?;
        match Duration::from_millis(ms.get()) > TTL_MAX {
            true => Err(data_error("invalid \"ttl_ms\": longer than 100 years")),
            false => Ok(Some(ms)),
        }
    }

    /// Takes the fencing token.
    ///
    /// # Errors
    /// It is none.
    pub fn fence(&mut self) -> Result<Option<Timestamp>, CommandError> {
        let token = text(("fence", self.fence.take()))?.map(|text| text.parse()).transpose();
        token.map_err(|error| data_error(format!("invalid \"fence\": {error}")))
    }

    /// Takes the time at which the key expires, in Unix milliseconds.
    ///
    /// # Errors
    /// It is none.
    pub fn expires_ms(&mut self) -> Result<Option<u64>, CommandError> {
        let Some(text) = text(("expires", self.expires.take()))? else { return Ok(None) };
        let invalid = || data_error(format!("invalid \"expires\": {text}")).hint(EXPIRES_HINT);
        parse_rfc3339(&text).map(Some).ok_or_else(invalid)
    }
}

const EXPIRES_HINT: &str = r#"use a time in UTC, as "2026-11-23T20:13:59.958Z""#;

/// A member, if it is there, with its name.
pub type Named<'a> = (&'static str, Option<Member<'a>>);

/// Returns the text of a member.
///
/// # Errors
/// It is no string.
pub fn text((name, member): Named<'_>) -> Result<Option<Cow<'_, str>>, CommandError> {
    match member {
        None => Ok(None),
        Some(Member::Text(text)) => Ok(Some(text)),
        Some(Member::Other(_)) => Err(not_a_string(name)),
    }
}

/// A JSON value. A string without escapes is a part of the line.
#[derive(Debug)]
pub enum Member<'a> {
    Text(Cow<'a, str>),
    Other(Value),
}

impl Member<'_> {
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.into_owned()),
            Self::Other(value) => value,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key::<Member<'de>>()? {
            let member = map.next_value::<Member<'de>>()?;
            let Member::Text(name) = name else { continue };
            let place = match name.as_ref() {
                "v" => &mut members.version,
                "id" => &mut members.id,
                "op" => &mut members.op,
                "key" => &mut members.key,
                "key_encoding" => &mut members.key_encoding,
                "value" => &mut members.value,
                "encoding" => &mut members.encoding,
                "ttl_ms" => &mut members.ttl_ms,
                "expires" => &mut members.expires,
                "condition" => &mut members.condition,
                "fence" => &mut members.fence,
                "persist" => &mut members.persist,
                _ => {
                    members.unknown.get_or_insert(name);
                    continue;
                }
            };
            if place.replace(member).is_some() {
                members.repeated = Some(name);
            }
        }
        Ok(members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Member<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Member::Other(flag.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(elements)).map(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(Member::Other)
    }
}

/// Returns an error of [`Kind::Data`].
pub fn data_error(message: impl Into<String>) -> CommandError {
    CommandError::new(Kind::Data, message)
}

/// Returns the error of a member that must exist.
pub fn missing(name: &str) -> CommandError {
    data_error(format!("missing member \"{name}\""))
}

/// Returns the error of a member that must be a string.
fn not_a_string(name: &str) -> CommandError {
    data_error(format!("invalid \"{name}\": not a string"))
}

/// Returns the error of a line that is no JSON object.
fn invalid_json(line: &[u8], error: &serde_json::Error) -> CommandError {
    match error.classify() {
        _ if !is_object(line) => data_error("not a JSON object"),
        Category::Data => data_error("not a JSON object"),
        Category::Eof => data_error("invalid JSON: unexpected end of line"),
        // The line number is always 1, because lines are parsed one by one.
        Category::Syntax | Category::Io => {
            let message = error
                .to_string()
                .replace("expected ident", "expected a value")
                .replace("expected value", "expected a value")
                .replace("key must be a string", "expected a name in double quotes")
                .replace("EOF", "end of line")
                .replace(" at line 1 column ", " at column ");
            data_error(format!("invalid JSON: {message}"))
        }
    }
}

/// Returns whether a line begins as a JSON object.
pub fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{")
}

/// Returns whether a line begins with a verb, as those of `mqkv batch` do.
pub fn begins_with_verb(line: &[u8]) -> bool {
    let word = line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    [&b"get"[..], b"set", b"del", b"vdel", b"keys", b"raw"].iter().any(|verb| word.eq_ignore_ascii_case(verb))
}

/// Decodes the text of a member as another member states.
pub fn decoded(
    name: &str,
    text: String,
    encoding_name: &str,
    encoding: Option<&str>,
) -> Result<Vec<u8>, CommandError> {
    match encoding {
        None | Some("utf-8") => Ok(text.into_bytes()),
        Some("base64") => match parse_base64(&text) {
            Ok(encoded) => Ok(encoded.0),
            Err(error) => Err(data_error(format!("invalid \"{name}\": {error}"))),
        },
        Some(other) => {
            Err(data_error(format!("invalid \"{encoding_name}\": {other}"))
                .hint("use \"utf-8\" or \"base64\""))
        }
    }
}
