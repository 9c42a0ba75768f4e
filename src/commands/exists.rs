//! `exists`: shows whether a key exists.

use clap::Args;
use serde::Serialize;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::protocol::Key;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, name, negative};

const HELP: &str = "\
Examples:
  mqkv exists line1/temp && echo yes

Exit status:
0 if the key exists, 1 if not.";

/// Check whether a key exists
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct ExistsArgs {
    #[command(flatten)]
    key: KeyArgs,
}

/// The result of `exists`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exists")]
struct Existence {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    exists: bool,
}

/// Runs the verb.
pub async fn run(args: ExistsArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let key = args.key.resolve_only("mqkv exists KEY")?;
    let exists = session.early_client().await?.get(&key).await?.is_some();
    emit(&Existence { key, exists })?;
    Ok(if exists { Exit::Yes } else { Exit::No })
}

impl Record for Existence {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self.exists {
            true => Rendered::default(),
            false => negative(&format!("{} does not exist", name(&self.key)), style),
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}
