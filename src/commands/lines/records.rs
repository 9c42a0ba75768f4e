//! The members of JSON requests. Only `render` writes JSON.

use std::num::NonZeroU64;
use std::time::Duration;

use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::commands::duration::TTL_MAX;
use crate::commands::error::{CommandError, Kind};
use crate::protocol::{Condition, Timestamp};
use crate::render::encoding::parse_base64;

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

/// A JSON object whose members are taken one by one.
#[derive(Debug)]
pub struct Record(Map<String, Value>);

impl Record {
    /// Parses a line, and checks the version of its schema.
    ///
    /// # Errors
    /// [`Kind::Data`] if the line is no JSON object of schema 1.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let mut record =
            serde_json::from_slice(line).map(Self).map_err(|error| invalid_json(line, &error))?;
        check_version(record.0.remove("v"))?;
        Ok(record)
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
            Some(_) => Err(not_a_string(name)),
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
        decoded(name, text, encoding_name, encoding.as_deref()).map(Some)
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
        ttl_ms(self.0.remove("ttl_ms"))
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

/// Returns the error of a member that must exist.
pub fn missing(name: &str) -> CommandError {
    data_error(format!("missing member \"{name}\""))
}

/// Returns the error of a member that must be a string.
pub fn not_a_string(name: &str) -> CommandError {
    data_error(format!("invalid \"{name}\": not a string"))
}

/// Returns the error of a line that is no JSON object.
pub fn invalid_json(line: &[u8], error: &serde_json::Error) -> CommandError {
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

/// Checks the member `v`.
///
/// # Errors
/// It is another schema.
pub fn check_version(version: Option<Value>) -> Result<(), CommandError> {
    match version {
        None => Ok(()),
        Some(version) if version == 1 => Ok(()),
        Some(version) => Err(data_error(format!("unsupported schema version {version}: expected \"v\":1"))),
    }
}

/// Decodes the text of a member as another member states.
///
/// # Errors
/// The text is malformed, or the encoding is unknown.
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

/// Returns the time to live in the member `ttl_ms`.
///
/// # Errors
/// It is no positive integer, or too long.
pub fn ttl_ms(number: Option<Value>) -> Result<Option<NonZeroU64>, CommandError> {
    let Some(number) = number else { return Ok(None) };
    let Some(ms) = number.as_u64().and_then(NonZeroU64::new) else {
        return Err(data_error("invalid \"ttl_ms\": not a positive integer".to_owned()));
    };
    if Duration::from_millis(ms.get()) > TTL_MAX {
        return Err(data_error("invalid \"ttl_ms\": longer than 100 years".to_owned()));
    }
    Ok(Some(ms))
}
