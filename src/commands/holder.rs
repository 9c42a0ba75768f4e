//! `holder`: says who holds a lock.

use clap::Args;

use super::error::CommandError;
use super::output::Output;
use super::session::Session;
use super::{Emit, Verdict};
use crate::commands::args::key::KeyArgs;

const USAGE: &str = "mqkv holder KEY";

const EXAMPLES: &str = "\
Examples:
  mqkv holder deploy
  mqkv holder deploy -v                 with the newest fencing token

Exit code 1 says that the lock is free. By the time you read the answer it may not be true any more.";

/// Say who holds a lock
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct HolderArgs {
    #[command(flatten)]
    key: KeyArgs,
}

/// Runs the verb.
pub async fn run(args: HolderArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.settle_alone(USAGE)?;
    let found = session.client().await?.get(&key).await?;
    let verdict = if found.is_some() { Verdict::Yes } else { Verdict::No };
    emit(Output::Holder { key, found })?;
    Ok(verdict)
}
