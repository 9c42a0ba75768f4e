//! `unlock`: releases a lock in its holder's name.

use std::ffi::OsString;

use clap::Args;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::lock::holder_value;
use super::output::{Emit, Output};
use super::process::context::LOCK_HOLDER;
use super::session::Session;
use super::verdict::Verdict;
use crate::client::DeleteOutcome;
use crate::protocol::Key;

const USAGE: &str = "mqkv unlock KEY [--holder NAME]";

const HELP: &str = "\
Examples:
  mqkv lock deploy --once --holder ci-17 --ttl 10m
  mqkv unlock deploy --holder ci-17     in a later step of the same job

A lock that `mqkv lock` holds for a command needs no unlock.

Exit status:
0 if the lock was released, 1 if it is free already or has another holder.";

/// Release a lock that `lock --once` has acquired
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct UnlockArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Name of the lock's holder [default: MQKV_LOCK_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<OsString>,
}

impl UnlockArgs {
    /// Returns the key if no holder is named. It may be a lock that this process holds.
    #[must_use]
    pub fn key_without_holder(&self) -> Option<Key> {
        self.holder.is_none().then(|| self.key.clone().resolve_only(USAGE).ok()).flatten()
    }
}

/// Runs the verb.
pub async fn run(args: UnlockArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    let holder = args.holder.or_else(|| session.inherited_holder()).ok_or_else(|| {
        CommandError::usage(format!("no holder: --holder is missing, and {LOCK_HOLDER} is not set"))
            .hint(USAGE)
    })?;
    let holder = holder_value(&holder)?;
    let outcome = session.early_client().await?.vdel(&key, &holder, None).await?;
    let verdict = match outcome {
        DeleteOutcome::Deleted { .. } => Verdict::Yes,
        DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. } => Verdict::No,
    };
    emit(Output::Unlocked { key, holder, outcome })?;
    Ok(verdict)
}
