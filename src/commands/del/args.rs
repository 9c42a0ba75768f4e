//! Arguments of `del`.

use clap::Args;

use crate::client::Access;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::KeyListArgs;

const HELP: &str = "\
Examples:
  mqkv del line1/temp
  mqkv del a b c
  mqkv del old --ignore-missing
  mqkv del --pattern 'job/*'            asks first
  mqkv del --pattern 'job/*' --dry-run  prints what it would delete

Several keys are deleted concurrently, each by a request of its own. In a pipe nothing is printed.

Patterns:
A KEY is a pattern only with --pattern; without it, * is a character of a key. Patterns are those of `mqkv keys`. The keys that match are \
listed, and deleted if the answer to the question is y. Without a terminal, and in a script, --yes is required in place of the question. A key \
that is created after the list stays. If the store refuses to delete a key, because of its fencing token or its rules, the other keys are \
deleted all the same.

Exit status:
0 if all keys were deleted, 1 if one of them did not exist. With --pattern, 0 if no key that matched is left, 1 if none matched or the \
answer was no.";

/// Delete keys
#[derive(Debug, Default, Args)]
#[command(visible_aliases = ["delete", "rm"], after_long_help = HELP)]
pub struct DelArgs {
    #[command(flatten)]
    pub keys: KeyListArgs,
    /// Delete the keys that match; each KEY is a pattern
    #[arg(long, conflicts_with_all = ["key_options", "key_hex", "key_base64"])]
    pub pattern: bool,
    /// Print the keys that match, and delete nothing
    #[arg(long, requires = "pattern")]
    pub dry_run: bool,
    /// Delete without a question
    #[arg(short = 'y', long, requires = "pattern")]
    yes: bool,
    /// Exit with 0 even if a key does not exist
    #[arg(long)]
    pub ignore_missing: bool,
    #[command(flatten)]
    pub fence: FenceArgs,
}

impl DelArgs {
    /// Deletes keys; a missing key is a "no".
    #[must_use]
    pub fn plain(keys: KeyListArgs, fence: FenceArgs) -> Self {
        Self { keys, fence, ..Self::default() }
    }

    /// Returns whether one key is deleted, by one request.
    #[must_use]
    pub fn is_single(&self) -> bool {
        !self.pattern && self.keys.count() == 1
    }

    /// Returns whether keys are deleted by pattern, so that there can be many.
    #[must_use]
    pub fn has_pattern(&self) -> bool {
        self.pattern
    }

    /// Returns whether the verb asks on the terminal before it deletes.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.pattern && !self.yes && !self.dry_run
    }

    /// Returns whether the verb may change the store.
    #[must_use]
    pub fn access(&self) -> Access {
        if self.dry_run { Access::Read } else { Access::Write }
    }
}
