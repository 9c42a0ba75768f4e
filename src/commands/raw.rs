//! `raw`: sends any words and shows the reply as received.

use std::ffi::OsString;

use bytes::Bytes;
use clap::Args;

use super::error::CommandError;
use super::output::{Emit, Output};
use super::session::Session;
use super::verdict::Verdict;
use crate::client::{Access, Error, RawRequest, RequestProperties, Response};
use crate::protocol::Reply;
use crate::protocol::frame::Frame;

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

/// Runs the verb.
pub async fn run(args: RawArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let (request, call) = prepare(args);
    call.finish(session.early_client().await?.send(request).await?, emit)
}

/// Returns the request of the verb.
#[must_use]
pub fn prepare(args: RawArgs) -> (RawRequest, RawCall) {
    let access = args.access();
    let words: Vec<_> = args.words.into_iter().map(|word| Bytes::from(word.into_encoded_bytes())).collect();
    (RawRequest::of_words(&words, RequestProperties::default()), RawCall { access })
}

impl RawCall {
    /// Emits the response.
    ///
    /// # Errors
    /// The store refused the request, the response is malformed, or the output failed.
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let payload = response.payload;
        emit(Output::Response { payload: payload.clone(), version: response.version })?;
        if let Ok(Reply::Error(refusal)) = Reply::decode(&payload) {
            return Err(response.denial.map_or(Error::Refused(refusal), Error::Denied).into());
        }
        match Frame::decode(&payload) {
            Ok(_) => Ok(Verdict::Yes),
            Err(error) => {
                let outcome = self.access.outcome_when_unanswered();
                Err(Error::MalformedReply { cause: error.to_string(), outcome }.into())
            }
        }
    }
}
