//! `del`: deletes keys.

use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use super::args::fence::FenceArgs;
use super::args::key::KeyListArgs;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::client::{Client, DeleteOutcome, Error, Outcome, RawRequest, Response};
use crate::protocol::{Key, Timestamp};
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, confirmation, name, negative, not_found};

const USAGE: &str = "mqkv del KEY...";

const HELP: &str = "\
Examples:
  mqkv del line1/temp
  mqkv del a b c
  mqkv del old --ignore-missing

Several keys are deleted concurrently, each by a request of its own. In a pipe nothing is printed.

Exit status:
0 if all keys were deleted, 1 if one of them did not exist.";

/// Delete keys
#[derive(Debug, Default, Args)]
#[command(visible_aliases = ["delete", "rm"], after_long_help = HELP)]
pub struct DelArgs {
    #[command(flatten)]
    keys: KeyListArgs,
    /// Exit with 0 even if a key does not exist
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    fence: FenceArgs,
}

impl DelArgs {
    /// Deletes keys; a missing key is a "no".
    #[must_use]
    pub fn plain(keys: KeyListArgs, fence: FenceArgs) -> Self {
        Self { keys, fence, ignore_missing: false }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.count()
    }
}

/// A DEL of one key that is sent.
#[derive(Debug)]
pub struct DelCall {
    key: Key,
    is_missing_ignored: bool,
}

/// The result of `del` or `vdel` for one key.
#[derive(Debug, Serialize)]
pub struct Deleted {
    op: &'static str,
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    /// The number of deleted keys.
    deleted: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<NotDeleted>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    #[serde(skip)]
    is_missing_ignored: bool,
}

/// Why a key was not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NotDeleted {
    Missing,
    ValueDiffers,
}

pub async fn run(args: DelArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    if args.count() <= 1 {
        let (request, call) = prepare(args, session)?;
        return call.finish(session.early_client().await?.send(request).await?, emit);
    }
    let keys = args.keys.resolve(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let client = session.early_client().await?;
    let count = keys.len();
    let results = delete_all(client, &keys, fence).await;
    let mut exit = Exit::Yes;
    let mut failures = Vec::new();
    for (key, result) in keys.into_iter().zip(results) {
        match result {
            Ok(outcome) => {
                if report(key, outcome, args.ignore_missing, emit)? == Exit::No {
                    exit = Exit::No;
                }
            }
            Err(error) => failures.push((key, error)),
        }
    }
    if failures.is_empty() { Ok(exit) } else { Err(summary(failures, count)) }
}

/// Returns the request of the verb for one key.
pub fn prepare(args: DelArgs, session: &Session) -> Result<(RawRequest, DelCall), CommandError> {
    let key = args.keys.resolve_only(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let request = DeleteOutcome::request(&key, None, fence);
    Ok((request, DelCall { key, is_missing_ignored: args.ignore_missing }))
}

impl DelCall {
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Exit, CommandError> {
        report(self.key, DeleteOutcome::decode(response, false)?, self.is_missing_ignored, emit)
    }
}

/// Deletes all keys concurrently; returns the results in the order of the keys.
async fn delete_all(
    client: &Client,
    keys: &[Key],
    fence: Option<Timestamp>,
) -> Vec<Result<DeleteOutcome, CommandError>> {
    let mut requests = JoinSet::new();
    for (index, key) in keys.iter().enumerate() {
        let (client, key, fence) = (client.clone(), key.clone(), fence.clone());
        requests.spawn(async move { (index, client.del(&key, fence).await) });
    }
    let mut results: Vec<_> = keys.iter().map(|_| Err(Error::Closed.into())).collect();
    while let Some(joined) = requests.join_next().await {
        // If a task panicked, its key keeps the error that the session was closed.
        if let Ok((index, result)) = joined
            && let Some(place) = results.get_mut(index)
        {
            *place = result.map_err(CommandError::from);
        }
    }
    results
}

fn report(
    key: Key,
    outcome: DeleteOutcome,
    ignore_missing: bool,
    emit: Emit<'_>,
) -> Result<Exit, CommandError> {
    let deleted = Deleted { is_missing_ignored: ignore_missing, ..Deleted::new("del", key, outcome) };
    emit(&deleted)?;
    Ok(if ignore_missing { Exit::Yes } else { deleted.exit() })
}

impl Deleted {
    /// Creates the record of a verb.
    #[must_use]
    pub fn new(op: &'static str, key: Key, outcome: DeleteOutcome) -> Self {
        let (reason, version) = match outcome {
            DeleteOutcome::Deleted { version } => (None, version),
            DeleteOutcome::Missing => (Some(NotDeleted::Missing), None),
            DeleteOutcome::ValueDiffers { version } => (Some(NotDeleted::ValueDiffers), version),
        };
        let deleted = u8::from(reason.is_none());
        Self { op, key, deleted, reason, version, is_missing_ignored: false }
    }

    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.reason.is_none() { Exit::Yes } else { Exit::No }
    }
}

impl Record for Deleted {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self.reason {
            None => confirmation(|| format!("deleted {}", name(&self.key)), self.version.as_ref(), style),
            Some(NotDeleted::Missing) if self.is_missing_ignored => Rendered::default(),
            Some(NotDeleted::Missing) => not_found(&self.key, style),
            Some(NotDeleted::ValueDiffers) => {
                negative(&format!("not deleted: {} has another value", name(&self.key)), style)
            }
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

/// Returns the first failure, with the keys of all.
fn summary(failures: Vec<(Key, CommandError)>, count: usize) -> CommandError {
    const NAMES_MAX: usize = 5;
    let failed = failures.len();
    let unknown = failures.iter().any(|(_, error)| error.outcome == Some(Outcome::Unknown));
    let names: Vec<_> = failures
        .iter()
        .take(NAMES_MAX)
        .map(|(key, _)| String::from_utf8_lossy(key.as_bytes()).into_owned())
        .collect();
    let more = if failed > NAMES_MAX { ", ..." } else { "" };
    let causes = vec![format!("{failed} of {count} keys failed: {}{more}", names.join(", "))];
    let first = failures.into_iter().next().map(|(_, error)| error);
    let first = first.unwrap_or_else(|| CommandError::new(Kind::Bug, "a failure without an error"));
    let outcome = match unknown {
        true => Some(Outcome::Unknown),
        // Other keys were deleted: "nothing was changed" would be wrong.
        false if failed < count => None,
        false => first.outcome,
    };
    CommandError { causes, outcome, ..first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn deleted(op: &'static str, outcome: DeleteOutcome) -> Deleted {
        Deleted::new(op, Key::new("k").unwrap(), outcome)
    }

    #[test]
    fn a_deletion_counts_and_gives_its_reason() {
        let json = |op, outcome| shown(&deleted(op, outcome), &Style::JSON).0;
        assert_eq!(
            json("del", DeleteOutcome::Deleted { version: None }),
            "{\"v\":1,\"op\":\"del\",\"key\":\"k\",\"deleted\":1}\n"
        );
        assert_eq!(
            json("vdel", DeleteOutcome::ValueDiffers { version: None }),
            "{\"v\":1,\"op\":\"vdel\",\"key\":\"k\",\"deleted\":0,\"reason\":\"value-differs\"}\n"
        );
    }

    #[test]
    fn a_no_goes_to_standard_error() {
        let differs = deleted("vdel", DeleteOutcome::ValueDiffers { version: None });
        let message = "error: not deleted: k has another value\n";
        assert_eq!(shown(&differs, &Style::PLAIN), (String::new(), message.to_owned()));
        assert_eq!(shown(&differs, &Style::LINES), (String::new(), message.to_owned()), "also in a pipe");
        assert_eq!(shown(&differs, &Style::QUIET), Default::default());
        let ignored = Deleted { is_missing_ignored: true, ..deleted("del", DeleteOutcome::Missing) };
        assert_eq!(shown(&ignored, &Style::PLAIN), Default::default());
    }
}
