//! `edit`: opens the value of a key in an editor.

use std::num::NonZeroU64;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use self::draft::Draft;
use super::args::fence::FenceArgs;
use super::args::key::KeyArgs;
use super::duration;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::process::editor;
use super::session::Session;
use super::set::{expires_in, stored};
use crate::client::{Client, Reconnect, SetOptions, SetOutcome, VersionedValue};
use crate::commands::process::signal::{exit_of, write_error_of};
use crate::platform::{Signal, Signals};
use crate::protocol::{Condition, Key, Timestamp, Value};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::style::{Paint, paint};
use crate::render::{Record, Rendered, Style, Widths, confirmation, name};

mod draft;

const USAGE: &str = "mqkv edit KEY";

const HELP: &str = "\
Examples:
  mqkv edit config/line1.json
  EDITOR='code --wait' mqkv edit config/line1.json
  mqkv lock config -- mqkv edit config/line1.json --fence-env

Editor:
The editor is $VISUAL, else $EDITOR, else vi, with its options. It gets the value in a file that only this user can read, \
and that is removed afterwards. A key that does not exist begins empty. A line feed that the editor adds at the end of a \
value without one is removed. A value that is not UTF-8 is not edited.

Writing:
The key is written if the editor exits with 0, the value was changed, and the key was neither set nor deleted meanwhile. \
Otherwise the edited text stays in its file, which the message names. A new key is set only if it still does not exist.

The protocol has no conditional write of an existing key: the key is read again right before it is set, and a change by \
another client between the two, within about one round trip, is overwritten. With a lock and --fence-env no other \
client of the lock can make one.

The write ends the time to live of the key; --ttl sets a new one.

Exit status:
0 if the key was set or the value was not changed, 1 if the key was changed meanwhile, 65 if the value is not UTF-8, 74 if \
the editor failed.";

/// Edit the value of a key in an editor
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct EditArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Expire the key after DURATION: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, allow_hyphen_values = true)]
    ttl: Option<NonZeroU64>,
    #[command(flatten)]
    fence: FenceArgs,
    /// Ask the store to persist the value on disk
    #[arg(long)]
    persist: bool,
}

/// The result of `edit`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "edit")]
struct Edited {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    /// Whether the editor has changed the value.
    changed: bool,
    applied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    /// The file with the edited text, if it was not stored because the key was changed meanwhile.
    #[serde(rename = "file", skip_serializing_if = "Option::is_none", serialize_with = "json::path_if_any")]
    draft: Option<PathBuf>,
    /// The length of the value in bytes.
    #[serde(skip)]
    size: usize,
}

/// How the editor ended.
enum EditorEnd {
    Saved(Value),
    /// A signal asked this process to end.
    Signal(Signal),
}

pub async fn run(args: EditArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let mut signals = session.signals()?;
    let read = async {
        // An editor stays open for longer than many connections.
        let client = session.client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
        Ok::<_, CommandError>((client, client.get(&key).await?))
    };
    let (client, before) = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit_of(signal)),
        read = read => read?,
    };
    let original = before.as_ref().map(|found| found.value.clone()).unwrap_or_default();
    if std::str::from_utf8(&original).is_err() {
        let name = String::from_utf8_lossy(key.as_bytes());
        let error = CommandError::new(Kind::Data, format!("cannot edit {name}: the value is not UTF-8"));
        return Err(error.hint("mqkv get KEY -f FILE writes it to a file, mqkv set KEY -f FILE reads it"));
    }
    let mut draft = Draft::create(session.new_private_file("edit"), &key, original.clone())?;
    let edited = match edit(&draft, session, &mut signals).await {
        Ok(EditorEnd::Saved(edited)) => edited,
        Ok(EditorEnd::Signal(signal)) => {
            return match (draft.keep(), write_error_of(signal)) {
                (Some(kept), Some(error)) => Err(error.cause(kept)),
                _ => Ok(exit_of(signal)),
            };
        }
        Err(error) => return Err(with_cause(error, draft.keep())),
    };
    if edited == original {
        emit(&Edited::unchanged(key))?;
        return Ok(Exit::Yes);
    }
    let condition = if before.is_none() { Some(Condition::Absent) } else { None };
    let options = SetOptions { condition, ttl_ms: args.ttl, fence, persist: args.persist };
    let written = tokio::select! {
        biased;
        signal = signals.next() => {
            let error = write_error_of(signal);
            let interrupted = || CommandError::new(Kind::Interrupted, "interrupted before the answer");
            Err(error.unwrap_or_else(interrupted))
        }
        written = write(client, &key, &edited, before.as_ref(), options) => written,
    };
    match written {
        Ok(Some(outcome)) => {
            let ttl_ms = args.ttl.map(NonZeroU64::get);
            let (version, size) = (outcome.version, edited.len());
            emit(&Edited { changed: true, applied: true, ttl_ms, version, size, ..Edited::unchanged(key) })?;
            Ok(Exit::Yes)
        }
        Ok(None) => {
            draft.keep();
            let draft = Some(draft.path().to_owned());
            emit(&Edited { changed: true, draft, ..Edited::unchanged(key) })?;
            Ok(Exit::No)
        }
        Err(error) => Err(with_cause(error, draft.keep())),
    }
}

/// Runs the editor and returns the edited value.
async fn edit(draft: &Draft, session: &Session, signals: &mut Signals) -> Result<EditorEnd, CommandError> {
    if let Some(signal) = editor::run(session.editor(), draft.path(), signals).await? {
        return Ok(EditorEnd::Signal(signal));
    }
    let edited = draft.read()?;
    let had_line_end = draft.original().ends_with(b"\n");
    let stripped = edited.strip_suffix(b"\n").filter(|_| !had_line_end);
    Ok(EditorEnd::Saved(stripped.map_or_else(|| edited.clone(), |stripped| edited.slice_ref(stripped))))
}

/// Sets the key, unless it was changed since `before` was read: then it returns None.
async fn write(
    client: &Client,
    key: &Key,
    edited: &Bytes,
    before: Option<&VersionedValue>,
    options: SetOptions,
) -> Result<Option<SetOutcome>, CommandError> {
    if before.is_some() && client.get(key).await?.as_ref() != before {
        return Ok(None);
    }
    let outcome = client.set(key, edited, options).await?;
    Ok(Some(outcome).filter(|outcome| outcome.applied))
}

fn with_cause(error: CommandError, cause: Option<String>) -> CommandError {
    match cause {
        Some(cause) => error.cause(cause),
        None => error,
    }
}

impl Edited {
    fn unchanged(key: Key) -> Self {
        Self { key, changed: false, applied: false, ttl_ms: None, version: None, draft: None, size: 0 }
    }
}

impl Record for Edited {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        if let Some(file) = &self.draft {
            // The text must not be lost, so --quiet does not hide its file.
            let error = paint("error:", Paint::Error, style.color_stderr);
            let (key, file) = (name(&self.key), escape(file.as_os_str().as_encoded_bytes()));
            return Rendered::stderr(format!(
                "{error} not stored: {key} was changed meanwhile\n  the edited text is in {file}\n"
            ));
        }
        if !self.changed {
            return confirmation(|| format!("no change: {}", name(&self.key)), None, style);
        }
        // An earlier time to live has ended: the user may not expect that of an editor.
        let expires = || self.ttl_ms.map_or_else(|| ", no time to live".to_owned(), expires_in);
        stored(&self.key, self.size, expires, self.version.as_ref(), style)
    }
}
