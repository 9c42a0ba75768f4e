//! `keys`: lists keys.

use std::ffi::OsString;

use clap::Args;

use super::error::CommandError;
use super::output::{Emit, Output};
use super::scan::{self, Pages};
use super::session::Session;
use super::verdict::Verdict;
use crate::client::Reconnect;
use crate::protocol::Key;

const HELP: &str = "\
Examples:
  mqkv keys                             all keys
  mqkv keys 'line1/*'                   quoted, because of the shell
  mqkv keys 'job/*' -0 | xargs -0 -r mqkv del
  mqkv keys --count 'line1/*'           only their number
  mqkv keys --sort --limit 10 -j

Patterns:
A pattern matches the whole key. * matches any number of characters, including / and none; ? matches one character; \
[ab] and [0-9] match one of these characters, [!0-9] one that is none of these; [*] matches a star.

Output:
One key per line, in no particular order unless --sort is given. Control bytes are escaped as \\xNN and a backslash as \\\\, so that the output \
can be read back. -0 prints the exact bytes. Only `mqkv serve` is known to list keys that are not UTF-8: other brokers may leave them out, and do not \
say so.

Exit status:
0, even if no key matches.";

/// List keys
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct KeysArgs {
    /// Pattern of the keys [default: *]
    #[arg(value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// Sort the keys by their bytes
    ///
    /// The output begins when all keys have been listed.
    #[arg(long)]
    sort: bool,
    /// Print only the number of keys
    #[arg(long, conflicts_with_all = ["sort", "limit", "null"])]
    count: bool,
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
    let hint = scan::literal_hint(&pattern, "keys");
    let client = session.early_client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
    let mut pages = Pages::request(client, pattern);
    let mut listed = 0_u64;
    let mut unsorted = Vec::new();
    while let Some(keys) = pages.next().await? {
        if args.sort {
            unsorted.extend(keys);
            continue;
        }
        for key in keys {
            listed = listed.saturating_add(1);
            if !args.count {
                emit(Output::Listed { key, null: args.null })?;
            }
            if args.limit == Some(listed) {
                return Ok(Verdict::Yes);
            }
        }
    }
    unsorted.sort_unstable_by(|one: &Key, other| one.as_bytes().cmp(other.as_bytes()));
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let is_empty = listed == 0 && unsorted.is_empty();
    for key in unsorted.into_iter().take(limit) {
        emit(Output::Listed { key, null: args.null })?;
    }
    if args.count {
        emit(Output::Counted(listed))?;
    }
    if let Some(hint) = hint.filter(|_| is_empty) {
        emit(Output::Hint(hint))?;
    }
    Ok(Verdict::Yes)
}
