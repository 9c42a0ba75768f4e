//! `get`: reads keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use super::args::key::KeyListArgs;
use super::error::CommandError;
use super::lines::pipeline::{self, Known};
use super::output::{Emit, Got, Output};
use super::process::file;
use super::session::Session;
use super::verdict::Verdict;
use crate::client::{RawRequest, Response, VersionedValue};
use crate::protocol::Key;

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
    is_one_of_many: bool,
}

/// Runs the verb.
pub async fn run(args: GetArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    if args.count() <= 1 {
        let (request, call) = prepare(args)?;
        return call.finish(session.early_client().await?.send(request).await?, emit);
    }
    let calls = calls(args)?;
    let client = session.early_client().await?;
    let mut verdict = Verdict::Yes;
    let requests = Known(calls.into_iter().map(|call| {
        let request = VersionedValue::request(&call.key);
        (call, request)
    }));
    let handle = |answer: Option<(GetCall, _)>| {
        if let Some((call, response)) = answer
            && call.finish(response?, emit)? == Verdict::No
        {
            verdict = Verdict::No;
        }
        Ok(())
    };
    pipeline::for_all(None, client, requests, handle).await?;
    Ok(verdict)
}

/// Returns the request of the verb for one key.
///
/// # Errors
/// The arguments are invalid.
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
    let is_one_of_many = keys.len() > 1;
    let call = |key| GetCall { key, file: args.file.clone(), default: default.clone(), is_one_of_many };
    Ok(keys.into_iter().map(call).collect())
}

impl GetCall {
    /// Emits the value, or writes it to the file.
    ///
    /// # Errors
    /// The store refused the request, or the output failed.
    pub fn finish(self, response: Response, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let Self { key, file, default, is_one_of_many } = self;
        let (got, verdict) = match (VersionedValue::decode(response)?, default) {
            (Some(found), _) => (Got::Found(found), Verdict::Yes),
            (None, Some(default)) => (Got::Default(default), Verdict::Yes),
            (None, None) => (Got::Missing, Verdict::No),
        };
        let got = match file {
            Some(file) => write(got, file)?,
            None => got,
        };
        emit(Output::Got { key, got, is_one_of_many })?;
        Ok(verdict)
    }
}

/// Writes a value to a file; does not touch the file if there is no value.
fn write(got: Got, file: PathBuf) -> Result<Got, CommandError> {
    let (value, version, found) = match got {
        Got::Found(VersionedValue { value, version }) => (value, version, true),
        Got::Default(value) => (value, None, false),
        other @ (Got::Missing | Got::Written { .. }) => return Ok(other),
    };
    file::write(&file, &value)?;
    Ok(Got::Written { file, size: value.len(), version, found })
}
