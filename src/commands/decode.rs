//! `decode`: explains a topic, a payload or a version without a broker.

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};

use super::encoding::{Encoded, parse_hex};
use super::error::{CommandError, Kind};
use super::output::{Emit, Meaning, Output};
use super::process::file;
use super::session::Session;
use super::verdict::Verdict;
use crate::protocol::frame::Frame;
use crate::protocol::request::CommandCase;
use crate::protocol::topic::Topic;
use crate::protocol::{Notification, Reply, Request, Timestamp};

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
    Frame(FrameArgs),
    /// Explain a version or fencing token (a hybrid logical clock)
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

/// Runs the verb.
pub fn run(args: DecodeArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let output = match args.what {
        What::Topic { topic } => Output::Topic(topic_of(&topic)?),
        What::Frame(args) => decode_frame(&args.payload(session)?)?,
        What::Hlc { text } => Output::Clock(clock_of(&text)?),
    };
    emit(output)?;
    Ok(Verdict::Yes)
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

fn decode_frame(payload: &Bytes) -> Result<Output, CommandError> {
    // An error reply without CRLF is valid although it is no frame (protocol §0 row 5).
    if let (Ok(refused @ Reply::Error(_)), Err(_)) = (Reply::decode(payload), Frame::decode(payload)) {
        let line = payload.strip_prefix(b"-").unwrap_or(payload);
        let frame = Frame::Error(payload.slice_ref(line));
        let meaning = Meaning::Reply(refused);
        return Ok(Output::Frame { meaning, frame });
    }
    let frame = Frame::decode(payload)
        .map_err(|error| CommandError::new(Kind::Data, format!("invalid frame: {error}")).hint(LINE_ENDS))?;
    let meaning = if let Ok(notification) = Notification::decode(payload) {
        Meaning::Notification(notification)
    } else if let Ok(request) = Request::decode(payload, CommandCase::Strict) {
        Meaning::Request(request)
    } else {
        Reply::decode(payload).map_or(Meaning::Other, Meaning::Reply)
    };
    Ok(Output::Frame { meaning, frame })
}

const LINE_ENDS: &str = "the input must be exactly one payload, in which every line ends with CR LF";

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(payload: &'static str) -> Meaning {
        match decode_frame(&Bytes::from(payload)).unwrap() {
            Output::Frame { meaning, .. } => meaning,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frame_is_recognised_as_request_notification_or_reply() {
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
}
