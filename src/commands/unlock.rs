//! `unlock`: releases a lock in its holder's name.

use std::ffi::OsString;

use clap::Args;

use super::error::CommandError;
use super::lock::{LOCK_HOLDER, holder_value};
use super::output::Output;
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::DeleteOutcome;
use crate::commands::args::key::KeyArgs;
use crate::protocol::Key;

const USAGE: &str = "mqkv unlock KEY [--holder NAME]";

const EXAMPLES: &str = "\
Examples:
  mqkv lock deploy --once --holder ci-17 --ttl 10m
  mqkv unlock deploy --holder ci-17     in a later step of the same job

Exit code 1 says that the lock is free already, or that somebody else holds it by now. \
A lock that `mqkv lock` holds for a command needs no unlock.";

/// Release a lock that was left held
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct UnlockArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// In whose name the lock is held [default: MQKV_LOCK_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<OsString>,
}

impl UnlockArgs {
    /// The key, where no holder is named: it may be a lock that this process holds.
    #[must_use]
    pub fn key_of_anybody(&self) -> Option<Key> {
        self.holder.is_none().then(|| self.key.clone().settle_alone(USAGE).ok()).flatten()
    }
}

/// Runs the verb.
pub async fn run(args: UnlockArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.settle_alone(USAGE)?;
    let holder = args.holder.or_else(|| session.inherited_holder()).ok_or_else(|| {
        CommandError::usage(format!("whose lock? --holder is missing, and {LOCK_HOLDER} is not set"))
            .hint(USAGE)
    })?;
    let holder = holder_value(&holder)?;
    let outcome = session.client().await?.vdel(&key, &holder, None).await?;
    let verdict = match outcome {
        DeleteOutcome::Deleted { .. } => Verdict::Yes,
        DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. } => Verdict::No,
    };
    emit(Output::Unlocked { key, holder, outcome })?;
    Ok(verdict)
}
