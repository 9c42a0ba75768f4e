//! `get`: reads a key.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use super::args::key::KeyArgs;
use super::error::CommandError;
use super::output::{Emit, Got, Output};
use super::process::file;
use super::session::Session;
use super::verdict::Verdict;
use crate::client::VersionedValue;

const USAGE: &str = "mqkv get KEY";

const HELP: &str = "\
Examples:
  mqkv get line1/temp
  mqkv get config -f config.json        write the value to a file
  mqkv get mode --default auto          print `auto` if the key does not exist
  mqkv get -j line1/temp | jq .version

Output:
In a pipe, the exact bytes of the value; on a terminal, escaped. With -f, the file is written only if the request \
succeeds.

Exit status:
0 if the key exists, 1 if it does not.";

/// Get the value of a key
#[derive(Debug, Default, Args)]
#[command(after_long_help = HELP)]
pub struct GetArgs {
    #[command(flatten)]
    key: KeyArgs,
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
    pub fn plain(key: KeyArgs) -> Self {
        Self { key, ..Self::default() }
    }
}

/// Runs the verb.
pub async fn run(args: GetArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.resolve_only(USAGE)?;
    if args.file.as_deref() == Some(Path::new("-")) {
        return Err(CommandError::usage("-f needs the name of a file")
            .hint("print the exact bytes on standard output: -o raw"));
    }
    let default = args.default.map(|text| Bytes::from(text.into_encoded_bytes()));
    let found = session.client().await?.get(&key).await?;
    let got = match (found, default) {
        (Some(found), _) => Got::Found(found),
        (None, Some(default)) => Got::Default(default),
        (None, None) => Got::Missing,
    };
    let got = match args.file {
        Some(path) => write(got, path)?,
        None => got,
    };
    let verdict = if got == Got::Missing { Verdict::No } else { Verdict::Yes };
    emit(Output::Got { key, got })?;
    Ok(verdict)
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
