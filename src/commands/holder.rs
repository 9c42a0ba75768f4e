//! `holder`: shows the holder of a lock.

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::client::VersionedValue;
use crate::protocol::{Details, Key, Timestamp, Value};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, detailed_line, name, negative};

const USAGE: &str = "mqkv holder KEY";

const HELP: &str = "\
Examples:
  mqkv holder deploy
  mqkv holder deploy -v                 with its token and the time left

The answer may be out of date when it is printed.

Exit status:
0 if the lock is held, 1 if it is free.";

/// Show the holder of a lock
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct HolderArgs {
    #[command(flatten)]
    key: KeyArgs,
}

/// The result of `holder`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "holder")]
struct Holder {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    held: bool,
    #[serde(flatten, serialize_with = "json::holder")]
    holder: Option<Value>,
    /// The newest fencing token.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    /// The time that is left of the lease.
    #[serde(flatten, serialize_with = "json::details")]
    details: Option<Box<Details>>,
}

pub async fn run(args: HolderArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    let response = session.early_client().await?.send(VersionedValue::detailed_request(&key)).await?;
    let holder = match VersionedValue::decode(response)? {
        Some(VersionedValue { value, version, details }) => {
            Holder { key, held: true, holder: Some(value), version, details }
        }
        None => Holder { key, held: false, holder: None, version: None, details: None },
    };
    let held = holder.held;
    emit(&holder)?;
    Ok(if held { Exit::Yes } else { Exit::No })
}

impl Record for Holder {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match &self.holder {
            Some(holder) => {
                let details = self.details.as_deref();
                detailed_line(&escape(holder), self.version.as_ref(), details, style)
            }
            None => negative(&format!("{} is free", name(&self.key)), style),
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        self.holder.as_ref()
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
    fn a_lock_is_held_or_free() {
        let key = Key::new("deploy").unwrap();
        let free = Holder { key, held: false, holder: None, version: None, details: None };
        assert_eq!(
            shown(&free, &Style::JSON).0,
            "{\"v\":1,\"op\":\"holder\",\"key\":\"deploy\",\"held\":false}\n"
        );
        assert_eq!(shown(&free, &Style::PLAIN).1, "error: deploy is free\n");
        let held = Holder { held: true, holder: Some("ci".into()), ..free };
        assert_eq!(shown(&held, &Style::LINES).0, "ci\n");
    }
}
