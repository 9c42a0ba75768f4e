//! `exchange status`.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use super::request::{ask, connect, put, refused, unexpected};
use super::status_record::{LeafStatus, NoLeaf, RootStatus};
use crate::clock;
use crate::commands::args::kind::ValueKind;
use crate::commands::duration;
use crate::commands::error::{CommandError, Kind};
use crate::commands::exit::Exit;
use crate::commands::number::number;
use crate::commands::output::Emit;
use crate::commands::session::Session;
use crate::protocol::exchange::{Answer, Command, Refusal};
use crate::render::Record;

/// How often the status is requested while it is waited for.
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Name of a leaf [default: all]
    #[arg(value_name = "LEAF", add = ValueKind::Leaf)]
    leaf: Option<String>,
    /// Require that N leaves or more have joined
    ///
    /// Without it, a root that no leaf has joined is synchronized.
    #[arg(long, value_name = "N", conflicts_with = "leaf", value_parser = number(0..=u64::MAX))]
    leaves: Option<u64>,
    /// Wait until all is synchronized, at most DURATION
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

pub async fn run(args: StatusArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let StatusArgs { leaf, leaves, wait } = args;
    let started = clock::monotonic();
    if let Some(wait) = wait {
        // The node may not listen yet.
        while let Err(error) = connect(session).await {
            let left = wait.saturating_sub(clock::monotonic().saturating_duration_since(started));
            if error.kind != Kind::Unavailable || left.is_zero() || *session.canceled().borrow() {
                return Err(error);
            }
            sleep(INTERVAL.min(left)).await;
        }
    }
    loop {
        let status = request(leaf.clone(), leaves, session).await?;
        let elapsed = clock::monotonic().saturating_duration_since(started);
        let is_no = !status.is_synchronized();
        match wait.map(|wait| (wait, wait.saturating_sub(elapsed))) {
            // A leaf that is unknown yet can join while it is waited for.
            Some((_, left)) if is_no && !left.is_zero() => sleep(INTERVAL.min(left)).await,
            Some((wait, _)) if is_no => {
                let mut message = format!("timed out after {}", duration::text(wait));
                match status {
                    NodeStatus::NoLeaf(NoLeaf { name, .. }) => {
                        message.push_str(&format!(": leaf not found: {name}"));
                    }
                    status => emit(status.record())?,
                }
                return Err(CommandError::new(Kind::Timeout, message));
            }
            _ => return put(emit, status.record(), !is_no),
        }
    }
}

/// The answer to a request.
enum NodeStatus {
    Root(RootStatus),
    Leaf(LeafStatus),
    NoLeaf(NoLeaf),
}

impl NodeStatus {
    fn is_synchronized(&self) -> bool {
        match self {
            Self::Root(status) => status.is_synchronized(),
            Self::Leaf(LeafStatus(report)) => report.is_synchronized,
            Self::NoLeaf(_) => false,
        }
    }

    fn record(&self) -> &dyn Record {
        match self {
            Self::Root(record) => record,
            Self::Leaf(record) => record,
            Self::NoLeaf(record) => record,
        }
    }
}

async fn request(
    leaf: Option<String>,
    leaves: Option<u64>,
    session: &Session,
) -> Result<NodeStatus, CommandError> {
    match ask(&Command::Status { leaf: leaf.clone() }, session).await? {
        Answer::Root(report) => {
            let (is_one_leaf, leaves_min) = (leaf.is_some(), leaves.unwrap_or(0));
            Ok(NodeStatus::Root(RootStatus { report, is_one_leaf, leaves_min }))
        }
        Answer::Leaf(_) if leaves.is_some() => Err(refused(&Refusal::RootOnly)),
        Answer::Leaf(report) => Ok(NodeStatus::Leaf(LeafStatus(report))),
        Answer::NotFound => Ok(NodeStatus::NoLeaf(NoLeaf { name: leaf.unwrap_or_default(), found: false })),
        _ => Err(unexpected()),
    }
}
