//! `get`: reads keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::args::key::KeyListArgs;
use super::error::CommandError;
use super::exit::Exit;
use super::lines::pipeline::{self, Known};
use super::output::Emit;
use super::process::file;
use super::session::Session;
use crate::client::{RawRequest, Response, VersionedValue};
use crate::protocol::{Details, Key, Timestamp, Value};
use crate::render::escape::{escape, escape_lines, spell};
use crate::render::json::{self, Json};
use crate::render::{
    Format, Record, Rendered, Style, Widths, confirmation, counted, detailed_line, name, not_found,
};

const USAGE: &str = "mqkv get KEY...";

const HELP: &str = "\
Examples:
  mqkv get line1/temp
  mqkv get config -f config.json      write the value to a file
  mqkv get mode --default auto        print auto if the key does not exist
  mqkv get line1/temp line2/temp      one line for each key
  mqkv get -j line1/temp | jq .version

Output:
The value of one key is printed as its exact bytes in a pipe. On a terminal control bytes are escaped as \\xNN; line feeds \
and tabs are printed as they are.

Several keys are read concurrently and printed in order, one line each: key and value on a terminal, the value in a pipe, \
escaped as `mqkv keys` does it, empty if the key does not exist. -j prints one object for each key.

With -f, the file is written only if the request succeeds.

Exit status:
0 if all keys exist, 1 if one of them does not.";

/// Get the value of a key
#[derive(Debug, Default, Args)]
#[command(after_long_help = HELP)]
pub struct GetArgs {
    #[command(flatten)]
    keys: KeyListArgs,
    /// Write the value to FILE
    #[arg(short = 'f', long = "file", visible_alias = "valuefile", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Value to print if the key does not exist
    #[arg(long, value_name = "STR", allow_hyphen_values = true)]
    default: Option<OsString>,
}

impl GetArgs {
    /// Reads a key without options.
    #[must_use]
    pub fn plain(keys: KeyListArgs) -> Self {
        Self { keys, ..Self::default() }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.count()
    }
}

/// A GET that is sent.
#[derive(Debug)]
pub struct GetCall {
    key: Key,
    file: Option<PathBuf>,
    default: Option<Bytes>,
    layout: Layout,
}

/// How a value stands in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Alone: its exact bytes.
    Alone,
    /// On a line of its own, as the answer to a line of a batch.
    Line,
    /// On a line of its own, for a terminal with its key.
    KeyedLine,
}

/// The result of `get` for one key.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "get")]
struct Got {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    found: bool,
    /// Whether the default takes the place of the value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    default: bool,
    #[serde(flatten)]
    content: Option<Content>,
    #[serde(skip)]
    layout: Layout,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Value {
        #[serde(flatten, serialize_with = "json::value")]
        value: Value,
        size: usize,
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
        version: Option<Timestamp>,
        #[serde(flatten, serialize_with = "json::details")]
        details: Option<Box<Details>>,
    },
    /// The value was written to a file.
    File {
        #[serde(serialize_with = "json::path")]
        file: PathBuf,
        size: usize,
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
        version: Option<Timestamp>,
    },
}

pub async fn run(args: GetArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    if args.count() <= 1 {
        let (_, call) = prepare(args)?;
        let call = GetCall { layout: Layout::Alone, ..call };
        let request = VersionedValue::detailed_request(&call.key);
        return call.finish(session.early_client().await?.send(request).await?, emit);
    }
    let calls = calls(args)?;
    let client = session.early_client().await?;
    let mut exit = Exit::Yes;
    let requests = Known(calls.into_iter().map(|call| {
        let request = VersionedValue::detailed_request(&call.key);
        (call, request)
    }));
    let handle = |answer: Option<(GetCall, _)>| {
        if let Some((call, response)) = answer
            && call.finish(response?, emit)? == Exit::No
        {
            exit = Exit::No;
        }
        Ok(())
    };
    pipeline::for_all(None, client, requests, handle).await?;
    Ok(exit)
}

/// Returns the request of the verb for one key, as a line of a batch.
pub fn prepare(args: GetArgs) -> Result<(RawRequest, GetCall), CommandError> {
    let mut calls = calls(args)?;
    match (calls.pop(), calls.is_empty()) {
        (Some(call), true) => Ok((VersionedValue::request(&call.key), call)),
        _ => Err(CommandError::usage("more than one key").hint(USAGE)),
    }
}

/// Returns a call for each key.
fn calls(args: GetArgs) -> Result<Vec<GetCall>, CommandError> {
    let keys = args.keys.resolve(USAGE)?;
    if args.file.as_deref() == Some(Path::new("-")) {
        return Err(CommandError::usage("-f needs the name of a file")
            .hint("print the exact bytes on standard output: -o raw"));
    }
    if args.file.is_some() && keys.len() > 1 {
        return Err(CommandError::usage("-f takes the value of one key")
            .hint("write several keys with their values to a file: mqkv export --keys-from -"));
    }
    let default = args.default.map(|text| Bytes::from(text.into_encoded_bytes()));
    let layout = if keys.len() > 1 { Layout::KeyedLine } else { Layout::Line };
    let call = |key| GetCall { key, file: args.file.clone(), default: default.clone(), layout };
    Ok(keys.into_iter().map(call).collect())
}

impl GetCall {
    /// Emits the value, or writes it to the file.
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Exit, CommandError> {
        let Self { key, file, default, layout } = self;
        let read = VersionedValue::decode(response)?;
        let found = read.is_some();
        let read =
            read.or_else(|| default.map(|value| VersionedValue { value, version: None, details: None }));
        let default = !found && read.is_some();
        let content = read.map(|read| Content::of(read, file)).transpose()?;
        let exit = if content.is_some() { Exit::Yes } else { Exit::No };
        emit(&Got { key, found, default, content, layout })?;
        Ok(exit)
    }
}

impl Content {
    /// Returns a value, after it was written to the file if there is one.
    fn of(read: VersionedValue, file: Option<PathBuf>) -> Result<Self, CommandError> {
        let VersionedValue { value, version, details } = read;
        let size = value.len();
        match file {
            Some(file) => {
                file::write(&file, &value)?;
                Ok(Self::File { file, size, version })
            }
            None => Ok(Self::Value { value, size, version, details }),
        }
    }
}

impl Record for Got {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match (&self.content, style.format) {
            // Among others a missing value has a line, too.
            (None, Format::Lines | Format::Hex | Format::Base64) if self.layout != Layout::Alone => {
                Rendered { stdout: "\n".into(), ..not_found(&self.key, style) }
            }
            (None, _) => not_found(&self.key, style),
            (Some(Content::File { file, size, version }), _) => {
                let file = || escape(file.as_os_str().as_encoded_bytes());
                let text = || format!("wrote {} ({})", file(), counted(size, "byte"));
                confirmation(text, version.as_ref(), style)
            }
            (Some(Content::Value { value, .. }), Format::Lines) if self.layout == Layout::Alone => {
                Rendered::stdout(value.clone())
            }
            (Some(Content::Value { value, .. }), Format::Lines) => {
                Rendered::stdout(format!("{}\n", spell(value)))
            }
            (Some(Content::Value { value, version, details, .. }), _) => {
                let text = match self.layout {
                    Layout::KeyedLine => format!("{}  {}", name(&self.key), escape(value)),
                    Layout::Alone | Layout::Line => escape_lines(value),
                };
                detailed_line(&text, version.as_ref(), details.as_deref(), style)
            }
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        match &self.content {
            Some(Content::Value { value, .. }) => Some(value),
            _ => None,
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::render::shown;

    fn got(content: Option<Content>, layout: Layout) -> Got {
        let key = Key::new(&b"line1/temp\n"[..]).unwrap();
        Got { key, found: content.is_some(), default: false, content, layout }
    }

    fn value(value: &'static [u8], version: Option<Timestamp>) -> Option<Content> {
        Some(Content::Value { value: value.into(), size: value.len(), version, details: None })
    }

    fn stdout(record: &Got, style: &Style) -> String {
        let (stdout, stderr) = shown(record, style);
        assert_eq!(stderr, "");
        stdout
    }

    #[test]
    fn a_value_is_escaped_and_its_version_is_shown_on_request() {
        let record = got(value(b"\x1b[2J\xff", Some(Timestamp::of_store(5, 3))), Layout::Alone);
        assert_eq!(stdout(&record, &Style::PLAIN), "\\x1B[2J\\xFF\n");
        let verbose = Style { verbose: true, ..Style::PLAIN };
        assert_eq!(stdout(&record, &verbose), "\\x1B[2J\\xFF  000000000000005:00003:StateStore\n");
    }

    #[test]
    fn a_time_to_live_and_a_fencing_token_are_shown_on_request() {
        let details = Details { ttl_ms: NonZeroU64::new(90_000), fence: Some(Timestamp::of_store(5, 3)) };
        let details = Some(Box::new(details));
        let content = Content::Value { value: "v".into(), size: 1, version: None, details };
        let record = got(Some(content), Layout::Alone);
        assert_eq!(stdout(&record, &Style::PLAIN), "v\n");
        let verbose = Style { verbose: true, ..Style::PLAIN };
        let fence = "000000000000005:00003:StateStore";
        assert_eq!(stdout(&record, &verbose), format!("v  expires in 1m 30s  fence {fence}\n"));
        let json = stdout(&record, &Style::JSON);
        assert!(json.ends_with(&format!(",\"size\":1,\"ttl_ms\":90000,\"fence\":\"{fence}\"}}\n")), "{json}");
    }

    #[test]
    fn a_missing_key_goes_to_standard_error() {
        let missing = got(None, Layout::Alone);
        let message = "error: key not found: line1/temp\\x0A\n".to_owned();
        assert_eq!(shown(&missing, &Style::PLAIN), (String::new(), message.clone()));
        assert_eq!(shown(&missing, &Style::LINES), (String::new(), message.clone()));
        assert_eq!(shown(&missing, &Style::QUIET), Default::default());
        assert_eq!(shown(&got(None, Layout::Line), &Style::LINES), ("\n".to_owned(), message));
    }

    #[test]
    fn one_of_many_values_is_a_line() {
        let lines = |layout, style: &Style| stdout(&got(value(b"a\\\nb", None), layout), style);
        assert_eq!(lines(Layout::Alone, &Style::LINES), "a\\\nb");
        assert_eq!(lines(Layout::Line, &Style::LINES), "a\\\\\\x0Ab\n");
        assert_eq!(lines(Layout::KeyedLine, &Style::PLAIN), "line1/temp\\x0A  a\\\\x0Ab\n");
        assert_eq!(lines(Layout::Line, &Style::PLAIN), "a\\\nb\n");
        assert_eq!(lines(Layout::Line, &Style { format: Format::Hex, ..Style::LINES }), "615c0a62\n");
    }

    #[test]
    fn a_value_is_text_with_its_version_in_json() {
        let record = got(value(b"21.5", Some(Timestamp::of_store(1_763_669_639_958, 3))), Layout::Alone);
        assert_eq!(
            stdout(&record, &Style::JSON),
            "{\"v\":1,\"op\":\"get\",\"key\":\"line1/temp\\n\",\"found\":true,\"value\":\"21.5\",\
             \"encoding\":\"utf-8\",\"size\":4,\"version\":\"001763669639958:00003:StateStore\"}\n"
        );
    }

    #[test]
    fn a_missing_key_and_a_default_differ_in_json() {
        let json = |found, default, content| {
            let record = Got { found, default, ..got(content, Layout::Alone) };
            stdout(&record, &Style::JSON).replace("{\"v\":1,\"op\":\"get\",\"key\":\"line1/temp\\n\",", "")
        };
        assert_eq!(json(false, false, None), "\"found\":false}\n");
        assert_eq!(
            json(false, true, value(b"x", None)),
            "\"found\":false,\"default\":true,\"value\":\"x\",\"encoding\":\"utf-8\",\"size\":1}\n"
        );
        let file = Content::File { file: "f".into(), size: 9, version: None };
        assert_eq!(json(true, false, Some(file)), "\"found\":true,\"file\":\"f\",\"size\":9}\n");
    }
}
