//! `raw`: sends any words and shows the reply as received.

use std::ffi::OsString;

use bytes::Bytes;
use clap::Args;
use serde::{Serialize, Serializer};

use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::client::{Access, Error, RawRequest, RequestProperties, Response};
use crate::protocol::frame::Frame;
use crate::protocol::{Reply, Timestamp};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, frame, line};

const HELP: &str = "\
Examples:
  mqkv raw GET line1/temp
  mqkv raw SET k v NEX PX 5000
  mqkv raw SCAN '*'
  mqkv raw -o raw GET k | xxd           the payload, byte for byte

Words are sent unchecked, including words that no store knows. A reply is shown in the notation of the wire: +OK, \
-ERR text, :1, \"a value\", (nil), and 1) for the elements of an array. A refusal is shown and is also an error.";

/// Send a request word by word and show the raw reply
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct RawArgs {
    /// Words of the request
    #[arg(value_name = "WORD", required = true, allow_negative_numbers = true)]
    words: Vec<OsString>,
}

impl RawArgs {
    /// Returns the access that the request needs, by its first word.
    pub fn access(&self) -> Access {
        Access::of(self.words.first().map_or(&b""[..], |word| word.as_encoded_bytes()))
    }
}

/// A request that is sent.
#[derive(Debug)]
pub struct RawCall {
    access: Access,
}

/// The reply, as received.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "raw")]
struct RawReply {
    #[serde(flatten, serialize_with = "reply_or_payload")]
    payload: Bytes,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
}

/// Writes the frame of a payload, or the payload if it is none.
fn reply_or_payload<S: Serializer>(payload: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members {
        #[serde(serialize_with = "frame::serialize")]
        reply: Frame,
    }
    match Frame::decode(payload) {
        Ok(reply) => Members { reply }.serialize(serializer),
        Err(_) => json::payload_value(payload, serializer),
    }
}

pub async fn run(args: RawArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let (request, call) = prepare(args);
    call.finish(session.early_client().await?.send(request).await?, emit)
}

#[must_use]
pub fn prepare(args: RawArgs) -> (RawRequest, RawCall) {
    let access = args.access();
    let words: Vec<_> = args.words.into_iter().map(|word| Bytes::from(word.into_encoded_bytes())).collect();
    (RawRequest::of_words(&words, RequestProperties::default()), RawCall { access })
}

impl RawCall {
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Exit, CommandError> {
        let payload = response.payload;
        emit(&RawReply { payload: payload.clone(), version: response.version })?;
        if let Ok(Reply::Error(refusal)) = Reply::decode(&payload) {
            return Err(response.denial.map_or(Error::Refused(refusal), Error::Denied).into());
        }
        match Frame::decode(&payload) {
            Ok(_) => Ok(Exit::Yes),
            Err(error) => {
                let outcome = self.access.outcome_when_unanswered();
                Err(Error::MalformedReply { cause: error.to_string(), outcome }.into())
            }
        }
    }
}

impl Record for RawReply {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let reply = match Frame::decode(&self.payload) {
            Ok(reply) => frame::text(&reply),
            Err(_) => format!("(not a frame) {}", escape(&self.payload)),
        };
        line(&reply, self.version.as_ref(), style)
    }

    fn bytes(&self) -> Option<&Bytes> {
        Some(&self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn reply(payload: &'static [u8]) -> RawReply {
        RawReply { payload: payload.into(), version: None }
    }

    #[test]
    fn a_reply_that_is_no_frame_is_shown_escaped() {
        assert_eq!(shown(&reply(b"hello\n"), &Style::PLAIN).0, "(not a frame) hello\\x0A\n");
        assert_eq!(
            shown(&reply(b"hello\n"), &Style::JSON).0,
            "{\"v\":1,\"op\":\"raw\",\"payload\":\"hello\\n\",\"encoding\":\"utf-8\"}\n"
        );
    }

    #[test]
    fn a_frame_is_a_tree() {
        assert_eq!(
            shown(&reply(b"*3\r\n:1\r\n$-1\r\n$1\r\n\xff\r\n"), &Style::JSON).0,
            "{\"v\":1,\"op\":\"raw\",\"reply\":{\"type\":\"array\",\"items\":[{\"type\":\"integer\",\"value\":1},\
             {\"type\":\"null\"},{\"type\":\"bulk\",\"value\":\"/w==\",\"encoding\":\"base64\"}]}}\n"
        );
    }
}
