//! `get`: reads a key.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use super::error::CommandError;
use super::output::{Got, Output};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::Found;
use crate::commands::args::key::KeyArgs;
use crate::commands::process::file;

const USAGE: &str = "mqkv get KEY";

const EXAMPLES: &str = "\
Examples:
  mqkv get line1/temp
  mqkv get config -f config.json        write it to a file, which is touched only if all went well
  mqkv get mode --default auto          print `auto` if there is no such key
  mqkv get -j line1/temp | jq .version

Exit code 1 says that there is no such key.";

/// Read a key
///
/// Prints the value: its exact bytes and nothing else in a pipe, escaped on a terminal.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Write the value to a file
    #[arg(short = 'f', long = "file", visible_alias = "valuefile", value_name = "FILE")]
    file: Option<PathBuf>,
    /// What to take for the value if there is no such key
    #[arg(long, value_name = "STR", allow_hyphen_values = true)]
    default: Option<OsString>,
}

impl GetArgs {
    /// Reads a key, and no more than that.
    #[must_use]
    pub fn plain(key: KeyArgs) -> Self {
        Self { key, ..Self::default() }
    }
}

/// Runs the verb.
pub async fn run(args: GetArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let key = args.key.settle_alone(USAGE)?;
    if args.file.as_deref() == Some(Path::new("-")) {
        return Err(
            CommandError::usage("-f takes the name of a file").hint("`-o raw` prints the exact bytes")
        );
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

/// Puts a value into a file; without a value the file is not touched.
fn write(got: Got, file: PathBuf) -> Result<Got, CommandError> {
    let (value, version, found) = match got {
        Got::Found(Found { value, version }) => (value, version, true),
        Got::Default(value) => (value, None, false),
        nothing @ (Got::Missing | Got::Written { .. }) => return Ok(nothing),
    };
    file::write(&file, &value)?;
    Ok(Got::Written { file, size: value.len(), version, found })
}
