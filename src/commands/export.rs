//! `export`: prints keys and values as JSON lines.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::lines::pipeline::{self, INFLIGHT_MAX, Source};
use super::lines::reader::{Line, Lines};
use super::lines::words;
use super::number::number;
use super::output::{Emit, Hint};
use super::scan::{self, Pages};
use super::session::Session;
use crate::client::{RawRequest, RequestProperties, VersionedValue};
use crate::clock;
use crate::protocol::{Details, Key, Timestamp, Value};
use crate::render::json::{self, Json};
use crate::render::{Progress, Record, Rendered, Style, Widths, counted, notice};

const HELP: &str = "\
Examples:
  mqkv export > all.jsonl
  mqkv export 'line1/*' > line1.jsonl
  mqkv export --keys-from keys.txt   for a broker that cannot list its keys
  mqkv keys -0 'a*' | mqkv export --keys-from - -0
  mqkv export | mqkv import - -n other --notls

Output:
One JSON object, each on one line, whatever the --output:

  {\"v\":1,\"op\":\"export\",\"key\":\"line1/temp\",\"value\":\"21.5\",
   \"encoding\":\"utf-8\",\"version\":\"...\"}

A key or value that is not UTF-8 is encoded in base64 (key_encoding, encoding). From `mqkv serve` and `mqkv store`, a line also has the \
time at which the key expires (expires) and its fencing token (fence), if there are any. Other brokers do not report them, so that a lock \
looks like any other key: `mqkv import` makes it one that never expires.

Completeness:
The keys are those that the store lists. `mqkv serve` lists all keys that its rules let this client read. Other brokers may leave \
out keys that are not UTF-8, and do not report it: export such keys with --keys-from.

Consistency:
Values are read one by one, with up to --inflight requests in flight; the export is not a snapshot of one moment. A key \
that is deleted meanwhile, or that only the list of --keys-from has, is left out. The number of such keys is printed on standard error; \
they are no error.

Input:
--keys-from reads keys as `mqkv keys` prints them, one per line. Blanks at the end of a line belong to the key. With -0, each key \
ends with a NUL byte, and all other bytes belong to it, also those of a byte order mark.

Exit status:
74 if the output cannot be written, for example because the disk is full. Lines are never cut off.";

/// Print keys and values as JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct ExportArgs {
    /// Pattern of the keys, as for `keys` [default: *]
    #[arg(value_name = "PATTERN", conflicts_with = "keys_from")]
    pattern: Option<OsString>,
    /// Read the keys from FILE; - is standard input
    ///
    /// One key per line, as `mqkv keys` prints them.
    #[arg(long, value_name = "FILE|-")]
    keys_from: Option<PathBuf>,
    /// Keys in FILE end with NUL and are not escaped
    #[arg(short = '0', long = "null", requires = "keys_from")]
    null: bool,
    /// Leave out versions, times to live and fencing tokens
    ///
    /// Two exports of the same values are then equal.
    #[arg(long)]
    no_version: bool,
    /// Requests in flight [default: adapts]
    #[arg(long, value_name = "N", value_parser = number(1..=INFLIGHT_MAX))]
    inflight: Option<u16>,
}

/// A key and its value. There are many of them, also in another format: the output is the export itself.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "export")]
struct ExportedKey {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    #[serde(flatten, serialize_with = "json::value")]
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    #[serde(
        rename = "expires",
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::time_if_any"
    )]
    expires_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    fence: Option<Timestamp>,
}

/// The numbers of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename = "export")]
struct Exported {
    /// Keys that were printed.
    keys: u64,
    /// Keys that were deleted before their value was read, or that are in the list only.
    missing: u64,
    /// Keys with a time to live.
    with_ttl: u64,
    /// Keys whose times to live are not known.
    ttl_unknown: u64,
    #[serde(skip)]
    is_from_list: bool,
}

pub async fn run(args: ExportArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let lines = match &args.keys_from {
        Some(path) => Some(Lines::open(path, if args.null { 0 } else { b'\n' }, session)?),
        None => None,
    };
    let pattern = scan::pattern(args.pattern)?;
    let hint = scan::literal_hint(&pattern, "export");
    let client = session.bulk_client().await?;
    let bytes_total = lines.as_ref().and_then(Lines::bytes_total);
    let (bytes_read, limit_hint) = (Cell::new(0), Cell::new(None));
    let keys = match lines {
        Some(lines) => KeySource::Lines { lines, null: args.null, bytes_read: &bytes_read },
        None => {
            let pages = Pages::request(client, pattern);
            KeySource::Pages { pages, ready: VecDeque::new(), limit_hint: &limit_hint }
        }
    };
    let keys = Requests { keys, details: !args.no_version };
    let mut summary = Exported { is_from_list: args.keys_from.is_some(), ..Exported::default() };
    let handle = |answer: Option<(Key, _)>| {
        let Some((key, response)) = answer else {
            let text = &format_args!("{} keys", summary.keys);
            return Ok(emit(&Progress { done: bytes_read.get(), total: bytes_total, text })?);
        };
        match VersionedValue::decode(response?)? {
            Some(found) => {
                let VersionedValue { value, version, details } = found;
                let version = version.filter(|_| !args.no_version);
                let is_known = details.is_some();
                let Details { ttl_ms, fence } = details.map(|details| *details).unwrap_or_default();
                let expires_ms = ttl_ms.map(|ttl_ms| clock::wall_ms().saturating_add(ttl_ms.get()));
                summary.count(ttl_ms.is_some(), is_known);
                emit(&ExportedKey { key, value, version, expires_ms, fence })?;
            }
            None => summary.missing = summary.missing.saturating_add(1),
        }
        Ok(())
    };
    pipeline::for_all(args.inflight, client, keys, handle).await?;
    emit(&summary)?;
    let literal = hint.filter(|_| (summary.keys, summary.missing) == (0, 0)).map(Hint);
    literal.into_iter().chain(limit_hint.take()).try_for_each(|hint| emit(&hint))?;
    Ok(Exit::Yes)
}

impl Exported {
    fn count(&mut self, expires: bool, is_known: bool) {
        self.keys = self.keys.saturating_add(1);
        self.with_ttl = self.with_ttl.saturating_add(u64::from(expires));
        self.ttl_unknown = self.ttl_unknown.saturating_add(u64::from(!is_known));
    }
}

impl Record for ExportedKey {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        self.json(&Json::new(style.quiet))
    }
}

/// Goes to standard error, because standard output is the export.
impl Record for Exported {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.warning(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let cause = if self.is_from_list { "not found" } else { "deleted meanwhile" };
        let missing = match self.missing {
            0 => String::new(),
            1 => format!("; 1 key was {cause}"),
            missing => format!("; {missing} keys were {cause}"),
        };
        let times = match (self.with_ttl, self.ttl_unknown) {
            (0, 0) => String::new(),
            (0, _) => " (without times to live)".to_owned(),
            (with_ttl, _) => format!(" ({with_ttl} with a time to live)"),
        };
        notice(&format!("exported {}{missing}{times}", counted(self.keys, "key")), style)
    }
}

/// The requests for the keys to export.
struct Requests<'a> {
    keys: KeySource<'a>,
    /// Whether times to live and fencing tokens are exported.
    details: bool,
}

/// The keys to export.
enum KeySource<'a> {
    Pages { pages: Pages, ready: VecDeque<Key>, limit_hint: &'a Cell<Option<Hint>> },
    Lines { lines: Lines, null: bool, bytes_read: &'a Cell<u64> },
}

impl KeySource<'_> {
    fn try_next(&mut self) -> Result<Option<Key>, CommandError> {
        match self {
            Self::Pages { ready, .. } => Ok(ready.pop_front()),
            Self::Lines { lines, null, bytes_read } => {
                while let Some(line) = lines.try_next() {
                    bytes_read.set(line.bytes_read);
                    if let Some(key) = key_of(line, *null)? {
                        return Ok(Some(key));
                    }
                }
                Ok(None)
            }
        }
    }

    async fn next(&mut self) -> Result<Option<Key>, CommandError> {
        loop {
            if let Some(next) = self.try_next()? {
                return Ok(Some(next));
            }
            match self {
                Self::Pages { pages, ready, limit_hint } => match pages.next().await? {
                    Some(keys) => ready.extend(keys),
                    None => {
                        limit_hint.set(pages.limit_hint());
                        return Ok(None);
                    }
                },
                Self::Lines { lines, null, bytes_read } => {
                    let Some(line) = lines.next().await else { return Ok(None) };
                    bytes_read.set(line.bytes_read);
                    if let Some(key) = key_of(line, *null)? {
                        return Ok(Some(key));
                    }
                }
            }
        }
    }
}

impl Requests<'_> {
    /// Returns the request for a key. With a timestamp of its own it accepts any version: a store that is ahead of this machine's
    /// clock can be exported, too.
    fn of(&self, key: Key) -> (Key, RawRequest) {
        let timestamp = Some(Timestamp::of_store(0, 0));
        let mut request = VersionedValue::request(&key);
        request.properties =
            RequestProperties { timestamp, details: self.details, ..RequestProperties::default() }.shared();
        (key, request)
    }
}

impl Source for Requests<'_> {
    type Context = Key;

    fn try_next(&mut self) -> Result<Option<(Key, RawRequest)>, CommandError> {
        Ok(self.keys.try_next()?.map(|key| self.of(key)))
    }

    async fn next(&mut self) -> Result<Option<(Key, RawRequest)>, CommandError> {
        Ok(self.keys.next().await?.map(|key| self.of(key)))
    }
}

/// Returns the key on a line; None if the line is empty.
fn key_of(line: Line, null: bool) -> Result<Option<Key>, CommandError> {
    let Line { place, content, .. } = line;
    let content = content.map_err(|error| error.with_place(place.clone()))?;
    let data = |message: String| CommandError::new(Kind::Data, message).with_place(place.clone());
    let bytes = if null {
        content
    } else {
        let text = content.strip_suffix(b"\r").unwrap_or(&content);
        Bytes::from(words::unescape(text).map_err(|error| data(error.to_string()))?)
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    Key::new(bytes).map(Some).map_err(|error| data(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::error::Place;
    use crate::render::shown;

    fn key(content: &[u8], null: bool) -> Result<Option<Key>, CommandError> {
        let line = Line {
            place: Place { file: std::path::Path::new("keys").into(), line: 1 },
            content: Ok(Bytes::copy_from_slice(content)),
            is_cut_off: false,
            bytes_read: 0,
        };
        key_of(line, null)
    }

    #[test]
    fn keys_are_read_as_they_are_printed() {
        let expected = |bytes: &'static [u8]| Ok(Some(Key::new(bytes).unwrap()));
        assert_eq!(key(b" a b\\\\\\x0A\r", false), expected(b" a b\\\n"));
        assert_eq!(key(b"a\\\r", true), expected(b"a\\\r"));
        assert_eq!(key(b"", false), Ok(None));
        assert_eq!(key(b"C:\\temp\\q", false).unwrap_err().kind, Kind::Data);
        assert_eq!(key(&[b'k'; 70_000], true).unwrap_err().kind, Kind::Data);
    }

    #[test]
    fn an_entry_is_json_in_every_format() {
        let (key, version) = (Key::new("k").unwrap(), Some(Timestamp::of_store(5, 3)));
        let (value, fence) = ((&b"\xff"[..]).into(), version.clone());
        let entry = ExportedKey { key, value, version, expires_ms: Some(1_763_669_639_958), fence };
        let line = "{\"v\":1,\"op\":\"export\",\"key\":\"k\",\"value\":\"/w==\",\"encoding\":\"base64\",\
                    \"version\":\"000000000000005:00003:StateStore\",\"expires\":\"2025-11-20T20:13:59.958Z\",\
                    \"fence\":\"000000000000005:00003:StateStore\"}\n";
        for style in [Style::LINES, Style::JSON, Style::PLAIN] {
            assert_eq!(shown(&entry, &style), (line.to_owned(), String::new()));
        }
    }

    #[test]
    fn the_summary_goes_to_standard_error_and_says_whether_times_are_known() {
        let summary = |keys, missing, with_ttl, ttl_unknown, style: &Style| {
            let exported = Exported { keys, missing, with_ttl, ttl_unknown, is_from_list: true };
            let (stdout, stderr) = shown(&exported, style);
            assert_eq!(stdout, "");
            stderr
        };
        let text = |keys, missing, with_ttl, ttl_unknown| {
            summary(keys, missing, with_ttl, ttl_unknown, &Style::LINES)
        };
        assert_eq!(text(2, 1, 0, 2), "exported 2 keys; 1 key was not found (without times to live)\n");
        assert_eq!(text(0, 0, 0, 0), "exported 0 keys\n");
        assert_eq!(text(2, 0, 0, 0), "exported 2 keys\n");
        assert_eq!(text(2, 0, 1, 0), "exported 2 keys (1 with a time to live)\n");
        let json = "{\"v\":1,\"op\":\"export\",\"keys\":2,\"missing\":1,\"with_ttl\":0,\"ttl_unknown\":2}\n";
        assert_eq!(summary(2, 1, 0, 2, &Style::JSON), json);
        assert_eq!(summary(2, 1, 0, 2, &Style::QUIET), "");
    }
}
