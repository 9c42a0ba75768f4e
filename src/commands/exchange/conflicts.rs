//! `exchange conflicts`.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use super::conflict_record::Conflict;
use super::request::{ask, unexpected};
use crate::client::WatchEvent;
use crate::clock;
use crate::commands::args::kind::ValueKind;
use crate::commands::error::CommandError;
use crate::commands::exit::Exit;
use crate::commands::number::number;
use crate::commands::output::Emit;
use crate::commands::session::Session;
use crate::commands::watch::record::Watched;
use crate::protocol::exchange::{Answer, Command, ConflictPage};

/// How often new conflicts are requested.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most conflicts of one request.
const PAGE_MAX: u64 = 500;

#[derive(Debug, Args)]
pub struct ConflictsArgs {
    /// Only changes of this leaf
    #[arg(long, value_name = "LEAF", add = ValueKind::Leaf)]
    leaf: Option<String>,
    /// Only conflicts after this one
    #[arg(long, value_name = "ID", add = ValueKind::Conflict, value_parser = number(0..=u64::MAX))]
    since: Option<u64>,
    /// Go on with new conflicts until a signal
    #[arg(long)]
    follow: bool,
}

impl ConflictsArgs {
    pub fn is_follow(&self) -> bool {
        self.follow
    }
}

pub async fn run(args: ConflictsArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let mut since = args.since.unwrap_or(0);
    let (mut is_first, mut is_lost) = (true, false);
    loop {
        let page = match request(args.leaf.clone(), since, session).await {
            // The session connects again; what has happened meanwhile is listed then.
            Err(error) if args.follow && !is_first && error.is_retryable() && !session.has_ended() => {
                if !std::mem::replace(&mut is_lost, true) {
                    emit(&lost(error.message))?;
                }
                sleep(INTERVAL).await;
                continue;
            }
            page => page?,
        };
        (is_first, is_lost) = (false, false);
        since = page.last;
        for conflict in page.conflicts {
            emit(&Conflict { conflict, now_ms: clock::wall_ms() })?;
        }
        match (page.is_complete, args.follow) {
            (false, _) => {}
            (true, true) => sleep(INTERVAL).await,
            (true, false) => return Ok(Exit::Yes),
        }
    }
}

/// Returns the record of a lost connection, as that of a watch.
fn lost(cause: String) -> Watched {
    let received_ms = clock::wall_ms();
    let event = WatchEvent::Lost { since_ms: received_ms, cause };
    Watched { event, received_ms, sequence: None }
}

async fn request(leaf: Option<String>, since: u64, session: &Session) -> Result<ConflictPage, CommandError> {
    match ask(&Command::Conflicts { leaf, since, max: PAGE_MAX }, session).await? {
        Answer::Conflicts(page) => Ok(page),
        _ => Err(unexpected()),
    }
}
