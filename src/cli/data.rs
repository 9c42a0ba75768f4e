//! `data`: a copy of the files of a store, and offline work on those that no process uses.

mod contents;
mod copy;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use self::contents::{Contents, Recovered, Verified};
use super::report::Reporter;
use super::storage_error::{of_read, of_start, restore};
use crate::clock;
use crate::commands::args::kind::{OtherForm, ValueKind};
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::LoweredVersions;
use crate::ledger::offline::{self, ClearFenceOutcome};
use crate::protocol::{Key, Timestamp};
use crate::render::encoding::{Encoded, parse_base64, parse_hex};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, counted, name, not_found, notice};

const EXAMPLES: &str = "\
Examples:
  mqkv data copy ./state backup/monday  also while the server runs
  mqkv data verify ./state              print content and corruption
  mqkv data recover ./state             save the readable keys
  mqkv serve --data ./state/recovered   continue with the recovered keys
  mqkv data clear-fence ./state line1/recipe
  mqkv data lower-versions ./state      repair after a wrong clock

DIR is the directory of `mqkv serve --data DIR` or `mqkv --embedded=DIR`. For `copy` the server may be running, for all other verbs it must \
not.";

/// Copy, verify, recover or repair the files of a store
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = false, disable_help_subcommand = true)]
pub struct DataArgs {
    #[command(subcommand)]
    pub verb: DataVerb,
}

/// The verbs below `data`.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub enum DataVerb {
    /// Copy the files, also while a server uses them
    ///
    /// TARGET is a new or an empty directory. It gets its name when the copy is complete, verified and on disk; otherwise nothing is
    /// left of it. Only this user can read it. The copy has everything that was acknowledged before it began, and is the state of one
    /// moment since: like that after a power failure. DIR is only read, and its server is not delayed. If the server replaces files
    /// meanwhile, the copy begins again, at most 10 times.
    ///
    /// Restore it while no server uses DIR: move DIR away, and copy TARGET to its place. Users, rules, certificates and the file of
    /// an exchange are not in DIR.
    ///
    /// Exit status: 0 if TARGET was written, 74 if not.
    Copy {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
        /// Directory of the copy
        #[arg(value_name = "TARGET", value_hint = ValueHint::DirPath)]
        target: PathBuf,
    },
    /// Print the content of the files and whether they are intact
    ///
    /// Changes nothing. Exit status: 0 if the files are intact, 74 if they are corrupt.
    Verify {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Write the readable keys of a corrupt store to a new one
    ///
    /// The new store is in DIR/recovered. The corrupt files are not changed. Of intact files nothing is written. Exit status: 0 if
    /// the files are intact, 65 if they are corrupt, so that records may be missing, 74 if nothing was recovered.
    ///
    /// The new store has no rows of an exchange: a store that takes part in one joins it anew.
    Recover {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Remove the fencing token from a key
    ///
    /// For a key that no client can write any more, because the last fencing token is lost.
    ClearFence(ClearFenceArgs),
    /// Lower versions that are more than 60 s ahead of the clock
    ///
    /// For a store whose versions clients refuse, because a clock was ahead when it was written. Versions and fencing
    /// tokens that are more than 60 s ahead become the present time. Set the clock first, and stop all clients that use a
    /// lock: a token from before is greater than the new ones.
    LowerVersions {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct ClearFenceArgs {
    /// Directory of the store
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// The key, any bytes
    #[arg(value_name = "KEY", add = ValueKind::Key, required_unless_present_any = ["key_hex", "key_base64"], conflicts_with_all = ["key_hex", "key_base64"])]
    key: Option<OsString>,
    /// The key in hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = parse_hex, add = OtherForm::OfOperand, conflicts_with = "key_base64")]
    key_hex: Option<Encoded>,
    /// The key in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, add = OtherForm::OfOperand)]
    key_base64: Option<Encoded>,
}

impl ClearFenceArgs {
    fn key(&self) -> Result<Key, CommandError> {
        let word = self.key.clone().map(OsString::into_encoded_bytes);
        let encoded = self.key_hex.clone().or_else(|| self.key_base64.clone()).map(|encoded| encoded.0);
        // One of them is there: the definition requires it.
        let bytes = word.or(encoded).unwrap_or_default();
        Key::new(bytes).map_err(|error| CommandError::usage(error.to_string()))
    }
}

/// The result of `clear-fence`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "clear-fence")]
struct FenceCleared {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    found: bool,
    /// The fencing token that was removed; `None`: the key had none.
    #[serde(rename = "cleared", skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    token: Option<Timestamp>,
}

/// The result of `lower-versions`, here and below `store`.
#[derive(Debug, Serialize)]
pub struct Lowered {
    op: &'static str,
    keys: usize,
    /// The number of fencing tokens.
    fences: usize,
    /// Whether the version was lowered from which new keys start.
    floor: bool,
}

/// Runs the verb.
///
/// # Errors
/// The files are missing, in use or corrupt, or cannot be read or written.
pub fn run(args: &DataArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    match &args.verb {
        DataVerb::Copy { directory, target } => copy::run(directory, target, reporter),
        DataVerb::Verify { directory } => verify(directory, reporter),
        DataVerb::Recover { directory } => recover(directory, reporter),
        DataVerb::ClearFence(args) => clear_fence(args, reporter),
        DataVerb::LowerVersions { directory } => lower_versions(directory, reporter),
    }
}

fn verify(directory: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let now_ms = clock::wall_ms();
    let report = offline::verify(directory, now_ms).map_err(|error| of_read(&error))?;
    let verified = Verified { contents: Contents::of(report, now_ms) };
    reporter.put(&verified)?;
    let Verified { contents: Contents { directory: path, corruption, keys, .. } } = verified;
    let Some(corruption) = corruption else { return Ok(Exit::Yes) };
    let directory = escape(directory.as_os_str().as_encoded_bytes());
    let restore = restore(&directory);
    let error = CommandError::new(Kind::File, format!("{} is corrupt: {corruption}", path.display()));
    Err(error.hint(match keys {
        0 => format!("{restore}: no key can be recovered"),
        _ => format!("{restore}, or recover the readable keys: mqkv data recover {directory}"),
    }))
}

fn recover(directory: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let now_ms = clock::wall_ms();
    let (report, to) = offline::recover(directory, now_ms).map_err(|error| of_read(&error))?;
    let contents = Contents::of(report, now_ms);
    let loss = contents.corruption.as_ref().map(|corruption| {
        CommandError::new(Kind::Data, format!("records may be missing: {corruption}"))
            .hint(format!("{}, if there is one", restore(&escape(directory.as_os_str().as_encoded_bytes()))))
    });
    reporter.put(&Recovered::new(contents, to))?;
    loss.map_or(Ok(Exit::Yes), Err)
}

fn clear_fence(args: &ClearFenceArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let key = args.key()?;
    let outcome =
        offline::clear_fence(&args.directory, &key, clock::wall_ms()).map_err(|error| of_start(&error))?;
    let found = outcome != ClearFenceOutcome::KeyNotFound;
    let token = match outcome {
        ClearFenceOutcome::Cleared(token) => Some(token),
        ClearFenceOutcome::NotFenced | ClearFenceOutcome::KeyNotFound => None,
    };
    reporter.put(&FenceCleared { key, found, token })?;
    Ok(if found { Exit::Yes } else { Exit::No })
}

fn lower_versions(directory: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let lowered = offline::lower_versions(directory, clock::wall_ms()).map_err(|error| of_start(&error))?;
    reporter.put(&Lowered::new("lower-versions", lowered))?;
    Ok(Exit::Yes)
}

impl Record for FenceCleared {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let key = name(&self.key);
        match &self.token {
            _ if !self.found => not_found(&self.key, style),
            Some(token) => notice(&format!("removed the fencing token {token} from {key}"), style),
            None => notice(&format!("{key} has no fencing token; nothing was changed"), style),
        }
    }
}

impl Lowered {
    /// `op` is the name of the verb in JSON.
    pub fn new(op: &'static str, LoweredVersions { keys, fences, floor }: LoweredVersions) -> Self {
        Self { op, keys, fences, floor }
    }
}

impl Record for Lowered {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        if let Self { keys: 0, fences: 0, floor: false, .. } = self {
            return notice("no version is more than 60 s ahead of the clock; nothing was changed", style);
        }
        let (keys, fences) = (counted(self.keys, "key"), counted(self.fences, "fencing token"));
        let floor = if self.floor { ", the version that new keys start from" } else { "" };
        notice(&format!("lowered to the present time: the versions of {keys}, {fences}{floor}"), style)
    }
}
