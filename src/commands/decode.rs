//! `decode`: explains a topic, a payload or a version without a broker.

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde::{Serialize, Serializer};

use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::process::file;
use super::session::Session;
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Key, Notification, Reply, Request, Timestamp, Value};
use crate::render::encoding::{Encoded, parse_hex};
use crate::render::escape::escape;
use crate::render::json::{self, Json, reply_name};
use crate::render::{Record, Rendered, Style, Widths, frame, line, name, time};

const HELP: &str = "\
Examples:
  mqkv decode topic \\
    statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke
  mqkv decode hlc 001763669639958:00003:StateStore
  mqkv decode frame --hex 2b4f4b0d0a
  mosquitto_sub -t '#' -N -C 1 | mqkv decode frame -";

/// Explain a topic, a payload or a version, offline
#[derive(Debug, Args)]
#[command(after_long_help = HELP, arg_required_else_help = false, subcommand_value_name = "WHAT", subcommand_help_heading = "What")]
pub struct DecodeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Explain a topic of the state store
    Topic {
        /// Topic
        #[arg(value_name = "TOPIC")]
        topic: String,
    },
    /// Explain a payload
    #[command(alias = "payload")]
    Frame(FrameArgs),
    /// Explain a version or fencing token (a hybrid logical clock)
    #[command(aliases = ["version", "token"])]
    Hlc {
        /// Version, as MILLISECONDS:COUNTER:NODE
        #[arg(value_name = "TEXT")]
        text: String,
    },
}

#[derive(Debug, Args)]
#[group(id = "payload", required = true, multiple = false)]
struct FrameArgs {
    /// Read the payload from FILE
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Payload in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = parse_hex)]
    hex: Option<Encoded>,
    /// Read the payload from standard input
    #[arg(value_name = "-", value_parser = ["-"], hide_possible_values = true)]
    input: Option<String>,
}

/// The parts of a topic.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "decode")]
struct DecodedTopic {
    #[serde(flatten, serialize_with = "topic_members")]
    topic: Topic,
}

/// The parts of a version.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "decode")]
struct DecodedClock {
    #[serde(flatten, serialize_with = "clock_members")]
    clock: Timestamp,
}

/// A payload and its meaning.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "decode")]
struct DecodedFrame {
    #[serde(flatten)]
    meaning: Meaning,
    #[serde(serialize_with = "frame::serialize")]
    frame: Frame,
}

/// The meaning of a frame to the state store.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Meaning {
    #[serde(serialize_with = "request_members")]
    Request(Request),
    #[serde(serialize_with = "reply_members")]
    Reply(Reply),
    #[serde(serialize_with = "notification_members")]
    Notification(Notification),
    /// A frame without meaning to the store.
    #[serde(rename = "frame")]
    Other,
}

pub fn run(args: DecodeArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    match args.what {
        What::Topic { topic } => emit(&DecodedTopic { topic: topic_of(&topic)? })?,
        What::Frame(args) => emit(&decode_frame(&args.payload(session)?)?)?,
        What::Hlc { text } => emit(&DecodedClock { clock: clock_of(&text)? })?,
    }
    Ok(Exit::Yes)
}

impl FrameArgs {
    fn payload(self, session: &Session) -> Result<Bytes, CommandError> {
        match (self.hex, self.file) {
            (Some(encoded), _) => Ok(encoded.0.into()),
            (None, Some(path)) => file::read(&path),
            (None, None) => session.read_input(),
        }
    }
}

fn topic_of(topic: &str) -> Result<Topic, CommandError> {
    Topic::parse(topic)
        .ok_or_else(|| CommandError::new(Kind::Data, format!("not a topic of the state store: {topic}")))
}

fn clock_of(text: &str) -> Result<Timestamp, CommandError> {
    text.parse::<Timestamp>().map_err(|error| CommandError::new(Kind::Data, error.to_string()))
}

fn decode_frame(payload: &Bytes) -> Result<DecodedFrame, CommandError> {
    // An error reply without CRLF is valid although it is no frame (protocol §0 row 5).
    if let (Ok(refused @ Reply::Error(_)), Err(_)) = (Reply::decode(payload), Frame::decode(payload)) {
        let line = payload.strip_prefix(b"-").unwrap_or(payload);
        let frame = Frame::Error(payload.slice_ref(line));
        let meaning = Meaning::Reply(refused);
        return Ok(DecodedFrame { meaning, frame });
    }
    let frame = Frame::decode(payload)
        .map_err(|error| CommandError::new(Kind::Data, format!("invalid frame: {error}")).hint(LINE_ENDS))?;
    let meaning = if let Ok(notification) = Notification::decode(payload) {
        Meaning::Notification(notification)
    } else if let Ok(request) = Request::decode(payload) {
        Meaning::Request(request)
    } else {
        Reply::decode(payload).map_or(Meaning::Other, Meaning::Reply)
    };
    Ok(DecodedFrame { meaning, frame })
}

fn topic_members<S: Serializer>(topic: &Topic, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(tag = "kind")]
    enum Members<'a> {
        #[serde(rename = "request-topic")]
        Request,
        #[serde(rename = "response-topic")]
        Response { client_id: &'a str },
        #[serde(rename = "notification-topic")]
        Notification {
            #[serde(flatten, serialize_with = "json::client_id")]
            client_id: &'a Vec<u8>,
            #[serde(flatten, serialize_with = "json::key")]
            key: &'a Key,
        },
    }
    let members = match topic {
        Topic::Request => Members::Request,
        Topic::Response { client_id } => Members::Response { client_id },
        Topic::Notify { client_id, key } => Members::Notification { client_id, key },
    };
    members.serialize(serializer)
}

fn clock_members<S: Serializer>(clock: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename = "hlc")]
    struct Members<'a> {
        #[serde(serialize_with = "json::time")]
        time: u64,
        ms: u64,
        counter: u32,
        node: &'a str,
    }
    Members { time: clock.ms, ms: clock.ms, counter: clock.counter, node: clock.node() }.serialize(serializer)
}

fn request_members<S: Serializer>(request: &Request, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        verb: &'static str,
        #[serde(flatten, serialize_with = "json::key")]
        key: Option<&'a Key>,
    }
    Members { verb: request.verb(), key: request.key() }.serialize(serializer)
}

fn reply_members<S: Serializer>(reply: &Reply, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members {
        reply: &'static str,
    }
    Members { reply: reply_name(reply) }.serialize(serializer)
}

fn notification_members<S: Serializer>(
    notification: &Notification,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(tag = "event", rename_all = "lowercase")]
    enum Members<'a> {
        Set {
            #[serde(flatten, serialize_with = "json::value")]
            value: &'a Option<Value>,
        },
        Delete,
    }
    let members = match notification {
        Notification::Set(value) => Members::Set { value },
        Notification::Delete => Members::Delete,
    };
    members.serialize(serializer)
}

impl Record for DecodedTopic {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let text = match &self.topic {
            Topic::Request => "request".to_owned(),
            Topic::Response { client_id } => format!("response  client {}", escape(client_id.as_bytes())),
            Topic::Notify { client_id, key } => {
                format!("notification  client {}  key {}", escape(client_id), name(key))
            }
        };
        line(&text, None, style)
    }
}

impl Record for DecodedClock {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let (time, node) = (time::in_utc(self.clock.ms), escape(self.clock.node().as_bytes()));
        line(&format!("{time}  counter {}  node {node}", self.clock.counter), None, style)
    }
}

impl Record for DecodedFrame {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        line(&format!("{}\n{}", self.meaning.text(), frame::text(&self.frame)), None, style)
    }
}

impl Meaning {
    fn text(&self) -> String {
        match self {
            Self::Request(request) => match request.key() {
                Some(key) => format!("request: {} {}", request.verb(), name(key)),
                None => format!("request: {}", request.verb()),
            },
            Self::Notification(Notification::Set(_)) => "notification: the key was set".to_owned(),
            Self::Notification(Notification::Delete) => {
                "notification: the key was deleted or has expired".to_owned()
            }
            Self::Reply(reply) => format!("reply: {}", reply_text(reply)),
            Self::Other => "frame: not a message of the state store".to_owned(),
        }
    }
}

fn reply_text(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Value(_) => "a value",
        Reply::Count(0) => "none: key not found, or not watched",
        Reply::Count(_) => "the number of deleted keys",
        Reply::NotApplied => "not applied: the condition does not hold",
        Reply::Absent => "key not found",
        Reply::Keys { token: None, .. } => "the last page of keys",
        Reply::Keys { .. } => "a page of keys, more to come",
        Reply::Error(_) => "refused",
    }
}

const LINE_ENDS: &str = "the input must be exactly one payload, in which every line ends with CR LF";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn meaning(payload: &'static str) -> Meaning {
        decode_frame(&Bytes::from(payload)).unwrap().meaning
    }

    #[test]
    fn a_frame_is_recognized_as_request_notification_or_reply() {
        assert!(matches!(meaning("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), Meaning::Request(_)));
        assert!(matches!(
            meaning("*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n"),
            Meaning::Notification(Notification::Delete)
        ));
        assert_eq!(meaning("+OK\r\n"), Meaning::Reply(Reply::Done));
        assert!(matches!(meaning("-ERR syntax error"), Meaning::Reply(Reply::Error(_))));
        assert_eq!(meaning("+PONG\r\n"), Meaning::Other);
        assert_eq!(meaning("*1\r\n$4\r\nINFO\r\n"), Meaning::Other);
    }

    #[test]
    fn bytes_that_are_no_frame_are_a_data_error() {
        let error = decode_frame(&Bytes::from("+OK\n")).unwrap_err();
        assert_eq!(error.kind, Kind::Data);
        assert!(error.message.starts_with("invalid frame: "), "{}", error.message);
    }

    #[test]
    fn a_frame_has_its_kind_and_its_tree_in_json() {
        let json =
            |payload: &'static str| shown(&decode_frame(&Bytes::from(payload)).unwrap(), &Style::JSON).0;
        assert_eq!(
            json("*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"),
            "{\"v\":1,\"op\":\"decode\",\"kind\":\"request\",\"verb\":\"DEL\",\"key\":\"k\",\
             \"frame\":{\"type\":\"array\",\"items\":[{\"type\":\"bulk\",\"value\":\"DEL\",\"encoding\":\"utf-8\"},\
             {\"type\":\"bulk\",\"value\":\"k\",\"encoding\":\"utf-8\"}]}}\n"
        );
        let begins = |payload, begin: &str| assert!(json(payload).contains(begin), "{}", json(payload));
        begins("+OK\r\n", "\"kind\":\"reply\",\"reply\":\"done\",\"frame\":{\"type\":\"simple\"");
        begins(
            "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
            "\"kind\":\"notification\",\"event\":\"delete\",\"frame\"",
        );
        begins("+PONG\r\n", "\"kind\":\"frame\",\"frame\":{\"type\":\"simple\"");
    }
}
