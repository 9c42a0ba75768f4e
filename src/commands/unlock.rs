//! `unlock`: releases a lock in its holder's name.

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::exit::Exit;
use super::lock::holder_value;
use super::output::Emit;
use super::process::context::LOCK_HOLDER;
use super::session::Session;
use crate::client::DeleteOutcome;
use crate::protocol::{Key, Value};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, confirmation, name, negative};

const USAGE: &str = "mqkv unlock KEY [--holder NAME]";

const HELP: &str = "\
Examples:
  mqkv lock deploy --once --holder ci-17 --ttl 10m
  mqkv unlock deploy --holder ci-17     in a later step of the same job

A lock that `mqkv lock` holds for a command needs no unlock.

Exit status:
0 if the lock was released, 1 if it is free already or has another holder.";

/// Release a lock that `lock --once` has acquired
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct UnlockArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Name of the lock's holder [default: MQKV_LOCK_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<OsString>,
}

impl UnlockArgs {
    /// Returns the key if no holder is named. It may be a lock that this process holds.
    #[must_use]
    pub fn key_without_holder(&self) -> Option<Key> {
        self.holder.is_none().then(|| self.key.clone().resolve_only(USAGE).ok()).flatten()
    }
}

/// The result of `unlock`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "unlock")]
struct Unlocked {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    #[serde(flatten, serialize_with = "json::holder")]
    holder: Value,
    released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<NotReleased>,
}

/// Why a lock was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NotReleased {
    Free,
    HeldByAnother,
}

pub async fn run(args: UnlockArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    let holder = args.holder.or_else(|| session.inherited_holder()).ok_or_else(|| {
        CommandError::usage(format!("no holder: --holder is missing, and {LOCK_HOLDER} is not set"))
            .hint(USAGE)
    })?;
    let holder = holder_value(&holder)?;
    let outcome = session.early_client().await?.vdel(&key, &holder, None).await?;
    let reason = match outcome {
        DeleteOutcome::Deleted { .. } => None,
        DeleteOutcome::Missing => Some(NotReleased::Free),
        DeleteOutcome::ValueDiffers { .. } => Some(NotReleased::HeldByAnother),
    };
    let released = reason.is_none();
    emit(&Unlocked { key, holder, released, reason })?;
    Ok(if released { Exit::Yes } else { Exit::No })
}

impl Record for Unlocked {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let key = name(&self.key);
        match self.reason {
            None => confirmation(|| format!("released {key}"), None, style),
            Some(NotReleased::Free) => negative(&format!("not released: {key} is free"), style),
            Some(NotReleased::HeldByAnother) => {
                negative(&format!("not released: {key} is not held by {}", escape(&self.holder)), style)
            }
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    #[test]
    fn a_lock_that_was_not_released_has_a_reason() {
        let (key, holder) = (Key::new("deploy").unwrap(), "ci".into());
        let free = Unlocked { key, holder, released: false, reason: Some(NotReleased::Free) };
        assert_eq!(
            shown(&free, &Style::JSON).0,
            "{\"v\":1,\"op\":\"unlock\",\"key\":\"deploy\",\"holder\":\"ci\",\"released\":false,\
             \"reason\":\"free\"}\n"
        );
        assert_eq!(shown(&free, &Style::LINES).1, "error: not released: deploy is free\n");
        let other = Unlocked { reason: Some(NotReleased::HeldByAnother), ..free };
        assert!(shown(&other, &Style::JSON).0.ends_with("\"reason\":\"held-by-another\"}\n"));
    }
}
