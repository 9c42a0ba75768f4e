//! `vdel`: deletes a key if it has a given value.

use clap::Args;

use super::args::fence::FenceArgs;
use super::args::key::KeyArgs;
use super::args::value::ValueArgs;
use super::del::Deleted;
use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::client::{DeleteOutcome, RawRequest, Response};
use crate::protocol::Key;

const USAGE: &str = "mqkv vdel KEY VALUE";

const HELP: &str = "\
Examples:
  mqkv vdel job/7 worker-3              unless another worker has it
  mqkv vdel config -f config.json

In a pipe nothing is printed.

Exit status:
0 if the key was deleted, 1 if it does not exist or has another value.";

/// Delete a key if it has the given value
#[derive(Debug, Default, Args)]
#[command(after_long_help = HELP)]
pub struct VdelArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    value: ValueArgs,
    #[command(flatten)]
    fence: FenceArgs,
}

impl VdelArgs {
    /// Deletes a key that has a value.
    #[must_use]
    pub fn plain(key: KeyArgs, value: ValueArgs, fence: FenceArgs) -> Self {
        Self { key, value, fence }
    }

    /// Returns whether the value is read from a file.
    #[must_use]
    pub fn reads_file(&self) -> bool {
        self.value.reads_file()
    }
}

/// A VDEL that is sent.
#[derive(Debug)]
pub struct VdelCall {
    key: Key,
}

pub async fn run(args: VdelArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let (request, call) = prepare(args, session)?;
    call.finish(session.early_client().await?.send(request).await?, emit)
}

pub fn prepare(args: VdelArgs, session: &Session) -> Result<(RawRequest, VdelCall), CommandError> {
    let (key, word) = args.key.resolve(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let value = args.value.resolve(word, USAGE, session)?;
    Ok((DeleteOutcome::request(&key, Some(&value), fence), VdelCall { key }))
}

impl VdelCall {
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Exit, CommandError> {
        let outcome = DeleteOutcome::decode(response, true)?;
        let deleted = Deleted::new("vdel", self.key, outcome);
        emit(&deleted)?;
        Ok(deleted.exit())
    }
}
