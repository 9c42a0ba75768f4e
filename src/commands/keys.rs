//! `keys`: lists keys.

use std::ffi::OsString;

use clap::Args;

use super::error::CommandError;
use super::output::{Emit, Output};
use super::scan::{self, Pages};
use super::session::Session;
use super::verdict::Verdict;
use crate::client::Reconnect;

const HELP: &str = "\
Examples:
  mqkv keys                             all keys
  mqkv keys 'line1/*'                   quote the pattern, or the shell expands it
  mqkv keys 'job/*' -0 | xargs -0 mqkv del
  mqkv keys --limit 10 -j

Patterns:
A pattern matches the whole key. * matches any number of characters, including / and none; ? matches one character; \
[ab] and [0-9] match one of these characters, [!0-9] one that is none of these; [*] matches a star.

Output:
One key per line, in no particular order. Control bytes are escaped as \\xNN and a backslash as \\\\, so that the output \
can be read back. -0 prints the exact bytes. Keys that are not UTF-8 are not listed by the store.

Exit status:
0, even if no key matches.";

/// List keys
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct KeysArgs {
    /// Pattern of the keys [default: *]
    #[arg(value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// Maximum number of keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// End each key with NUL, without escapes
    #[arg(short = '0', long = "null")]
    null: bool,
}

/// Runs the verb.
pub async fn run(args: KeysArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let pattern = scan::pattern(args.pattern)?;
    let client = session.client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
    let mut pages = Pages::request(client, pattern);
    let mut listed = 0_u64;
    while let Some(keys) = pages.next().await? {
        for key in keys {
            emit(Output::Listed { key, null: args.null })?;
            listed = listed.saturating_add(1);
            if args.limit == Some(listed) {
                return Ok(Verdict::Yes);
            }
        }
    }
    Ok(Verdict::Yes)
}
