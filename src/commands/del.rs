//! `del`: removes keys.

use clap::Args;
use tokio::task::JoinSet;

use super::error::{CommandError, Kind};
use super::output::{Deletion, Output};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::{Client, DeleteOutcome, Error, Outcome};
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::KeysArgs;
use crate::protocol::{Key, Timestamp};

const EXAMPLES: &str = "\
Examples:
  mqkv del line1/temp
  mqkv del a b c                        side by side
  mqkv del old --ignore-missing

Exit code 1 says that one of the keys did not exist.";

/// Remove keys
///
/// Several keys are removed side by side, each on its own. Prints nothing in a pipe.
#[derive(Debug, Default, Args)]
#[command(visible_aliases = ["delete", "rm"], after_long_help = EXAMPLES)]
pub struct DelArgs {
    #[command(flatten)]
    keys: KeysArgs,
    /// Take it for success if there is no such key
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    fence: FenceArgs,
}

impl DelArgs {
    /// Removes keys, and no more than that.
    #[must_use]
    pub fn plain(keys: KeysArgs, fence: FenceArgs) -> Self {
        Self { keys, fence, ignore_missing: false }
    }

    /// How many keys are to be removed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.count()
    }
}

/// Runs the verb.
pub async fn run(args: DelArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let keys = args.keys.settle("mqkv del KEY...")?;
    let fence = args.fence.settle(session)?;
    let client = session.client().await?;
    if let [key] = keys.as_slice() {
        let outcome = client.del(key, fence).await?;
        return put(key.clone(), outcome, args.ignore_missing, emit);
    }
    let count = keys.len();
    let answers = delete_all(client, &keys, fence).await;
    let mut verdict = Verdict::Yes;
    let mut failures = Vec::new();
    for (key, answer) in keys.into_iter().zip(answers) {
        match answer {
            Ok(outcome) => {
                if put(key, outcome, args.ignore_missing, emit)? == Verdict::No {
                    verdict = Verdict::No;
                }
            }
            Err(error) => failures.push((key, error)),
        }
    }
    if failures.is_empty() { Ok(verdict) } else { Err(summary(failures, count)) }
}

/// Asks for all keys at once; the answers come back in the order of the keys.
async fn delete_all(
    client: &Client,
    keys: &[Key],
    fence: Option<Timestamp>,
) -> Vec<Result<DeleteOutcome, CommandError>> {
    let mut asked = JoinSet::new();
    for (index, key) in keys.iter().enumerate() {
        let (client, key, fence) = (client.clone(), key.clone(), fence.clone());
        asked.spawn(async move { (index, client.del(&key, fence).await) });
    }
    let mut answers: Vec<_> = keys.iter().map(|_| Err(Error::Closed.into())).collect();
    while let Some(joined) = asked.join_next().await {
        // A task that panicked leaves its key with the answer that the session was closed.
        if let Ok((index, answer)) = joined
            && let Some(place) = answers.get_mut(index)
        {
            *place = answer.map_err(CommandError::from);
        }
    }
    answers
}

fn put(
    key: Key,
    outcome: DeleteOutcome,
    ignore_missing: bool,
    emit: Emit<'_>,
) -> Result<Verdict, CommandError> {
    let gone = matches!(outcome, DeleteOutcome::Deleted { .. }) || ignore_missing;
    emit(Output::Deleted { verb: Deletion::Del, key, outcome })?;
    Ok(if gone { Verdict::Yes } else { Verdict::No })
}

/// The first failure speaks for all, and says which keys they were.
fn summary(failures: Vec<(Key, CommandError)>, count: usize) -> CommandError {
    /// More names than these would push the error itself off the screen.
    const NAMES_MAX: usize = 5;
    let failed = failures.len();
    let unknown = failures.iter().any(|(_, error)| error.outcome == Some(Outcome::Unknown));
    let names: Vec<_> = failures
        .iter()
        .take(NAMES_MAX)
        .map(|(key, _)| String::from_utf8_lossy(key.as_bytes()).into_owned())
        .collect();
    let more = if failed > NAMES_MAX { ", ..." } else { "" };
    let causes = vec![format!("{failed} of {count} keys: {}{more}", names.join(", "))];
    let first = failures.into_iter().next().map(|(_, error)| error);
    let first = first.unwrap_or_else(|| CommandError::new(Kind::Bug, "a failure without an error"));
    let outcome = match unknown {
        true => Some(Outcome::Unknown),
        // Other keys were deleted: "nothing was changed" would be a lie.
        false if failed < count => None,
        false => first.outcome,
    };
    CommandError { causes, outcome, ..first }
}
