//! `holder`: shows the holder of a lock.

use clap::Args;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::output::{Emit, Output};
use super::session::Session;
use super::verdict::Verdict;

const USAGE: &str = "mqkv holder KEY";

const HELP: &str = "\
Examples:
  mqkv holder deploy
  mqkv holder deploy -v                 with the newest fencing token

The answer may be out of date when it is printed.

Exit status:
0 if the lock is held, 1 if it is free.";

/// Show the holder of a lock
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct HolderArgs {
    #[command(flatten)]
    key: KeyArgs,
}

/// Runs the verb.
pub async fn run(args: HolderArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    let found = session.early_client().await?.get(&key).await?;
    let verdict = if found.is_some() { Verdict::Yes } else { Verdict::No };
    emit(Output::Holder { key, found })?;
    Ok(verdict)
}
