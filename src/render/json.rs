//! Output and errors as JSON, one object a line, schema 1; the only user of the `serde_json` crate.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Rendered;
use crate::commands::encoding::to_base64;
use crate::commands::output::{DeleteOutcome, Outcome, SetOutcome};
use crate::commands::output::{Answer, Answered, Got, Meaning, Output};
use crate::commands::{CommandError, duration};
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Condition, Key, Notification, Reply, Request, Timestamp};

/// The version of the records.
const SCHEMA: u32 = 1;

type Object = Map<String, Value>;

/// Renders one record.
#[must_use]
pub fn output(output: &Output) -> Rendered {
    Rendered::data(line(object(output)))
}

fn object(output: &Output) -> Object {
    match output {
        Output::Got { key, got } => got_object(key, got),
        Output::Set { key, ttl_ms, condition, outcome, .. } => set_object(key, *ttl_ms, *condition, outcome),
        Output::Deleted { verb, key, outcome } => deleted_object(verb.verb(), key, outcome),
        Output::Pinged { broker, sequence, connect, round_trip } => {
            let mut object = op("ping");
            put(&mut object, "broker", broker.as_str());
            put(&mut object, "seq", *sequence);
            put_some(&mut object, "connect_ms", connect.map(ms));
            put(&mut object, "round_trip_ms", ms(*round_trip));
            object
        }
        Output::Response { payload, version } => {
            let mut object = op("raw");
            match Frame::decode(payload) {
                Ok(frame) => put(&mut object, "reply", frame_value(&frame)),
                Err(_) => put_bytes(&mut object, "payload", "encoding", payload),
            }
            put_version(&mut object, version.as_ref());
            object
        }
        Output::Topic(topic) => topic_object(topic),
        Output::Frame { meaning, frame } => {
            let mut object = op("decode");
            put_meaning(&mut object, meaning);
            put(&mut object, "frame", frame_value(frame));
            object
        }
        Output::Clock(clock) => {
            let mut object = op("decode");
            put(&mut object, "kind", "hlc");
            put(&mut object, "time", duration::rfc3339(clock.ms));
            put(&mut object, "ms", clock.ms);
            put(&mut object, "counter", clock.counter);
            put(&mut object, "node", clock.node());
            object
        }
        Output::Listed { key, .. } => {
            let mut object = op("keys");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            object
        }
        Output::Entry { key, found } => {
            let mut object = op("export");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            put_bytes(&mut object, "value", "encoding", &found.value);
            put_version(&mut object, found.version.as_ref());
            object
        }
        Output::Exported(ended) => {
            let mut object = op("export");
            put(&mut object, "keys", ended.keys);
            put(&mut object, "missing", ended.missing);
            object
        }
        Output::Imported(ended) => {
            let mut object = op("import");
            put(&mut object, "written", ended.written);
            put(&mut object, "left", ended.left);
            put(&mut object, "failed", ended.failed);
            put(&mut object, "dry_run", ended.dry_run);
            object
        }
        Output::Answered(answered) => answered_object(answered),
        Output::Progress(_) => Object::new(),
    }
}

/// The record of a line's verb, or its error, with the line's number and name behind the schema.
fn answered_object(answered: &Answered) -> Object {
    let mut object = match &answered.answer {
        Answer::Record(record) => object(record),
        Answer::Failed { error, .. } => error_object(error, error.kind.code()),
    };
    object.shift_insert(1, "line".to_owned(), answered.line.into());
    if let Some(id) = &answered.id {
        object.shift_insert(1, "id".to_owned(), id.value().clone());
    }
    object
}

/// Renders an error; `code` is the exit code.
#[must_use]
pub fn error(error: &CommandError, code: u8) -> String {
    line(error_object(error, code))
}

fn error_object(error: &CommandError, code: u8) -> Object {
    let mut inner = Object::new();
    put(&mut inner, "kind", error.kind.name());
    put(&mut inner, "code", code);
    put(&mut inner, "message", error.message.as_str());
    if !error.causes.is_empty() {
        put(&mut inner, "causes", error.causes.as_slice());
    }
    if !error.hints.is_empty() {
        put(&mut inner, "hints", error.hints.as_slice());
    }
    let outcome = error.outcome.map(|outcome| match outcome {
        Outcome::Unchanged => "unchanged",
        Outcome::Unknown => "unknown",
    });
    put_some(&mut inner, "outcome", outcome);
    put(&mut inner, "retryable", error.is_retryable());
    schema_and("error", inner.into())
}

fn got_object(key: &Key, got: &Got) -> Object {
    let mut object = op("get");
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    let found = matches!(got, Got::Found(_) | Got::Written { found: true, .. });
    put(&mut object, "found", found);
    if matches!(got, Got::Default(_) | Got::Written { found: false, .. }) {
        put(&mut object, "default", true);
    }
    match got {
        Got::Found(found) => {
            put_bytes(&mut object, "value", "encoding", &found.value);
            put(&mut object, "size", found.value.len());
            put_version(&mut object, found.version.as_ref());
        }
        Got::Default(value) => {
            put_bytes(&mut object, "value", "encoding", value);
            put(&mut object, "size", value.len());
        }
        Got::Written { file, size, version, .. } => {
            put(&mut object, "file", file.to_string_lossy());
            put(&mut object, "size", *size);
            put_version(&mut object, version.as_ref());
        }
        Got::Missing => {}
    }
    object
}

fn set_object(key: &Key, ttl_ms: Option<u64>, condition: Option<Condition>, outcome: &SetOutcome) -> Object {
    let mut object = op("set");
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    put(&mut object, "applied", outcome.applied);
    let condition = condition.map(|condition| match condition {
        Condition::Absent => "nx",
        Condition::AbsentOrEqual => "nex",
    });
    put_some(&mut object, "condition", condition);
    put_version(&mut object, outcome.version.as_ref());
    put_some(&mut object, "ttl_ms", ttl_ms.filter(|_| outcome.applied));
    object
}

fn deleted_object(verb: &str, key: &Key, outcome: &DeleteOutcome) -> Object {
    let mut object = op(verb);
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    let (deleted, reason, version) = match outcome {
        DeleteOutcome::Deleted { version } => (1, None, version.as_ref()),
        DeleteOutcome::Missing => (0, Some("missing"), None),
        DeleteOutcome::ValueDiffers { version } => (0, Some("value-differs"), version.as_ref()),
    };
    put(&mut object, "deleted", deleted);
    put_some(&mut object, "reason", reason);
    put_version(&mut object, version);
    object
}

fn topic_object(topic: &Topic) -> Object {
    let mut object = op("decode");
    match topic {
        Topic::Request => put(&mut object, "kind", "request-topic"),
        Topic::Response { client_id } => {
            put(&mut object, "kind", "response-topic");
            put(&mut object, "client_id", client_id.as_str());
        }
        Topic::Notify { client_id, key } => {
            put(&mut object, "kind", "notification-topic");
            put_bytes(&mut object, "client_id", "client_id_encoding", client_id);
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
        }
    }
    object
}

fn put_meaning(object: &mut Object, meaning: &Meaning) {
    let kind = match meaning {
        Meaning::Request(_) => "request",
        Meaning::Reply(_) => "reply",
        Meaning::Notification(_) => "notification",
        Meaning::Other => "frame",
    };
    put(object, "kind", kind);
    match meaning {
        Meaning::Request(request) => put_request(object, request),
        Meaning::Reply(reply) => put(object, "reply", reply_name(reply)),
        Meaning::Notification(Notification::Set(value)) => {
            put(object, "event", "set");
            if let Some(value) = value {
                put_bytes(object, "value", "encoding", value);
            }
        }
        Meaning::Notification(Notification::Delete) => put(object, "event", "delete"),
        Meaning::Other => {}
    }
}

fn put_request(object: &mut Object, request: &Request) {
    put(object, "verb", request.verb());
    if let Some(key) = request.key() {
        put_bytes(object, "key", "key_encoding", key.as_bytes());
    }
}

fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Value(_) => "value",
        Reply::Count(_) => "count",
        Reply::NotApplied => "not-applied",
        Reply::Absent => "absent",
        Reply::Keys { .. } => "keys",
        Reply::Refused(_) => "refused",
    }
}

fn frame_value(frame: &Frame) -> Value {
    let bytes = |kind: &str, bytes: &[u8]| {
        let mut object = Object::new();
        put(&mut object, "type", kind);
        put_bytes(&mut object, "value", "encoding", bytes);
        Value::from(object)
    };
    match frame {
        Frame::Simple(text) => bytes("simple", text),
        Frame::Error(text) => bytes("error", text),
        Frame::Bulk(value) => bytes("bulk", value),
        Frame::Integer(number) => json!({"type": "integer", "value": number}),
        Frame::Null => json!({"type": "null"}),
        Frame::Array(frames) => {
            json!({"type": "array", "items": frames.iter().map(frame_value).collect::<Vec<_>>()})
        }
    }
}

fn op(name: &str) -> Object {
    schema_and("op", name.into())
}

fn schema_and(name: &str, value: Value) -> Object {
    let mut object = Object::new();
    put(&mut object, "v", SCHEMA);
    put(&mut object, name, value);
    object
}

fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

fn put_some(object: &mut Object, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(object, name, value);
    }
}

fn put_version(object: &mut Object, version: Option<&Timestamp>) {
    put_some(object, "version", version.map(ToString::to_string));
}

/// Puts bytes as text where they are text. A value always names its encoding; a name does only if it is not
/// plain text.
fn put_bytes(object: &mut Object, name: &str, encoding_name: &str, bytes: &[u8]) {
    let (text, encoding) = match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (to_base64(bytes), "base64"),
    };
    put(object, name, text);
    if encoding_name == "encoding" || encoding == "base64" {
        put(object, encoding_name, encoding);
    }
}

fn ms(duration: Duration) -> f64 {
    /// Microseconds are as fine as it gets.
    const FRACTION: f64 = 1000.0;
    (duration.as_secs_f64() * 1000.0 * FRACTION).round() / FRACTION
}

fn line(object: Object) -> String {
    format!("{}\n", Value::from(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;
    use crate::commands::output::Deletion;
    use crate::commands::output::Found;

    fn key(bytes: &'static [u8]) -> Key {
        Key::new(bytes).unwrap()
    }

    fn shown(record: &Output) -> String {
        let Rendered { data, words } = output(record);
        assert_eq!(words, "");
        String::from_utf8(data.to_vec()).unwrap()
    }

    #[test]
    fn a_value_is_text_with_its_version() {
        let found = Output::Got {
            key: key(b"line1/temp"),
            got: Got::Found(Found {
                value: "21.5".into(),
                version: Some(Timestamp::of_store(1_763_669_639_958, 3)),
            }),
        };
        assert_eq!(
            shown(&found),
            "{\"v\":1,\"op\":\"get\",\"key\":\"line1/temp\",\"found\":true,\"value\":\"21.5\",\
             \"encoding\":\"utf-8\",\"size\":4,\"version\":\"001763669639958:00003:StateStore\"}\n"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_base64_in_values_and_in_keys() {
        let found = Output::Got {
            key: key(b"\xff"),
            got: Got::Found(Found { value: (&b"\x00\xff"[..]).into(), version: None }),
        };
        assert_eq!(
            shown(&found),
            "{\"v\":1,\"op\":\"get\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"found\":true,\
             \"value\":\"AP8=\",\"encoding\":\"base64\",\"size\":2}\n"
        );
    }

    #[test]
    fn a_missing_key_and_a_default_are_told_apart() {
        let got = |got| shown(&Output::Got { key: key(b"k"), got });
        assert_eq!(got(Got::Missing), "{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":false}\n");
        assert_eq!(
            got(Got::Default("x".into())),
            "{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":false,\"default\":true,\"value\":\"x\",\
             \"encoding\":\"utf-8\",\"size\":1}\n"
        );
        assert_eq!(
            got(Got::Written { file: "f".into(), size: 9, version: None, found: true }),
            "{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":true,\"file\":\"f\",\"size\":9}\n"
        );
    }

    #[test]
    fn a_set_tells_whether_it_was_applied() {
        let set = |applied, condition| {
            shown(&Output::Set {
                key: key(b"k"),
                size: 4,
                ttl_ms: Some(30_000),
                condition,
                outcome: SetOutcome { applied, version: Some(Timestamp::of_store(1, 0)) },
            })
        };
        assert_eq!(
            set(true, None),
            "{\"v\":1,\"op\":\"set\",\"key\":\"k\",\"applied\":true,\
             \"version\":\"000000000000001:00000:StateStore\",\"ttl_ms\":30000}\n"
        );
        assert_eq!(
            set(false, Some(Condition::Absent)),
            "{\"v\":1,\"op\":\"set\",\"key\":\"k\",\"applied\":false,\"condition\":\"nx\",\
             \"version\":\"000000000000001:00000:StateStore\"}\n"
        );
    }

    #[test]
    fn a_deletion_counts_and_gives_its_reason() {
        let deleted = |verb, outcome| shown(&Output::Deleted { verb, key: key(b"k"), outcome });
        assert_eq!(
            deleted(Deletion::Del, DeleteOutcome::Deleted { version: None }),
            "{\"v\":1,\"op\":\"del\",\"key\":\"k\",\"deleted\":1}\n"
        );
        assert_eq!(
            deleted(Deletion::VDel, DeleteOutcome::ValueDiffers { version: None }),
            "{\"v\":1,\"op\":\"vdel\",\"key\":\"k\",\"deleted\":0,\"reason\":\"value-differs\"}\n"
        );
    }

    #[test]
    fn pings_and_frames_are_numbers_and_trees() {
        let ping = Output::Pinged {
            broker: "h:1".into(),
            sequence: 1,
            connect: Some(Duration::from_micros(12_100)),
            round_trip: Duration::from_nanos(57_400),
        };
        assert_eq!(
            shown(&ping),
            "{\"v\":1,\"op\":\"ping\",\"broker\":\"h:1\",\"seq\":1,\"connect_ms\":12.1,\"round_trip_ms\":0.057}\n"
        );
        let payload = (&b"*3\r\n:1\r\n$-1\r\n$1\r\n\xff\r\n"[..]).into();
        assert_eq!(
            shown(&Output::Response { payload, version: None }),
            "{\"v\":1,\"op\":\"raw\",\"reply\":{\"type\":\"array\",\"items\":[{\"type\":\"integer\",\"value\":1},\
             {\"type\":\"null\"},{\"type\":\"bulk\",\"value\":\"/w==\",\"encoding\":\"base64\"}]}}\n"
        );
    }

    #[test]
    fn an_error_is_one_object_with_its_exit_code() {
        let failure = CommandError {
            outcome: Some(Outcome::Unknown),
            ..CommandError::new(Kind::Timeout, "no answer from h:1 within 10s")
        };
        assert_eq!(
            error(&failure, 124),
            "{\"v\":1,\"error\":{\"kind\":\"timeout\",\"code\":124,\"message\":\"no answer from h:1 within 10s\",\
             \"outcome\":\"unknown\",\"retryable\":true}}\n"
        );
    }
}
