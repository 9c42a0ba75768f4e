//! Records and errors as JSON, one object per line, schema 1.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Rendered, lock};
use crate::commands::monitor::traffic_event::TrafficEvent;
use crate::commands::output::{
    Answer, Answered, DeleteOutcome, EditResult, Ended, Got, LockNote, Meaning, Outcome, Output, SetOutcome,
    VersionedValue, WatchEvent,
};
use crate::commands::{CommandError, Place, duration};
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Condition, Key, Notification, Request};

mod bench;
mod configured;
mod doctor;
mod entry;
mod exchange;
mod log;
mod object;
mod trace;
mod traffic;

use entry::Entry;
use object::{
    Object, SCHEMA, line, line_of, ms, op, put, put_bytes, put_some, put_version, reply_name, schema_and,
};

pub(super) use log::{answer, log};
pub(super) use trace::trace;

/// Formats a record.
#[must_use]
pub fn output(output: &Output, quiet: bool) -> Rendered {
    let object = match output {
        Output::Watched { event, received_ms, sequence } => {
            let is_gap = matches!(event, WatchEvent::Gap { .. });
            return data_or_message(
                watched_object(event, *received_ms, *sequence),
                sequence.is_some(),
                quiet && !is_gap,
            );
        }
        Output::HandlerEnded { key, ended } => {
            return data_or_message(handler_object(key, *ended), false, quiet);
        }
        Output::Traffic { event, at_ms, sequence, .. } => {
            let is_data = !matches!(**event, TrafficEvent::Lost { .. });
            return data_or_message(traffic::object(event, *at_ms, *sequence), is_data, quiet);
        }
        Output::Got { key, got, .. } => got_object(key, got),
        Output::Set { key, ttl_ms, condition, outcome, .. } => set_object(key, *ttl_ms, *condition, outcome),
        Output::Edited { key, result } => edited_object(key, result),
        Output::Watching { .. } => return Rendered::default(),
        Output::Deleted { verb, key, outcome, .. } => deleted_object(verb.verb(), key, outcome),
        Output::Pinged { broker, sequence, connect, tls, round_trip } => {
            let mut object = op("ping");
            put(&mut object, "broker", broker.as_str());
            put(&mut object, "seq", *sequence);
            put_some(&mut object, "connect_ms", connect.map(ms));
            put_some(&mut object, "tls", *tls);
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
        Output::Checked(_) | Output::AnsweredNo { .. } => return Rendered::default(),
        Output::CheckSummary(checked) => return doctor::array(checked, quiet),
        Output::Config(record) => return Rendered::stdout(configured::lines(record)),
        Output::Exchange(record) => exchange::object(record),
        Output::Answered(answered) => return answered_line(answered, quiet),
        Output::Progress(_) | Output::BenchProgress(_) => return Rendered::default(),
        Output::Benched(report) => bench::object(report),
        Output::Listed { key, .. } => {
            let mut object = op("keys");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            object
        }
        Output::Counted(count) => {
            let mut object = op("keys");
            put(&mut object, "count", *count);
            object
        }
        Output::Validated { lines } => {
            let mut object = op("batch");
            put(&mut object, "lines", *lines);
            put(&mut object, "dry_run", true);
            object
        }
        Output::Hint(hint) => {
            let mut object = Object::new();
            put(&mut object, "message", hint.as_str());
            return data_or_message(schema_and("hint", object.into()), false, quiet);
        }
        Output::Entry { key, found } => return Rendered::stdout(line_of(&Entry { key, found })),
        Output::Exported(ended) => {
            let mut object = op("export");
            put(&mut object, "keys", ended.keys);
            put(&mut object, "missing", ended.missing);
            object
        }
        Output::Imported(ended) => {
            let mut object = op("import");
            put(&mut object, "written", ended.written);
            put(&mut object, "left", ended.skipped);
            put(&mut object, "failed", ended.failed);
            put(&mut object, "dry_run", ended.dry_run);
            object
        }
        Output::Locked { key, holder, token, ttl_ms, .. } => {
            let mut object = op("lock");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            put(&mut object, "acquired", true);
            put_bytes(&mut object, "holder", "holder_encoding", holder);
            put(&mut object, "token", token.to_string());
            put(&mut object, "ttl_ms", *ttl_ms);
            object
        }
        Output::LockWaiting { key, holder, .. } => {
            let object = note_object("lock-waiting", key, &lock::waiting_text(key, holder));
            return data_or_message(object, false, quiet);
        }
        Output::LockNote { key, note } => {
            return Rendered::stderr(line(note_object(note_kind(note), key, &lock::note_text(key, note))));
        }
        Output::LockHeld { key, holder, unrenewed } => held_object(key, holder.as_ref(), *unrenewed),
        Output::Unlocked { key, holder, outcome } => unlocked_object(key, holder, outcome),
        Output::Holder { key, found } => {
            let mut object = op("holder");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            put(&mut object, "held", found.is_some());
            if let Some(found) = found {
                put_bytes(&mut object, "holder", "holder_encoding", &found.value);
                put_version(&mut object, found.version.as_ref());
            }
            object
        }
    };
    Rendered::stdout(line(object))
}

/// Puts an object on standard output if it is data, else on standard error, unless `quiet`.
fn data_or_message(object: Object, is_data: bool, quiet: bool) -> Rendered {
    match (is_data, quiet) {
        (true, _) => Rendered::stdout(line(object)),
        (false, false) => Rendered::stderr(line(object)),
        (false, true) => Rendered::default(),
    }
}

fn watched_object(event: &WatchEvent, received_ms: u64, sequence: Option<u64>) -> Object {
    let about = |name: &str, key: &Key| {
        let mut object = schema_and("event", name.into());
        put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
        object
    };
    let state = |name: &str, key: &Key, found: &Option<VersionedValue>| {
        let mut object = about(name, key);
        put(&mut object, "found", found.is_some());
        if let Some(VersionedValue { value, version }) = found {
            put_bytes(&mut object, "value", "encoding", value);
            put_version(&mut object, version.as_ref());
        }
        object
    };
    let mut is_of_key = true;
    let mut object = match event {
        WatchEvent::Current { key, found } => state("current", key, found),
        WatchEvent::Resync { key, found } => state("resync", key, found),
        WatchEvent::Set { key, value, version } => {
            let mut object = about("set", key);
            if let Some(value) = value {
                put_bytes(&mut object, "value", "encoding", value);
            }
            put_version(&mut object, version.as_ref());
            object
        }
        WatchEvent::Delete { key, version } => {
            let mut object = about("delete", key);
            put_version(&mut object, version.as_ref());
            object
        }
        other => {
            is_of_key = false;
            connection_object(other)
        }
    };
    if is_of_key {
        put(&mut object, "received", duration::rfc3339(received_ms));
    }
    put_some(&mut object, "seq", sequence);
    object
}

/// The object of an event that is not about a key.
fn connection_object(event: &WatchEvent) -> Object {
    let mut object = Object::new();
    put(&mut object, "v", SCHEMA);
    match event {
        WatchEvent::Lost { since_ms, cause } => {
            put(&mut object, "event", "lost");
            put(&mut object, "since", duration::rfc3339(*since_ms));
            put(&mut object, "cause", cause.as_str());
        }
        WatchEvent::Gap { since_ms, until_ms } => {
            put(&mut object, "event", "gap");
            put(&mut object, "since", duration::rfc3339(*since_ms));
            put(&mut object, "until", duration::rfc3339(*until_ms));
            put(&mut object, "ms", until_ms.saturating_sub(*since_ms));
        }
        WatchEvent::Skipped { topic, cause } => {
            put(&mut object, "event", "skipped");
            put(&mut object, "topic", topic.as_str());
            put(&mut object, "cause", cause.as_str());
        }
        WatchEvent::Current { .. }
        | WatchEvent::Set { .. }
        | WatchEvent::Delete { .. }
        | WatchEvent::Resync { .. } => {}
    }
    object
}

fn handler_object(key: &Key, ended: Ended) -> Object {
    let mut object = schema_and("event", "command-ended".into());
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    match ended {
        Ended::Code(code) => put(&mut object, "code", code),
        Ended::Signal(signal) => put(&mut object, "signal", signal),
    }
    object
}

fn held_object(key: &Key, holder: Option<&Bytes>, unrenewed: Option<Duration>) -> Object {
    let mut object = op("lock");
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    put(&mut object, "acquired", false);
    if let Some(holder) = holder {
        put_bytes(&mut object, "holder", "holder_encoding", holder);
    }
    put_some(&mut object, "unrenewed_ms", unrenewed.map(ms));
    object
}

fn unlocked_object(key: &Key, holder: &Bytes, outcome: &DeleteOutcome) -> Object {
    let mut object = op("unlock");
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    put_bytes(&mut object, "holder", "holder_encoding", holder);
    let (released, reason) = match outcome {
        DeleteOutcome::Deleted { .. } => (true, None),
        DeleteOutcome::Missing => (false, Some("free")),
        DeleteOutcome::ValueDiffers { .. } => (false, Some("held-by-another")),
    };
    put(&mut object, "released", released);
    put_some(&mut object, "reason", reason);
    object
}

fn note_kind(note: &LockNote) -> &'static str {
    match note {
        LockNote::Lost { .. } => "lock-lost",
        LockNote::TokenFile { .. } => "token-file",
        LockNote::Unanswered { .. } => "lock-unanswered",
        LockNote::Unconfirmed { .. } => "release-unconfirmed",
    }
}

/// The object of a message about a lock.
fn note_object(kind: &str, key: &Key, message: &str) -> Object {
    let mut inner = Object::new();
    put(&mut inner, "kind", kind);
    put_bytes(&mut inner, "key", "key_encoding", key.as_bytes());
    put(&mut inner, "message", message);
    schema_and("note", inner.into())
}

/// Formats the record or the error of a line; its id and number follow the schema.
fn answered_line(answered: &Answered, quiet: bool) -> Rendered {
    let rendered = match &answered.answer {
        Answer::Record(record) => output(record, quiet),
        Answer::Failed { error, .. } => Rendered::stdout(self::error(error, error.kind.code())),
    };
    let Some(rest) = rendered.stdout.strip_prefix(BEGINNING) else {
        return rendered;
    };
    let id = answered.id.as_ref().map_or_else(String::new, |id| format!("\"id\":{},", id.value()));
    let marks = format!("{id}\"line\":{},", answered.place.line);
    Rendered { stdout: [BEGINNING, marks.as_bytes(), rest].concat().into(), ..rendered }
}

/// The beginning of every record.
const BEGINNING: &[u8] = b"{\"v\":1,";

/// Formats an error; `code` is the exit status.
#[must_use]
pub fn error(error: &CommandError, code: u8) -> String {
    let mut inner = Object::new();
    put(&mut inner, "kind", error.kind.name());
    put(&mut inner, "code", code);
    // Programs look for "line N" in the message of a line, which had it before there was a place.
    match &error.place {
        Some(Place { file, line }) => {
            put(&mut inner, "message", format!("line {line}: {}", error.message));
            put(&mut inner, "file", file.to_string_lossy().as_ref());
            put(&mut inner, "line", *line);
        }
        None => put(&mut inner, "message", error.message.as_str()),
    }
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
    line(schema_and("error", inner.into()))
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

fn edited_object(key: &Key, result: &EditResult) -> Object {
    let mut object = op("edit");
    put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
    put(&mut object, "changed", *result != EditResult::Unchanged);
    put(&mut object, "applied", matches!(result, EditResult::Stored { .. }));
    match result {
        EditResult::Unchanged => {}
        EditResult::Stored { ttl_ms, outcome, .. } => {
            put_some(&mut object, "ttl_ms", *ttl_ms);
            put_version(&mut object, outcome.version.as_ref());
        }
        EditResult::Conflict { draft } => put(&mut object, "file", draft.to_string_lossy()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;
    use crate::commands::output::{Deletion, HeldUntil};
    use crate::protocol::Timestamp;

    fn key(bytes: &'static [u8]) -> Key {
        Key::new(bytes).unwrap()
    }

    fn formatted(record: &Output) -> String {
        let Rendered { stdout, stderr } = output(record, false);
        assert_eq!(stderr, "");
        String::from_utf8(stdout.to_vec()).unwrap()
    }

    #[test]
    fn a_value_is_text_with_its_version() {
        let found = Output::Got {
            key: key(b"line1/temp"),
            got: Got::Found(VersionedValue {
                value: "21.5".into(),
                version: Some(Timestamp::of_store(1_763_669_639_958, 3)),
            }),
            is_one_of_many: false,
        };
        assert_eq!(
            formatted(&found),
            "{\"v\":1,\"op\":\"get\",\"key\":\"line1/temp\",\"found\":true,\"value\":\"21.5\",\
             \"encoding\":\"utf-8\",\"size\":4,\"version\":\"001763669639958:00003:StateStore\"}\n"
        );
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_base64_in_values_and_in_keys() {
        let found = Output::Got {
            key: key(b"\xff"),
            got: Got::Found(VersionedValue { value: (&b"\x00\xff"[..]).into(), version: None }),
            is_one_of_many: false,
        };
        assert_eq!(
            formatted(&found),
            "{\"v\":1,\"op\":\"get\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"found\":true,\
             \"value\":\"AP8=\",\"encoding\":\"base64\",\"size\":2}\n"
        );
    }

    #[test]
    fn control_characters_are_escaped_and_can_be_read_back() {
        let value = "\u{9b}2J\x7f\u{202e}°";
        let found = VersionedValue { value: value.into(), version: None };
        let line = formatted(&Output::Got { key: key(b"k"), got: Got::Found(found), is_one_of_many: false });
        assert!(line.contains("\"value\":\"\\u009b2J\\u007f\\u202e°\""), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["value"], value);
    }

    #[test]
    fn a_missing_key_and_a_default_differ() {
        let got = |got| formatted(&Output::Got { key: key(b"k"), got, is_one_of_many: false });
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
    fn a_set_has_whether_it_was_applied() {
        let set = |applied, condition| {
            formatted(&Output::Set {
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
        let deleted = |verb, outcome| {
            formatted(&Output::Deleted { verb, key: key(b"k"), outcome, is_missing_ignored: false })
        };
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
    fn a_lock_is_acquired_or_has_another_holder() {
        let (key, holder) = (key(b"deploy"), || Bytes::from("connector-0"));
        let token = Timestamp::of_store(1, 0);
        let locked = Output::Locked {
            key: key.clone(),
            holder: holder(),
            token,
            ttl_ms: 30_000,
            held_until: HeldUntil::Signal,
        };
        assert_eq!(
            formatted(&locked),
            "{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":true,\"holder\":\"connector-0\",\
             \"token\":\"000000000000001:00000:StateStore\",\"ttl_ms\":30000}\n"
        );
        let held = Output::LockHeld { key: key.clone(), holder: Some(holder()), unrenewed: None };
        assert_eq!(
            formatted(&held),
            "{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":false,\"holder\":\"connector-0\"}\n"
        );
        let outcome = DeleteOutcome::Missing;
        assert_eq!(
            formatted(&Output::Unlocked { key: key.clone(), holder: holder(), outcome }),
            "{\"v\":1,\"op\":\"unlock\",\"key\":\"deploy\",\"holder\":\"connector-0\",\"released\":false,\
             \"reason\":\"free\"}\n"
        );
        assert_eq!(
            formatted(&Output::Holder { key, found: None }),
            "{\"v\":1,\"op\":\"holder\",\"key\":\"deploy\",\"held\":false}\n"
        );
    }

    #[test]
    fn warnings_go_to_standard_error() {
        let note = LockNote::Unconfirmed { cause: "no answer".into(), ttl_ms: 30_000 };
        let Rendered { stdout, stderr } = output(&Output::LockNote { key: key(b"k"), note }, false);
        assert_eq!(stdout, "");
        assert_eq!(
            stderr,
            "{\"v\":1,\"note\":{\"kind\":\"release-unconfirmed\",\"key\":\"k\",\
             \"message\":\"release of k not confirmed, it becomes free within 30s: no answer\"}}\n"
        );
    }

    #[test]
    fn pings_and_frames_are_numbers_and_trees() {
        let ping = Output::Pinged {
            broker: "h:1".into(),
            sequence: 1,
            connect: Some(Duration::from_micros(12_100)),
            tls: Some("1.3"),
            round_trip: Duration::from_nanos(57_400),
        };
        assert_eq!(
            formatted(&ping),
            "{\"v\":1,\"op\":\"ping\",\"broker\":\"h:1\",\"seq\":1,\"connect_ms\":12.1,\"tls\":\"1.3\",\
             \"round_trip_ms\":0.057}\n"
        );
        let payload = (&b"*3\r\n:1\r\n$-1\r\n$1\r\n\xff\r\n"[..]).into();
        assert_eq!(
            formatted(&Output::Response { payload, version: None }),
            "{\"v\":1,\"op\":\"raw\",\"reply\":{\"type\":\"array\",\"items\":[{\"type\":\"integer\",\"value\":1},\
             {\"type\":\"null\"},{\"type\":\"bulk\",\"value\":\"/w==\",\"encoding\":\"base64\"}]}}\n"
        );
    }

    #[test]
    fn a_watch_is_a_stream_of_objects() {
        let watched = |event, sequence| Output::Watched { event, received_ms: 1_763_669_639_958, sequence };
        let version = Some(Timestamp::of_store(1, 0));
        let set = WatchEvent::Set { key: key(b"k"), value: Some("21.7".into()), version: version.clone() };
        assert_eq!(
            formatted(&watched(set, Some(2))),
            "{\"v\":1,\"event\":\"set\",\"key\":\"k\",\"value\":\"21.7\",\"encoding\":\"utf-8\",\
             \"version\":\"000000000000001:00000:StateStore\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":2}\n"
        );
        let delete = WatchEvent::Delete { key: key(b"\xff"), version: None };
        assert_eq!(
            formatted(&watched(delete, Some(3))),
            "{\"v\":1,\"event\":\"delete\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\
             \"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":3}\n"
        );
        let current = WatchEvent::Current { key: key(b"k"), found: None };
        assert_eq!(
            formatted(&watched(current, Some(1))),
            "{\"v\":1,\"event\":\"current\",\"key\":\"k\",\"found\":false,\
             \"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":1}\n"
        );
        let found = Some(VersionedValue { value: (&b"\xff"[..]).into(), version });
        assert_eq!(
            formatted(&watched(WatchEvent::Resync { key: key(b"k"), found }, Some(5))),
            "{\"v\":1,\"event\":\"resync\",\"key\":\"k\",\"found\":true,\"value\":\"/w==\",\"encoding\":\"base64\",\
             \"version\":\"000000000000001:00000:StateStore\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":5}\n"
        );
        let gap = WatchEvent::Gap { since_ms: 1_763_669_639_958, until_ms: 1_763_669_640_958 };
        assert_eq!(
            formatted(&watched(gap, Some(4))),
            "{\"v\":1,\"event\":\"gap\",\"since\":\"2025-11-20T20:13:59.958Z\",\
             \"until\":\"2025-11-20T20:14:00.958Z\",\"ms\":1000,\"seq\":4}\n"
        );
    }

    #[test]
    fn an_event_that_is_not_data_is_an_object_on_standard_error() {
        let skipped = WatchEvent::Skipped { topic: "a/b".to_owned(), cause: "odd".to_owned() };
        let skipped = Output::Watched { event: skipped, received_ms: 0, sequence: None };
        let rendered = output(&skipped, false);
        assert_eq!(rendered.stdout, "");
        assert_eq!(rendered.stderr, "{\"v\":1,\"event\":\"skipped\",\"topic\":\"a/b\",\"cause\":\"odd\"}\n");
        assert_eq!(output(&skipped, true), Rendered::default());
        let ended = Output::HandlerEnded { key: key(b"k"), ended: Ended::Code(3) };
        assert_eq!(
            output(&ended, false).stderr,
            "{\"v\":1,\"event\":\"command-ended\",\"key\":\"k\",\"code\":3}\n"
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
