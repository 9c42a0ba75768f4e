//! `get`: reads keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use super::args::key::KeyListArgs;
use super::error::CommandError;
use super::lines::pipeline::{INFLIGHT_DEFAULT, Pipeline};
use super::output::{Emit, Got, Output};
use super::process::file;
use super::session::Session;
use super::verdict::Verdict;
use crate::client::{Error, VersionedValue};
use crate::protocol::Key;

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

/// Runs the verb.
pub async fn run(args: GetArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let keys = args.keys.resolve("mqkv get KEY...")?;
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
    let client = session.early_client().await?;
    let mut pipeline = Pipeline::new(INFLIGHT_DEFAULT);
    let mut keys = keys.into_iter();
    let mut verdict = Verdict::Yes;
    // A size is known only when the value has arrived: the last one stands in for it, as an estimate for the pipeline's limit.
    let mut size_estimate = 0;
    loop {
        while pipeline.has_capacity()
            && let Some(key) = keys.next()
        {
            let request = async move {
                let found = client.get(&key).await;
                (key, found)
            };
            pipeline.push(size_estimate, request);
        }
        if pipeline.is_empty() {
            return Ok(verdict);
        }
        pipeline.wait().await;
        while let Some((key, found)) = pipeline.try_next() {
            let (key, found): (Key, Result<Option<VersionedValue>, Error>) = (key, found);
            let got = match (found?, &default) {
                (Some(found), _) => {
                    size_estimate = found.value.len();
                    Got::Found(found)
                }
                (None, Some(default)) => Got::Default(default.clone()),
                (None, None) => {
                    verdict = Verdict::No;
                    Got::Missing
                }
            };
            let got = match &args.file {
                Some(path) => write(got, path.clone())?,
                None => got,
            };
            emit(Output::Got { key, got, is_one_of_many })?;
        }
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
