//! `keys`: lists keys.

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::error::CommandError;
use super::exit::Exit;
use super::number::number;
use super::output::{Emit, Hint};
use super::scan::{self, Pages};
use super::session::Session;
use crate::client::Reconnect;
use crate::protocol::Key;
use crate::render::escape::spell;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths};

const HELP: &str = "\
Examples:
  mqkv keys                             all keys
  mqkv keys 'line1/*'                   quoted, because of the shell
  mqkv keys 'job/*' -0 | xargs -0 -r mqkv del
  mqkv keys --count 'line1/*'           only their number
  mqkv keys --sort --limit 10 -j

Patterns:
A pattern matches the whole key. * matches any number of characters, including / and none; ? matches one character; \
[ab] and [0-9] match one of these characters, [!0-9] one that is none of these; [*] matches a star.

Output:
One key per line, in no particular order unless --sort is given. Control bytes are escaped as \\xNN and a backslash as \\\\, so that the output \
can be read back. -0 prints the exact bytes. Keys that the client may not read are left out. Only `mqkv serve` is known to list keys that are not UTF-8: other brokers may leave them \
out, and do not report it.

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
    /// Print only the number of keys
    #[arg(long, conflicts_with_all = ["sort", "limit", "null"])]
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
    /// Whether the exact bytes are printed, followed by NUL.
    #[serde(skip)]
    null: bool,
}

/// The number of keys of `--count`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "keys")]
struct Counted {
    count: u64,
}

pub async fn run(args: KeysArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let pattern = scan::pattern(args.pattern)?;
    let hint = scan::literal_hint(&pattern, "keys");
    let client = session.early_client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
    let mut pages = Pages::request(client, pattern);
    let mut listed = 0_u64;
    let mut unsorted = Vec::new();
    while let Some(keys) = pages.next().await? {
        if args.sort {
            unsorted.extend(keys);
            continue;
        }
        for key in keys {
            listed = listed.saturating_add(1);
            if !args.count {
                emit(&Listed { key, null: args.null })?;
            }
            if args.limit == Some(listed) {
                return Ok(Exit::Yes);
            }
        }
    }
    unsorted.sort_unstable_by(|one: &Key, other| one.as_bytes().cmp(other.as_bytes()));
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let is_empty = listed == 0 && unsorted.is_empty();
    for key in unsorted.into_iter().take(limit) {
        emit(&Listed { key, null: args.null })?;
    }
    if args.count {
        emit(&Counted { count: listed })?;
    }
    if let Some(hint) = hint.filter(|_| is_empty) {
        emit(&Hint(hint))?;
    }
    Ok(Exit::Yes)
}

impl Record for Listed {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        let key = self.key.as_bytes();
        match self.null {
            true => Rendered::stdout([key, b"\0"].concat()),
            false => Rendered::stdout(spell(key) + "\n"),
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
    use super::*;
    use crate::render::shown;

    #[test]
    fn a_key_is_an_escaped_line_or_its_bytes_and_nul() {
        let listed = |null, style: &Style| {
            let (stdout, stderr) = shown(&Listed { key: Key::new("a\\b\n").unwrap(), null }, style);
            assert_eq!(stderr, "");
            stdout
        };
        assert_eq!(listed(false, &Style::LINES), "a\\\\b\\x0A\n");
        assert_eq!(listed(true, &Style::PLAIN), "a\\b\n\0");
        assert_eq!(listed(false, &Style::JSON), "{\"v\":1,\"op\":\"keys\",\"key\":\"a\\\\b\\n\"}\n");
    }
}
