//! JSON objects: their common members, strings that may not be UTF-8, and lines.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::commands::encoding::to_base64;
use crate::protocol::{Reply, Timestamp};
use crate::render::escape::is_safe;

/// The version of the schema.
pub(in crate::render) const SCHEMA: u32 = 1;

pub(in crate::render) type Object = Map<String, Value>;

pub(in crate::render) fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Value(_) => "value",
        Reply::Count(_) => "count",
        Reply::NotApplied => "not-applied",
        Reply::Absent => "absent",
        Reply::Keys { .. } => "keys",
        Reply::Error(_) => "refused",
    }
}

pub(in crate::render) fn op(name: &str) -> Object {
    schema_and("op", name.into())
}

pub(in crate::render) fn schema_and(name: &str, value: Value) -> Object {
    let mut object = Object::new();
    put(&mut object, "v", SCHEMA);
    put(&mut object, name, value);
    object
}

pub(in crate::render) fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

pub(in crate::render) fn put_some(object: &mut Object, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(object, name, value);
    }
}

pub(in crate::render) fn put_version(object: &mut Object, version: Option<&Timestamp>) {
    put_some(object, "version", version.map(ToString::to_string));
}

/// Adds bytes as a string if they are UTF-8, else in base64. A value always has its encoding, a key only if it is base64.
pub(in crate::render) fn put_bytes(object: &mut Object, name: &str, encoding_name: &str, bytes: &[u8]) {
    let (text, encoding) = text_and_encoding(bytes);
    put(object, name, text.into_owned());
    if encoding_name == "encoding" || encoding == "base64" {
        put(object, encoding_name, encoding);
    }
}

/// Returns bytes as a string, and its encoding.
pub(in crate::render) fn text_and_encoding(bytes: &[u8]) -> (Cow<'_, str>, &'static str) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), "utf-8"),
        Err(_) => (to_base64(bytes).into(), "base64"),
    }
}

pub(in crate::render) fn ms(duration: Duration) -> f64 {
    // Rounded to microseconds.
    const FRACTION: f64 = 1000.0;
    (duration.as_secs_f64() * 1000.0 * FRACTION).round() / FRACTION
}

pub(in crate::render) fn line(value: impl Into<Value>) -> String {
    line_of(&value.into())
}

/// Escapes control characters beyond ASCII, which JSON allows in strings but which control a terminal.
pub(in crate::render) fn line_of(value: &impl Serialize) -> String {
    // It cannot fail, because all names are strings.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    // Most lines are ASCII, and this check of theirs is much faster.
    if !line.bytes().all(|byte| matches!(byte, b' '..=b'~')) && line.contains(|c| !is_safe(c)) {
        let escaped =
            |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
        line = line.chars().map(|c| if is_safe(c) { c.to_string() } else { escaped(c) }).collect();
    }
    line.push('\n');
    line
}
