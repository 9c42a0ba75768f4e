//! `exchange status`.

use std::time::Duration;

use tokio::time::sleep;

use super::record::ExchangeRecord;
use super::request::{ask, put, unexpected};
use crate::clock;
use crate::commands::duration;
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::Emit;
use crate::commands::session::Session;
use crate::commands::verdict::Verdict;
use crate::protocol::exchange::{Answer, Command};

/// How often the status is requested while it is waited for.
const INTERVAL: Duration = Duration::from_millis(250);

/// Runs the verb.
pub async fn run(
    leaf: Option<String>,
    wait: Option<Duration>,
    session: &Session,
    emit: Emit<'_>,
) -> Result<Verdict, CommandError> {
    let started = clock::monotonic();
    loop {
        let record = request(leaf.clone(), session).await?;
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

async fn request(leaf: Option<String>, session: &Session) -> Result<ExchangeRecord, CommandError> {
    match ask(&Command::Status { leaf: leaf.clone() }, session).await? {
        Answer::Root(report) => Ok(ExchangeRecord::Root { is_one_leaf: leaf.is_some(), report }),
        Answer::Leaf(report) => Ok(ExchangeRecord::Leaf(report)),
        Answer::NotFound => Ok(ExchangeRecord::NoLeaf { name: leaf.unwrap_or_default() }),
        _ => Err(unexpected()),
    }
}
