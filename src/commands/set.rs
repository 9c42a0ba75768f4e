//! `set`: writes a key.

use std::num::NonZeroU64;

use bytes::Bytes;
use clap::Args;

use super::duration;
use super::error::CommandError;
use super::output::Output;
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::SetOptions;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::KeyArgs;
use crate::commands::args::value::ValueArgs;
use crate::protocol::Condition;

const USAGE: &str = "mqkv set KEY VALUE";

const EXAMPLES: &str = "\
Examples:
  mqkv set line1/temp 21.5
  mqkv set line1/temp -5                negative numbers need no --
  mqkv set config -f config.json        from a file
  date | mqkv set started - --strip-newline
  mqkv set job/7 worker-3 --nx --ttl 30s
  mqkv set flags --hex 00ff

VALUE is literal: no @file, no escapes. Exit code 1 says that the condition of --nx or --nex does not hold.";

/// Write a key
///
/// Prints nothing in a pipe.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SetArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    value: ValueArgs,
    /// Let the key expire after this time, for example 250ms, 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, allow_hyphen_values = true)]
    ttl: Option<NonZeroU64>,
    /// Only if there is no such key
    #[arg(long, visible_alias = "if-absent", conflicts_with = "nex")]
    nx: bool,
    /// Only if there is no such key, or it holds this very value
    #[arg(long, visible_alias = "if-absent-or-equal")]
    nex: bool,
    #[command(flatten)]
    fence: FenceArgs,
    /// Ask the store to keep the value on disk
    #[arg(long)]
    persist: bool,
    /// Take one line feed (or CR LF) off the end of the value
    #[arg(long)]
    strip_newline: bool,
}

impl SetArgs {
    /// Writes a key under a condition, for a time.
    #[must_use]
    pub fn plain(
        key: KeyArgs,
        value: ValueArgs,
        condition: Option<Condition>,
        ttl: Option<NonZeroU64>,
    ) -> Self {
        let nx = condition == Some(Condition::Absent);
        let nex = condition == Some(Condition::AbsentOrEqual);
        Self { key, value, ttl, nx, nex, ..Self::default() }
    }

    /// Whether the value comes from a file: so much may not be in memory many times over.
    #[must_use]
    pub fn reads_file(&self) -> bool {
        self.value.reads_file()
    }

    /// The same with a fencing token, and kept on disk if asked to.
    #[must_use]
    pub fn stamped(self, fence: FenceArgs, persist: bool) -> Self {
        Self { fence, persist, ..self }
    }
}

/// Runs the verb.
pub async fn run(args: SetArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let (key, word) = args.key.settle(USAGE)?;
    let fence = args.fence.settle(session)?;
    let value = args.value.settle(word, USAGE, session)?;
    let value = if args.strip_newline { strip_newline(&value) } else { value };
    let condition = match (args.nx, args.nex) {
        (true, _) => Some(Condition::Absent),
        (_, true) => Some(Condition::AbsentOrEqual),
        _ => None,
    };
    let options = SetOptions { condition, ttl_ms: args.ttl, fence, persist: args.persist };
    let outcome = session.client().await?.set(&key, &value, options).await?;
    let verdict = if outcome.applied { Verdict::Yes } else { Verdict::No };
    emit(Output::Set { key, size: value.len(), ttl_ms: args.ttl.map(NonZeroU64::get), condition, outcome })?;
    Ok(verdict)
}

fn strip_newline(value: &Bytes) -> Bytes {
    let stripped = value.strip_suffix(b"\n").unwrap_or(value);
    let stripped = if stripped.len() < value.len() {
        stripped.strip_suffix(b"\r").unwrap_or(stripped)
    } else {
        stripped
    };
    value.slice_ref(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_stripped_and_no_more() {
        for (value, stripped) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a\r", "a\r"), ("\n", ""), ("", "")]
        {
            assert_eq!(strip_newline(&Bytes::from(value)), stripped, "{value:?}");
        }
    }
}
