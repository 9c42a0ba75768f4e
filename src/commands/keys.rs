//! `keys`: lists keys.

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::error::CommandError;
use super::exit::Exit;
use super::lines::pipeline::{self, Known};
use super::number::number;
use super::output::{Emit, Hint};
use super::scan::{self, Pages};
use super::session::Session;
use crate::client::{Client, Reconnect, VersionedValue};
use crate::protocol::{Details, Key, Timestamp};
use crate::render::duration;
use crate::render::escape::spell;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths};

const HELP: &str = "\
Examples:
  mqkv keys                             all keys
  mqkv keys 'line1/*'                   quoted, because of the shell
  mqkv keys 'job/*' -0 | xargs -0 -r mqkv get
  mqkv keys --count 'line1/*'           only their number
  mqkv keys -l 'job/*'                  with size and time to live
  mqkv keys --sort --limit 10 -j

Patterns:
A pattern matches the whole key. * matches any number of characters, including / and none; ? matches one character; \
[ab] and [0-9] match one of these characters, [!0-9] one that is none of these; [*] matches a star.

Output:
One key per line, in no particular order unless --sort is given. Control bytes are escaped as \\xNN and a backslash as \\\\, so that the output \
can be read back. -0 prints the exact bytes. Keys that the client may not read are left out. Only `mqkv serve` is known to list keys that are not UTF-8: other brokers may leave them \
out, and do not report it.

-l reads the values, too: it prints the size of each one in bytes and, if the store is one of mqkv, the time that is left; - stands for none, ? for \
one that the store does not report. Keys that are deleted meanwhile are left out.

Exit status:
0, even if no key matches.";

/// List keys
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct KeysArgs {
    /// Pattern of the keys [default: *]
    #[arg(value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// Sort the keys by their bytes
    ///
    /// The output begins when all keys have been listed.
    #[arg(long)]
    sort: bool,
    /// Print size and time to live before each key
    #[arg(short = 'l', long = "long")]
    long: bool,
    /// Print only the number of keys
    #[arg(long, conflicts_with_all = ["sort", "limit", "null", "long"])]
    count: bool,
    /// Maximum number of keys
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX))]
    limit: Option<u64>,
    /// End each key with NUL, without escapes
    #[arg(short = '0', long = "null")]
    null: bool,
}

/// A key.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "keys")]
struct Listed {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    #[serde(flatten)]
    value: Option<Summary>,
    /// Whether the exact bytes are printed, followed by NUL.
    #[serde(skip)]
    null: bool,
}

/// What `-l` prints of a value.
#[derive(Debug, Serialize)]
struct Summary {
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    #[serde(flatten, serialize_with = "json::details")]
    details: Option<Box<Details>>,
}

/// The number of keys of `--count`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "keys")]
struct Counted {
    count: usize,
}

pub async fn run(mut args: KeysArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let pattern = scan::pattern(args.pattern.take())?;
    let hint = scan::literal_hint(&pattern, "keys");
    let client = session.early_client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
    let mut pages = Pages::request(client, pattern);
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut listed = 0_usize;
    let mut unsorted = Vec::new();
    while let Some(mut keys) = pages.next().await? {
        if args.sort {
            unsorted.extend(keys);
            continue;
        }
        keys.truncate(limit.saturating_sub(listed));
        listed = listed.saturating_add(keys.len());
        if !args.count {
            list(keys, &args, client, emit).await?;
        }
        if listed == limit {
            return Ok(Exit::Yes);
        }
    }
    unsorted.sort_unstable_by(|one: &Key, other| one.as_bytes().cmp(other.as_bytes()));
    let is_empty = listed == 0 && unsorted.is_empty();
    unsorted.truncate(limit);
    list(unsorted, &args, client, emit).await?;
    if args.count {
        emit(&Counted { count: listed })?;
    }
    let literal = hint.filter(|_| is_empty).map(Hint);
    literal.into_iter().chain(pages.limit_hint()).try_for_each(|hint| emit(&hint))?;
    Ok(Exit::Yes)
}

/// Emits keys, with -l those that still exist.
async fn list(keys: Vec<Key>, args: &KeysArgs, client: &Client, emit: Emit<'_>) -> Result<(), CommandError> {
    let null = args.null;
    if !args.long {
        return keys.into_iter().try_for_each(|key| Ok(emit(&Listed { key, value: None, null })?));
    }
    let requests = keys.into_iter().map(|key| {
        let request = VersionedValue::detailed_request(&key);
        (key, request)
    });
    let handle = |answer: Option<(Key, _)>| {
        let Some((key, response)) = answer else { return Ok(()) };
        let Some(VersionedValue { value, version, details }) = VersionedValue::decode(response?)? else {
            return Ok(());
        };
        let value = Some(Summary { size: value.len(), version, details });
        Ok(emit(&Listed { key, value, null })?)
    };
    pipeline::for_all(None, client, Known(requests), handle).await
}

impl Summary {
    fn text(&self) -> String {
        let ttl = match self.details.as_deref() {
            Some(Details { ttl_ms: Some(ttl_ms), .. }) => duration::rough(ttl_ms.get()),
            Some(_) => "-".to_owned(),
            None => "?".to_owned(),
        };
        format!("{:>9}  {ttl:>6}  ", self.size)
    }
}

impl Record for Listed {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        let key = self.key.as_bytes();
        let columns = self.value.as_ref().map(Summary::text).unwrap_or_default();
        match self.null {
            true => Rendered::stdout([columns.as_bytes(), key, b"\0"].concat()),
            false => Rendered::stdout(columns + &spell(key) + "\n"),
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

impl Record for Counted {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(format!("{}\n", self.count))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::render::shown;

    #[test]
    fn a_key_is_an_escaped_line_or_its_bytes_and_nul() {
        let listed = |null, style: &Style| {
            let key = Key::new("a\\b\n").unwrap();
            let (stdout, stderr) = shown(&Listed { key, value: None, null }, style);
            assert_eq!(stderr, "");
            stdout
        };
        assert_eq!(listed(false, &Style::LINES), "a\\\\b\\x0A\n");
        assert_eq!(listed(true, &Style::PLAIN), "a\\b\n\0");
        assert_eq!(listed(false, &Style::JSON), "{\"v\":1,\"op\":\"keys\",\"key\":\"a\\\\b\\n\"}\n");
    }

    #[test]
    fn a_long_line_has_size_and_time_to_live() {
        let listed = |details: Option<Details>, style: &Style| {
            let value = Summary { size: 4, version: None, details: details.map(Box::new) };
            shown(&Listed { key: Key::new("k").unwrap(), value: Some(value), null: false }, style).0
        };
        let leased = Details { ttl_ms: NonZeroU64::new(90_000), fence: None };
        assert_eq!(listed(Some(leased.clone()), &Style::LINES), "        4   1 min  k\n");
        assert_eq!(listed(Some(Details::default()), &Style::PLAIN), "        4       -  k\n");
        assert_eq!(listed(None, &Style::PLAIN), "        4       ?  k\n");
        let json = "{\"v\":1,\"op\":\"keys\",\"key\":\"k\",\"size\":4,\"ttl_ms\":90000}\n";
        assert_eq!(listed(Some(leased), &Style::JSON), json);
    }
}
