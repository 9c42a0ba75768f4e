//! JSON objects whose members are known at run time only.

use serde_json::{Map, Value};

use super::members::text_and_encoding;
use super::writer::text_of;

pub(crate) type Object = Map<String, Value>;

pub(crate) fn op(name: &str) -> Object {
    with("op", name.into())
}

pub(crate) fn event(name: &str) -> Object {
    with("event", name.into())
}

pub(crate) fn with(name: &str, value: Value) -> Object {
    let mut object = Object::new();
    put(&mut object, name, value);
    object
}

pub(crate) fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

pub(crate) fn put_some(object: &mut Object, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(object, name, value);
    }
}

/// Adds bytes as a string if they are UTF-8, else in base64. A value always has its encoding, a key only if it is base64.
pub(crate) fn put_bytes(object: &mut Object, name: &str, encoding_name: &str, bytes: &[u8]) {
    let (text, encoding) = text_and_encoding(bytes);
    put(object, name, text.into_owned());
    if encoding_name == "encoding" || encoding == "base64" {
        put(object, encoding_name, encoding);
    }
}

pub(crate) fn line(object: &Object) -> String {
    text_of(object)
}
