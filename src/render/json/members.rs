//! Members of JSON objects that are no plain values: functions for `serialize_with`.
//!
//! Bytes are two members: text or base64, and the encoding. Their functions are used with `flatten`.

use std::borrow::{Borrow, Cow};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::protocol::{Condition, Details, Key, Reply, Timestamp};
use crate::render::duration::rfc3339;
use crate::render::encoding::to_base64;

/// Bytes that may be there.
pub trait MaybeBytes {
    fn bytes(&self) -> Option<&[u8]>;
}

impl MaybeBytes for Key {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self.as_bytes())
    }
}

impl MaybeBytes for Bytes {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl MaybeBytes for Vec<u8> {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<T: MaybeBytes> MaybeBytes for Option<T> {
    fn bytes(&self) -> Option<&[u8]> {
        self.as_ref()?.bytes()
    }
}

impl<T: MaybeBytes> MaybeBytes for &T {
    fn bytes(&self) -> Option<&[u8]> {
        (*self).bytes()
    }
}

/// Writes a string if the bytes are UTF-8, else base64. A value always has its encoding, another one only if it is base64.
fn put_bytes<M: SerializeMap>(
    members: &mut M,
    name: &str,
    encoding_name: &str,
    bytes: &[u8],
) -> Result<(), M::Error> {
    let (text, encoding) = match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::from(text), "utf-8"),
        Err(_) => (to_base64(bytes).into(), "base64"),
    };
    members.serialize_entry(name, &text)?;
    if encoding_name == "encoding" || encoding == "base64" {
        members.serialize_entry(encoding_name, encoding)?;
    }
    Ok(())
}

/// Writes bytes as the only members, or none.
fn encoded<S: Serializer>(
    name: &str,
    encoding_name: &str,
    bytes: &impl MaybeBytes,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(None)?;
    if let Some(bytes) = bytes.bytes() {
        put_bytes(&mut members, name, encoding_name, bytes)?;
    }
    members.end()
}

pub fn client<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("client", "client_encoding", bytes, to)
}

pub fn client_id<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("client_id", "client_id_encoding", bytes, to)
}

pub fn holder<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("holder", "holder_encoding", bytes, to)
}

pub fn key<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("key", "key_encoding", bytes, to)
}

pub fn pattern<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("pattern", "pattern_encoding", bytes, to)
}

pub fn payload<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("payload", "payload_encoding", bytes, to)
}

pub fn prefix<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("prefix", "prefix_encoding", bytes, to)
}

pub fn start<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("start", "encoding", bytes, to)
}

pub fn token<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("token", "token_encoding", bytes, to)
}

pub fn value<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("value", "encoding", bytes, to)
}

/// As [`payload`], but with `encoding`.
pub fn payload_value<S: Serializer>(bytes: &impl MaybeBytes, to: S) -> Result<S::Ok, S::Error> {
    encoded("payload", "encoding", bytes, to)
}

/// Writes a version; with `skip_serializing_if`.
pub fn version<S: Serializer>(
    version: &Option<impl Borrow<Timestamp>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    version.as_ref().map(|version| version.borrow().to_text()).serialize(serializer)
}

/// Writes the time to live and the fencing token of a key; with `flatten`.
pub fn details<S: Serializer>(
    details: &impl Borrow<Option<Box<Details>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(None)?;
    if let Some(Details { ttl_ms, fence }) = details.borrow().as_deref() {
        ttl_ms.map_or(Ok(()), |ttl_ms| members.serialize_entry("ttl_ms", &ttl_ms))?;
        fence.as_ref().map_or(Ok(()), |fence| members.serialize_entry("fence", &fence.to_text()))?;
    }
    members.end()
}

/// Writes a time as [`time`]; with `skip_serializing_if`.
pub fn time_if_any<S: Serializer>(ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    ms.and_then(rfc3339).serialize(serializer)
}

/// Writes the text of a value.
pub fn display<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes a path; what is not UTF-8 in it is replaced.
pub fn path<S: Serializer>(path: &(impl AsRef<Path> + ?Sized), serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.as_ref().to_string_lossy())
}

/// Writes a path as [`path`]; with `skip_serializing_if`.
pub fn path_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// Writes a time in Unix milliseconds as RFC 3339 in UTC; null after the year 9999.
pub fn time<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    rfc3339(*ms).serialize(serializer)
}

/// Writes the beginning, the end and the length of a gap between two times in Unix milliseconds.
pub fn gap<S: Serializer>(since_ms: &u64, until_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(Some(3))?;
    members.serialize_entry("since", &rfc3339(*since_ms))?;
    members.serialize_entry("until", &rfc3339(*until_ms))?;
    members.serialize_entry("ms", &until_ms.saturating_sub(*since_ms))?;
    members.end()
}

#[must_use]
pub fn reply_name(reply: &Reply) -> &'static str {
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

/// Writes milliseconds, rounded to microseconds; an option with `skip_serializing_if`.
pub fn ms<S: Serializer>(
    duration: &(impl Copy + Into<Option<Duration>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const FRACTION: f64 = 1000.0;
    let duration: Option<Duration> = (*duration).into();
    duration
        .map(|duration| (duration.as_secs_f64() * 1000.0 * FRACTION).round() / FRACTION)
        .serialize(serializer)
}

/// Writes the condition of a SET; with `skip_serializing_if`.
pub fn condition<S: Serializer>(condition: &Option<Condition>, serializer: S) -> Result<S::Ok, S::Error> {
    let name = condition.map(|condition| match condition {
        Condition::Absent => "nx",
        Condition::AbsentOrEqual => "nex",
    });
    name.serialize(serializer)
}
