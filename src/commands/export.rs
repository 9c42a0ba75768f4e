//! `export`: reads keys and their values, as JSON lines.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::error::{CommandError, Kind};
use super::output::{Exported, Found, Output, Progress};
use super::scan::{self, Pages};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::{Error, Reconnect};
use crate::commands::lines::pipeline::{INFLIGHT, Window};
use crate::commands::lines::reader::{Line, Lines};
use crate::commands::lines::words;
use crate::protocol::Key;

const EXAMPLES: &str = "\
Examples:
  mqkv export > all.jsonl
  mqkv export 'line1/*' > line1.jsonl
  mqkv export --keys-from keys.txt      for a broker that cannot list its keys
  mqkv keys -0 'a*' | mqkv export --keys-from - -0
  mqkv export | mqkv import - -n other --notls

Puts out one JSON object a line, whatever --output says:

  {\"v\":1,\"op\":\"export\",\"key\":\"line1/temp\",\"value\":\"21.5\",\"encoding\":\"utf-8\",\"version\":\"...\"}

A key or value that is not UTF-8 is base64 (key_encoding, encoding). Values are read one by one, --inflight of them side \
by side: this is no picture of one moment. A key that is deleted on the way is left out; how many those were is said on \
standard error, and is no failure. How long a key has left to live cannot be asked for, so it is not in the file.

--keys-from reads keys as `mqkv keys` prints them, one a line, or, with -0, NUL after each. If the disk is full, what has \
been written are whole lines (exit code 74).";

/// Read keys and values into JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ExportArgs {
    /// What the keys must match, as for `keys` [default: *]
    #[arg(value_name = "PATTERN", conflicts_with = "keys_from")]
    pattern: Option<OsString>,
    /// Take the keys from a file, one a line; - reads standard input
    #[arg(long, value_name = "FILE|-")]
    keys_from: Option<PathBuf>,
    /// The keys in that file are exact bytes, with a NUL byte after each
    #[arg(short = '0', long = "null", requires = "keys_from")]
    null: bool,
    /// How many requests may wait for their answers
    #[arg(long, value_name = "N", default_value_t = INFLIGHT, value_parser = clap::value_parser!(u16).range(1..=crate::commands::lines::pipeline::INFLIGHT_MAX))]
    inflight: u16,
}

/// Runs the verb.
pub async fn run(args: ExportArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let lines = match &args.keys_from {
        Some(path) => Some(Lines::open(path, if args.null { 0 } else { b'\n' }, session)?),
        None => None,
    };
    let pattern = scan::pattern(args.pattern)?;
    let adjust = |settings: &mut crate::client::Settings| {
        // One more, for the page that is asked for meanwhile.
        settings.inflight_max = usize::from(args.inflight).saturating_add(1);
        settings.reconnect = Reconnect::WithBackoff;
    };
    let client = session.client_that(adjust).await?;
    let bytes_total = lines.as_ref().and_then(Lines::bytes_total);
    let mut keys = match lines {
        Some(lines) => Keys::Lines { lines, null: args.null, bytes_read: 0 },
        None => Keys::Pages { pages: Pages::begin(client, pattern), ready: VecDeque::new() },
    };
    let mut window = Window::new(args.inflight);
    let mut ended = Exported { keys: 0, missing: 0 };
    let mut has_more = true;
    // Values are as large as their neighbours, more or less: so many are asked for at a time as there is room for.
    let mut size = 0;
    loop {
        while let Some((key, got)) = window.try_next() {
            let got: Result<Option<Found>, Error> = got;
            match got.map_err(without_outcome)? {
                Some(found) => {
                    size = found.value.len();
                    ended.keys = ended.keys.saturating_add(1);
                    emit(Output::Entry { key, found })?;
                }
                None => ended.missing = ended.missing.saturating_add(1),
            }
        }
        let reads = has_more && window.has_room();
        if window.is_empty() && !reads {
            break;
        }
        let progress =
            Progress { count: ended.keys, unit: "keys", bytes_read: keys.bytes_read(), bytes_total };
        emit(Output::Progress(progress))?;
        tokio::select! {
            biased;
            key = keys.next(), if reads => match key? {
                Some(key) => {
                    let read = async move {
                        let got = client.get(&key).await;
                        (key, got)
                    };
                    window.push(size, read);
                }
                None => has_more = false,
            },
            () = window.settle(), if !window.is_empty() => {}
        }
    }
    emit(Output::Exported(ended))?;
    Ok(Verdict::Yes)
}

fn without_outcome(error: Error) -> CommandError {
    CommandError { outcome: None, ..error.into() }
}

/// Where the keys come from.
enum Keys {
    Pages { pages: Pages, ready: VecDeque<Key> },
    Lines { lines: Lines, null: bool, bytes_read: u64 },
}

impl Keys {
    /// The next key; none: there are no more. May be dropped at any time.
    async fn next(&mut self) -> Result<Option<Key>, CommandError> {
        match self {
            Self::Pages { pages, ready } => loop {
                if let Some(key) = ready.pop_front() {
                    return Ok(Some(key));
                }
                match pages.next().await? {
                    Some(keys) => ready.extend(keys),
                    None => return Ok(None),
                }
            },
            Self::Lines { lines, null, bytes_read } => loop {
                let Some(line) = lines.next().await else {
                    return Ok(None);
                };
                *bytes_read = line.bytes_read;
                let number = line.number;
                if let Some(key) = key_of(line, *null).map_err(|error| error.at_line(number))? {
                    return Ok(Some(key));
                }
            },
        }
    }

    fn bytes_read(&self) -> u64 {
        match self {
            Self::Pages { .. } => 0,
            Self::Lines { bytes_read, .. } => *bytes_read,
        }
    }
}

/// The key that a line names; none: the line is empty.
fn key_of(line: Line, null: bool) -> Result<Option<Key>, CommandError> {
    let content = line.content?;
    let data = |message: String| CommandError::new(Kind::Data, message);
    let bytes = if null {
        content
    } else {
        let text = content.strip_suffix(b"\r").unwrap_or(&content);
        words::unescape(text).map_err(|error| data(error.to_string()))?
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    Key::new(bytes).map(Some).map_err(|error| data(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(content: &[u8], null: bool) -> Result<Option<Key>, CommandError> {
        let line = Line { number: 1, content: Ok(content.to_vec()), is_cut_off: false, bytes_read: 0 };
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
}
