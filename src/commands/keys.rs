//! `keys`: lists keys.

use std::ffi::OsString;

use clap::Args;

use super::error::CommandError;
use super::output::Output;
use super::scan::{self, Pages};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::Reconnect;

const EXAMPLES: &str = "\
Examples:
  mqkv keys                             all of them
  mqkv keys 'line1/*'                   quote the pattern, or your shell expands it
  mqkv keys 'job/*' -0 | xargs -0 mqkv del
  mqkv keys --limit 10 -j

A pattern matches the whole key: * stands for any characters, also none and also /; ? for one; [ab], [0-9] for one of \
these, [!0-9] for one that is none of these; [*] for a star itself.

Each key is on a line of its own, with control bytes as \\xNN and a backslash as \\\\, so that it can be read back; \
-0 puts out the exact bytes, for keys without NUL in them. Keys are in no order. The store does not list keys that are not UTF-8.

No key at all is an answer, too: exit code 0.";

/// List keys
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct KeysArgs {
    /// What the keys must match [default: *]
    #[arg(value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// No more than so many keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Exact bytes, and a NUL byte after each key
    #[arg(short = '0', long = "null")]
    null: bool,
}

/// Runs the verb.
pub async fn run(args: KeysArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let pattern = scan::pattern(args.pattern)?;
    let client = session.client_that(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
    let mut pages = Pages::begin(client, pattern);
    let mut left = args.limit.unwrap_or(u64::MAX);
    while let Some(keys) = pages.next().await? {
        for key in keys {
            emit(Output::Listed { key, null: args.null })?;
            left = left.saturating_sub(1);
            if left == 0 {
                return Ok(Verdict::Yes);
            }
        }
    }
    Ok(Verdict::Yes)
}
