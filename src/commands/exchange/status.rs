//! `exchange status`.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use super::record::ExchangeRecord;
use super::request::{ask, put, refused, unexpected};
use crate::clock;
use crate::commands::args::kind::ValueKind;
use crate::commands::duration;
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::Emit;
use crate::commands::session::Session;
use crate::commands::verdict::Verdict;
use crate::protocol::exchange::{Answer, Command, Refusal};

/// How often the status is requested while it is waited for.
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Name of a leaf [default: all]
    #[arg(value_name = "LEAF", add = ValueKind::Leaf)]
    leaf: Option<String>,
    /// Require that N leaves or more have joined
    ///
    /// Without it, a root that no leaf has joined is synchronised.
    #[arg(long, value_name = "N", conflicts_with = "leaf")]
    leaves: Option<u64>,
    /// Wait until all is synchronised, at most DURATION
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// Runs the verb.
pub async fn run(args: StatusArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let StatusArgs { leaf, leaves, wait } = args;
    let started = clock::monotonic();
    loop {
        let record = request(leaf.clone(), leaves, session).await?;
        let elapsed = clock::monotonic().saturating_duration_since(started);
        let is_no = record.is_no();
        match wait.map(|wait| (wait, wait.saturating_sub(elapsed))) {
            // A leaf that is unknown yet can join while it is waited for.
            Some((_, left)) if is_no && !left.is_zero() => sleep(INTERVAL.min(left)).await,
            Some((wait, _)) if is_no => {
                let mut message = format!("timed out after {}", duration::text(wait));
                match record {
                    ExchangeRecord::NoLeaf { name } => message.push_str(&format!(": leaf not found: {name}")),
                    record => drop(put(emit, record)?),
                }
                return Err(CommandError::new(Kind::Timeout, message));
            }
            _ => return put(emit, record),
        }
    }
}

async fn request(
    leaf: Option<String>,
    leaves: Option<u64>,
    session: &Session,
) -> Result<ExchangeRecord, CommandError> {
    match ask(&Command::Status { leaf: leaf.clone() }, session).await? {
        Answer::Root(report) => {
            let (is_one_leaf, leaves_min) = (leaf.is_some(), leaves.unwrap_or(0));
            Ok(ExchangeRecord::Root { is_one_leaf, leaves_min, report })
        }
        Answer::Leaf(_) if leaves.is_some() => Err(refused(&Refusal::RootOnly)),
        Answer::Leaf(report) => Ok(ExchangeRecord::Leaf(report)),
        Answer::NotFound => Ok(ExchangeRecord::NoLeaf { name: leaf.unwrap_or_default() }),
        _ => Err(unexpected()),
    }
}
