//! `set`: sets the value of a key.

use std::num::NonZeroU64;

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::args::fence::FenceArgs;
use super::args::key::KeyArgs;
use super::args::value::ValueArgs;
use super::duration;
use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::client::{RawRequest, Response, SetOptions, SetOutcome};
use crate::protocol::{Condition, Key, Timestamp};
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, confirmation, counted, name, negative, notice};

const USAGE: &str = "mqkv set KEY VALUE";

const WAITS: &str = "the change waits: this leaf is not linked with the root of the exchange";

const HELP: &str = "\
Examples:
  mqkv set line1/temp 21.5
  mqkv set line1/temp -5
  mqkv set config -f config.json        read the value from a file
  date | mqkv set started - --strip-newline
  mqkv set job/7 worker-3 --nx --ttl 30s
  mqkv set flags --hex 00ff

VALUE is literal: there is no @file and there are no escapes. A negative number needs no --. In a pipe nothing is printed.

A leaf of an exchange that is not linked with its root stores the value, and sends the change later: a message on a terminal reports it, and \
pending in JSON.

Exit status:
0 if the key was set, 1 if the condition of --nx or --nex does not hold.";

/// Set the value of a key
#[derive(Debug, Default, Args)]
#[command(after_long_help = HELP)]
pub struct SetArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    value: ValueArgs,
    /// Expire the key after DURATION: 250ms, 30s, 5m
    ///
    /// See `mqkv help ttl`.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, allow_hyphen_values = true)]
    ttl: Option<NonZeroU64>,
    /// Set only if the key does not exist
    #[arg(long, visible_alias = "if-absent", conflicts_with = "nex")]
    nx: bool,
    /// Set only if the key is missing or has this value
    #[arg(long, visible_alias = "if-absent-or-equal")]
    nex: bool,
    #[command(flatten)]
    fence: FenceArgs,
    /// Ask the store to persist the value on disk
    #[arg(long)]
    persist: bool,
    /// Remove a line feed from the end of the value
    ///
    /// Removes one LF, or CR LF.
    #[arg(long)]
    strip_newline: bool,
}

impl SetArgs {
    /// Sets a key, with a condition and a time to live in milliseconds.
    #[must_use]
    pub fn plain(
        key: KeyArgs,
        value: ValueArgs,
        condition: Option<Condition>,
        ttl: Option<NonZeroU64>,
    ) -> Self {
        let nx = condition == Some(Condition::Absent);
        let nex = condition == Some(Condition::AbsentOrEqual);
        Self { key, value, ttl, nx, nex, ..Self::default() }
    }

    /// Returns whether the value is read from a file, and so may be large.
    #[must_use]
    pub fn reads_file(&self) -> bool {
        self.value.reads_file()
    }

    /// Adds a fencing token, and whether the value is persisted.
    #[must_use]
    pub fn with_fence(self, fence: FenceArgs, persist: bool) -> Self {
        Self { fence, persist, ..self }
    }
}

/// A SET that is sent.
#[derive(Debug)]
pub struct SetCall {
    key: Key,
    size: usize,
    ttl_ms: Option<u64>,
    condition: Option<Condition>,
}

/// The result of `set`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "set")]
struct SetRecord {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    applied: bool,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::condition")]
    condition: Option<Condition>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    /// None if the key was not set, or does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// Whether the change waits at a leaf of an exchange.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
    /// The length of the value in bytes.
    #[serde(skip)]
    size: usize,
}

pub async fn run(args: SetArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let (mut request, call) = prepare(args, session)?;
    request.ask_for_details();
    call.finish(session.early_client().await?.send(request).await?, emit)
}

pub fn prepare(args: SetArgs, session: &Session) -> Result<(RawRequest, SetCall), CommandError> {
    let (key, word) = args.key.resolve(USAGE)?;
    let fence = args.fence.resolve(session)?;
    let value = args.value.resolve(word, USAGE, session)?;
    let value = if args.strip_newline { strip_newline(&value) } else { value };
    let condition = match (args.nx, args.nex) {
        (true, _) => Some(Condition::Absent),
        (_, true) => Some(Condition::AbsentOrEqual),
        _ => None,
    };
    let options = SetOptions { condition, ttl_ms: args.ttl, fence, persist: args.persist };
    let request = options.request(&key, &value);
    let ttl_ms = args.ttl.map(NonZeroU64::get);
    Ok((request, SetCall { key, size: value.len(), ttl_ms, condition }))
}

/// Returns the request of a SET without options.
pub fn prepare_plain(key: Key, value: &[u8]) -> (RawRequest, SetCall) {
    let request = SetOptions::default().request(&key, value);
    (request, SetCall { key, size: value.len(), ttl_ms: None, condition: None })
}

impl SetCall {
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Exit, CommandError> {
        let Self { key, size, ttl_ms, condition } = self;
        let pending = response.is_pending;
        let SetOutcome { applied, version } = SetOutcome::decode(response, condition)?;
        let ttl_ms = ttl_ms.filter(|_| applied);
        emit(&SetRecord { key, applied, condition, version, ttl_ms, pending, size })?;
        Ok(if applied { Exit::Yes } else { Exit::No })
    }
}

impl Record for SetRecord {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        if self.applied {
            let expires = || self.ttl_ms.map(expires_in).unwrap_or_default();
            let stored = stored(&self.key, self.size, expires, self.version.as_ref(), style);
            let waits = self.pending && style.stderr_is_terminal;
            let Rendered { stderr, .. } = if waits { notice(WAITS, style) } else { Rendered::default() };
            return Rendered { stderr, ..stored };
        }
        let reason = match self.condition {
            Some(Condition::AbsentOrEqual) => "has another value",
            Some(Condition::Absent) | None => "exists",
        };
        negative(&format!("not stored: {} {reason}", name(&self.key)), style)
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

/// Formats the confirmation that a value was stored; `expires` is what is added about the expiry.
pub fn stored(
    key: &Key,
    size: usize,
    expires: impl FnOnce() -> String,
    version: Option<&Timestamp>,
    style: &Style,
) -> Rendered {
    let text = || format!("stored {} ({}{})", name(key), counted(size, "byte"), expires());
    confirmation(text, version, style)
}

/// Returns the expiry of a key for [`stored`].
pub fn expires_in(ms: u64) -> String {
    format!(", expires in {}", duration::of_ms(ms))
}

fn strip_newline(value: &Bytes) -> Bytes {
    let stripped = value.strip_suffix(b"\n").unwrap_or(value);
    let stripped = if stripped.len() < value.len() {
        stripped.strip_suffix(b"\r").unwrap_or(stripped)
    } else {
        stripped
    };
    value.slice_ref(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render;

    #[test]
    fn one_line_end_is_removed_and_no_more() {
        for (value, stripped) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a\r", "a\r"), ("\n", ""), ("", "")]
        {
            assert_eq!(strip_newline(&Bytes::from(value)), stripped, "{value:?}");
        }
    }

    fn shown(applied: bool, condition: Option<Condition>, size: usize, style: &Style) -> (String, String) {
        let (key, ttl_ms) = (Key::new("k").unwrap(), (applied && size > 1).then_some(30_000));
        let version = Some(Timestamp::of_store(1, 0));
        render::shown(
            &SetRecord { key, applied, condition, version, ttl_ms, pending: size == 2, size },
            style,
        )
    }

    #[test]
    fn a_stored_value_is_confirmed_with_size_and_expiry_on_a_terminal() {
        let text = |applied, condition, size| {
            let (stdout, stderr) = shown(applied, condition, size, &Style::PLAIN);
            stdout + &stderr
        };
        assert_eq!(text(true, None, 4), "stored k (4 bytes, expires in 30s)\n");
        assert_eq!(text(true, None, 1), "stored k (1 byte)\n");
        assert_eq!(text(false, Some(Condition::Absent), 4), "error: not stored: k exists\n");
        assert_eq!(
            text(false, Some(Condition::AbsentOrEqual), 4),
            "error: not stored: k has another value\n"
        );
        assert_eq!(shown(true, None, 4, &Style::LINES), Default::default());
        assert_eq!(shown(true, None, 4, &Style::QUIET), Default::default());
        assert_eq!(shown(false, None, 4, &Style::LINES).1, "error: not stored: k exists\n");
    }

    #[test]
    fn a_change_that_waits_at_a_leaf_is_noted_on_a_terminal_and_in_json() {
        let on_terminal = Style { stderr_is_terminal: true, ..Style::PLAIN };
        assert_eq!(shown(true, None, 2, &on_terminal).1, format!("{WAITS}\n"));
        assert_eq!(shown(true, None, 2, &Style::PLAIN).1, "");
        assert!(shown(true, None, 2, &Style::JSON).0.contains("\"ttl_ms\":30000,\"pending\":true}"));
    }

    #[test]
    fn a_set_has_whether_it_was_applied() {
        assert_eq!(
            shown(true, None, 4, &Style::JSON).0,
            "{\"v\":1,\"op\":\"set\",\"key\":\"k\",\"applied\":true,\
             \"version\":\"000000000000001:00000:StateStore\",\"ttl_ms\":30000}\n"
        );
        assert_eq!(
            shown(false, Some(Condition::Absent), 4, &Style::JSON).0,
            "{\"v\":1,\"op\":\"set\",\"key\":\"k\",\"applied\":false,\"condition\":\"nx\",\
             \"version\":\"000000000000001:00000:StateStore\"}\n"
        );
    }
}
