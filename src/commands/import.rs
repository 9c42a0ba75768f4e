//! `import`: writes the entries of an export.

use std::path::PathBuf;

use clap::Args;

use super::error::CommandError;
use super::output::{Answer, Answered, Imported, Output, Progress};
use super::session::Session;
use super::{Emit, Verdict};
use crate::client::{Client, Reconnect, SetOptions, Settings};
use crate::commands::lines::pipeline::{INFLIGHT, INFLIGHT_MAX};
use crate::commands::lines::processor::{Flow, Work, pump};
use crate::commands::lines::reader::{Line, Lines};
use crate::commands::lines::records;
use crate::commands::lines::records::Entry;
use crate::protocol::Condition;

const EXAMPLES: &str = "\
Examples:
  mqkv import all.jsonl
  mqkv import all.jsonl --dry-run       look at every line, write nothing, need no broker
  mqkv import defaults.jsonl --nx       leave the keys that exist
  mqkv export | mqkv import - -n other --notls

Each line is one JSON object with key and value, and key_encoding and encoding where they are base64, as `export` writes \
them; `mqkv get -j` and a ttl_ms work as well. Other members are ignored.

What cannot be kept: every value gets a new version, and a key that was to expire stays, for an export does not know \
what it had left to live.

Lines are written in order, so the last one of a key wins. The first trouble ends the import with its exit code; what had \
been sent by then is waited for. --keep-going writes what can be written and ends with the greatest code. With --nx, \
exit code 1 says that some keys existed and were left as they are.";

/// Write the keys and values of an export
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ImportArgs {
    /// The file; - reads standard input
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Leave keys that exist
    #[arg(long)]
    nx: bool,
    /// Look at every line and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write what can be written, whatever becomes of the rest
    #[arg(long)]
    keep_going: bool,
    /// How many requests may wait for their answers
    #[arg(long, value_name = "N", default_value_t = INFLIGHT, value_parser = clap::value_parser!(u16).range(1..=INFLIGHT_MAX))]
    inflight: u16,
}

impl ImportArgs {
    /// Whether it needs no store.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.dry_run
    }
}

/// Runs the verb.
pub async fn run(args: ImportArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let file = match args.file {
        Some(file) => file,
        None if session.input_is_terminal() => {
            return Err(CommandError::usage("FILE is missing").hint("mqkv import FILE"));
        }
        None => PathBuf::from("-"),
    };
    let lines = Lines::open(&file, b'\n', session)?;
    let mut import = Import {
        emit,
        condition: args.nx.then_some(Condition::Absent),
        flow: Flow::new(args.inflight, args.keep_going, &lines),
        ended: Imported { written: 0, left: 0, failed: 0, dry_run: args.dry_run },
        session,
        inflight: args.inflight,
    };
    pump(&mut import, lines).await?;
    let Import { emit, flow, mut ended, .. } = import;
    ended.failed = flow.troubles.failed();
    let verdict = flow.troubles.finish();
    if verdict.is_ok() || args.keep_going {
        emit(Output::Imported(ended))?;
    }
    verdict
}

struct Import<'a> {
    session: &'a Session,
    emit: Emit<'a>,
    condition: Option<Condition>,
    flow: Flow<'a, Written>,
    inflight: u16,
    ended: Imported,
}

/// A line's number, and whether its key was written.
type Written = (u64, Result<Verdict, CommandError>);

impl<'a> Work<'a> for Import<'a> {
    type Outcome = Written;

    fn flow(&mut self) -> &mut Flow<'a, Written> {
        &mut self.flow
    }

    async fn take(&mut self, line: Line) -> Result<(), CommandError> {
        self.flow.bytes_read = line.bytes_read;
        let (number, is_cut_off) = (line.number, line.is_cut_off);
        let entry = match line.content {
            Ok(content) if content.trim_ascii().is_empty() => return Ok(()),
            content => content.and_then(|content| records::entry(&content)),
        };
        match entry {
            Err(error) => {
                let error = if is_cut_off { error.cause("the file ends within this line") } else { error };
                self.flow.push_failed((number, Err(error)));
            }
            Ok(_) if self.ended.dry_run => self.flow.window.push_landed((number, Ok(Verdict::Yes))),
            Ok(entry) => {
                let inflight = usize::from(self.inflight);
                let adjust = |settings: &mut Settings| {
                    settings.inflight_max = inflight;
                    settings.reconnect = Reconnect::WithBackoff;
                };
                let client = self.session.client_that(adjust).await?;
                let (size, condition) = (entry.value.len(), self.condition);
                let flight = async move { (number, write(entry, condition, client).await) };
                self.flow.window.push(size, flight);
            }
        }
        Ok(())
    }

    fn put(&mut self, (line, result): Written) -> Result<(), CommandError> {
        self.flow.troubles.note(line, &result);
        match result {
            Ok(Verdict::No) => self.ended.left = self.ended.left.saturating_add(1),
            Ok(_) => self.ended.written = self.ended.written.saturating_add(1),
            Err(error) => {
                let answer =
                    Answer::Failed { error: error.at_line(line), is_end: self.flow.troubles.is_stopped() };
                (self.emit)(Output::Answered(Answered { line, id: None, answer }))?;
            }
        }
        Ok(())
    }

    fn tell_progress(&mut self) -> Result<(), CommandError> {
        let count = self.ended.written.saturating_add(self.ended.left);
        let Flow { bytes_read, bytes_total, .. } = self.flow;
        Ok((self.emit)(Output::Progress(Progress { count, unit: "keys", bytes_read, bytes_total }))?)
    }
}

/// Writes an entry; whether the condition held.
///
/// # Errors
/// The store refuses it, or does not answer.
pub(super) async fn write(
    entry: Entry,
    condition: Option<Condition>,
    client: &Client,
) -> Result<Verdict, CommandError> {
    let Entry { key, value, ttl_ms } = entry;
    let options = SetOptions { condition, ttl_ms, ..SetOptions::default() };
    let outcome = client.set(&key, &value, options).await?;
    Ok(if outcome.applied { Verdict::Yes } else { Verdict::No })
}
