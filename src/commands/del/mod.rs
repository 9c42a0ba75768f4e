//! `del`: deletes keys.

mod args;
mod many;
mod pattern;
mod record;

use super::error::CommandError;
use super::exit::Exit;
use super::output::{Emit, Hint};
use super::scan::has_wildcard;
use super::session::Session;
use crate::client::{DeleteOutcome, RawRequest, Response};
use crate::protocol::Key;

pub use args::DelArgs;
pub use record::Deleted;
use record::Shown;

const USAGE: &str = "mqkv del KEY...";

/// A DEL of one key that is sent.
#[derive(Debug)]
pub struct DelCall {
    key: Key,
    is_missing_ignored: bool,
}

pub async fn run(args: DelArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    if args.pattern {
        return pattern::run(args, session, emit).await;
    }
    if args.keys.count() <= 1 {
        let (request, call) = prepare(args, session)?;
        return call.finish(session.early_client().await?.send(request).await?, emit);
    }
    let keys = args.keys.resolve(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let client = session.early_client().await?;
    let mut exit = Exit::Yes;
    many::delete(client, keys, fence, |answer| {
        if let Some((key, outcome)) = answer
            && report(key, outcome, args.ignore_missing, emit)? == Exit::No
        {
            exit = Exit::No;
        }
        Ok(())
    })
    .await?;
    Ok(exit)
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

fn report(
    key: Key,
    outcome: DeleteOutcome,
    ignore_missing: bool,
    emit: Emit<'_>,
) -> Result<Exit, CommandError> {
    let deleted = Deleted::new("del", key, outcome);
    if ignore_missing {
        emit(&deleted.shown(Shown::UnlessMissing))?;
        return Ok(Exit::Yes);
    }
    emit(&deleted)?;
    if deleted.exit() == Exit::No && has_wildcard(deleted.key.as_bytes()) {
        let key = String::from_utf8_lossy(deleted.key.as_bytes());
        emit(&Hint(format!("del takes keys, not patterns; for a pattern: mqkv del --pattern '{key}'")))?;
    }
    Ok(deleted.exit())
}
