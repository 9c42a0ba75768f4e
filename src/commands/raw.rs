//! `raw`: sends any words and shows the reply as sent.

use std::ffi::OsString;

use bytes::Bytes;
use clap::Args;

use super::error::CommandError;
use super::output::Output;
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::Access;
use crate::client::{Error, Stamps};
use crate::protocol::Reply;
use crate::protocol::frame::Frame;

const EXAMPLES: &str = "\
Examples:
  mqkv raw GET line1/temp
  mqkv raw SET k v NEX PX 5000
  mqkv raw SCAN '*'
  mqkv raw -o raw GET k | xxd           the payload, byte for byte

Words are sent as they are, also such that no store knows. A reply is shown by its mark on the wire:
+OK, -ERR text, :1, \"a value\", (nil), 1) for the parts of an array. A refusal is shown, and is an error too.";

/// Send any words to the store and show the reply as sent
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RawArgs {
    /// The words of the request
    #[arg(value_name = "WORD", required = true, allow_negative_numbers = true)]
    words: Vec<OsString>,
}

impl RawArgs {
    /// What the first word may do.
    pub fn access(&self) -> Access {
        Access::of(self.words.first().map_or(&b""[..], |word| word.as_encoded_bytes()))
    }
}

/// Runs the verb.
pub async fn run(args: RawArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let outcome = args.access().outcome_when_unanswered();
    let words: Vec<_> = args.words.into_iter().map(|word| Bytes::from(word.into_encoded_bytes())).collect();
    let response = session.client().await?.raw(&words, Stamps::default()).await?;
    let payload = response.payload;
    emit(Output::Response { payload: payload.clone(), version: response.version })?;
    if let Ok(Reply::Error(refusal)) = Reply::decode(&payload) {
        return Err(Error::Refused(refusal).into());
    }
    match Frame::decode(&payload) {
        Ok(_) => Ok(Verdict::Yes),
        Err(error) => Err(Error::MalformedReply { cause: error.to_string(), outcome }.into()),
    }
}
