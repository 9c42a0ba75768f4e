//! `vdel`: removes a key if it holds a value.

use clap::Args;

use super::error::CommandError;
use super::output::{Deletion, Output};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::DeleteOutcome;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::KeyArgs;
use crate::commands::args::value::ValueArgs;

const USAGE: &str = "mqkv vdel KEY VALUE";

const EXAMPLES: &str = "\
Examples:
  mqkv vdel job/7 worker-3              give the job back, unless somebody else has it by now
  mqkv vdel config -f config.json

Exit code 1 says that there is no such key, or that it holds another value.";

/// Remove a key if it holds this value
///
/// Prints nothing in a pipe.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct VdelArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    value: ValueArgs,
    #[command(flatten)]
    fence: FenceArgs,
}

impl VdelArgs {
    /// Removes a key that holds a value.
    #[must_use]
    pub fn plain(key: KeyArgs, value: ValueArgs, fence: FenceArgs) -> Self {
        Self { key, value, fence }
    }
}

/// Runs the verb.
pub async fn run(args: VdelArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let (key, word) = args.key.settle(USAGE)?;
    let fence = args.fence.settle(session)?;
    let value = args.value.settle(word, USAGE, session)?;
    let outcome = session.client().await?.vdel(&key, &value, fence).await?;
    let verdict = match outcome {
        DeleteOutcome::Deleted { .. } => Verdict::Yes,
        DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. } => Verdict::No,
    };
    emit(Output::Deleted { verb: Deletion::VDel, key, outcome })?;
    Ok(verdict)
}
