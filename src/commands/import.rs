//! `import`: writes the entries of an export.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::error::{CommandError, Kind, Place};
use super::exit::Exit;
use super::lines::answered::FailedLine;
use super::lines::entry::Entry;
use super::lines::pipeline::INFLIGHT_MAX;
use super::lines::processor::{LineProcessor, ProcessorState, process_lines};
use super::lines::reader::{Line, Lines};
use super::number::number;
use super::output::Emit;
use super::process::stdin;
use super::session::Session;
use crate::client::{Client, Error, RawRequest, Response, SetOptions, SetOutcome};
use crate::clock;
use crate::protocol::{Condition, ErrorReply};
use crate::render::json::Json;
use crate::render::{Progress, Record, Rendered, Style, Widths, counted, notice};

const HELP: &str = "\
Examples:
  mqkv import all.jsonl
  mqkv import all.jsonl --dry-run       check every line, write nothing
  mqkv import defaults.jsonl --nx       skip keys that exist
  mqkv export | mqkv import - -n other --notls

Lines:
Each line is a JSON object with key and value, and with key_encoding and encoding if they are base64, as `export` writes \
it. The output of `mqkv get -j` is accepted too, and ttl_ms in place of expires. Other members are ignored. Lines are written in \
order, so the last line of a key wins.

Restored:
A key expires at its time (expires), and is left out if that has passed; its fencing token (fence) protects it again. Exports of other \
brokers have neither: a lock in them becomes a key that never expires. Each value gets a new version.

Exit status:
The import stops at the first error and exits with its status; requests that were already sent are completed. Then, and \
after a signal, a hint or the summary names the line to continue from: tail -n +LINE FILE | mqkv import -. Correct an invalid line first. With \
--keep-going all valid lines are written, and the greatest status counts. Keys that --nx skips are no error.";

/// Write the keys and values of an export
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct ImportArgs {
    /// File with the entries; - reads standard input
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Skip keys that exist
    #[arg(long)]
    nx: bool,
    /// Check every line and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write all valid lines, even after an error
    #[arg(long)]
    keep_going: bool,
    /// Requests in flight [default: adapts]
    #[arg(long, value_name = "N", value_parser = number(1..=INFLIGHT_MAX))]
    inflight: Option<u16>,
}

impl ImportArgs {
    /// Returns whether the verb needs no broker.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.dry_run
    }
}

/// The numbers of lines.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(tag = "op", rename = "import")]
struct Imported {
    /// Keys that were written, or would have been.
    written: u64,
    /// How many of them have a time to live.
    with_ttl: u64,
    /// Keys that were not written because they exist.
    #[serde(rename = "left")]
    skipped: u64,
    /// Keys that were not written because they have expired.
    expired: u64,
    failed: u64,
    dry_run: bool,
    /// The line to continue from, if the import stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_line: Option<u64>,
}

pub async fn run(args: ImportArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let file = stdin::file_or_input(args.file, "mqkv import FILE")?;
    let lines = Lines::open(&file, b'\n', session)?;
    let mut import = Import {
        emit,
        condition: args.nx.then_some(Condition::Absent),
        state: ProcessorState::new(args.inflight, args.keep_going || args.dry_run, &lines),
        summary: Imported { dry_run: args.dry_run, ..Imported::default() },
        is_stopped: false,
        next_line: 1,
        session,
        client: None,
    };
    process_lines(&mut import, lines).await?;
    let is_canceled = import.is_canceled();
    let is_stopped = import.is_stopped || is_canceled;
    let Import { emit, state, mut summary, next_line, .. } = import;
    summary.failed = state.errors.failed();
    summary.next_line = is_stopped.then_some(next_line);
    emit(&summary)?;
    match state.errors.finish() {
        // To skip keys is what --nx asks for.
        Ok(_) => Ok(Exit::Yes),
        Err(error) => Err(match summary.next_line {
            Some(line) => continued(error, line, is_canceled),
            None => error,
        }),
    }
}

/// Adds to the error of an import that stopped where to continue.
fn continued(error: CommandError, line: u64, is_canceled: bool) -> CommandError {
    let hint = match error.kind {
        // If the import was canceled, the error can be that of an earlier line.
        Kind::Data if !is_canceled => {
            format!("correct line {line}, then continue from there: mqkv help import")
        }
        // The same line would be refused again.
        Kind::Refused | Kind::Authorization if !is_canceled && !error.is_retryable() => {
            format!("then continue from line {line}, or write all other lines: --keep-going")
        }
        _ => format!("continue from line {line}: mqkv help import"),
    };
    // The error of a line was printed, but without this hint.
    CommandError { is_repetition: false, ..error }.hint(hint)
}

/// Converts the error of a request. The hint for a fenced key cannot be that of a verb, because an import has no token.
fn line_error(error: Error) -> CommandError {
    let is_fenced = matches!(error, Error::Refused(ErrorReply::FenceRequired | ErrorReply::FenceTooOld));
    let error = CommandError::from(error);
    match is_fenced {
        true => CommandError { hints: vec![FENCE_HINT.to_owned()], ..error },
        false => error,
    }
}

const FENCE_HINT: &str = "delete the fenced key: mqkv lock LOCK -- mqkv del KEY --fence-env";

struct Import<'a> {
    session: &'a Session,
    /// None before the first request.
    client: Option<&'a Client>,
    emit: Emit<'a>,
    condition: Option<Condition>,
    state: ProcessorState<PendingLine>,
    summary: Imported,
    /// Whether the line `next_line` failed, and with it the import.
    is_stopped: bool,
    next_line: u64,
}

impl Import<'_> {
    /// Returns whether a signal has ended the import.
    fn is_canceled(&self) -> bool {
        *self.session.canceled().borrow()
    }
}

/// A line, and what it is or the error if it is invalid.
type PendingLine = (Place, Result<Expiring, CommandError>);

/// Whether the key of an entry expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiring {
    Never,
    Later,
    /// It has expired already.
    Before,
}

impl LineProcessor for Import<'_> {
    type Pending = PendingLine;
    type Deferred = Box<(PendingLine, RawRequest)>;

    fn state(&mut self) -> &mut ProcessorState<PendingLine> {
        &mut self.state
    }

    fn start(&mut self, line: Line) -> Result<Option<Self::Deferred>, CommandError> {
        self.state.bytes_read = line.bytes_read;
        let Line { place, content, is_cut_off, .. } = line;
        let entry = match content {
            Ok(content) if content.trim_ascii().is_empty() => return Ok(None),
            content => content.and_then(|content| Entry::parse(&content)),
        };
        match entry {
            Err(error) => {
                let error = if is_cut_off { error.cause("the file ends within this line") } else { error };
                self.state.push_failed((place, Err(error)));
            }
            Ok(entry) => {
                let Some(options) = entry.options(clock::wall_ms()) else {
                    self.state.pipeline.push_done((place, Ok(Expiring::Before)));
                    return Ok(None);
                };
                let line =
                    (place, Ok(if options.ttl_ms.is_some() { Expiring::Later } else { Expiring::Never }));
                if self.summary.dry_run {
                    self.state.pipeline.push_done(line);
                    return Ok(None);
                }
                let options = SetOptions { condition: self.condition, ..options };
                let request = options.request(&entry.key, &entry.value);
                match self.client {
                    Some(client) => self.state.pipeline.push(line, request, client),
                    None => return Ok(Some(Box::new((line, request)))),
                }
            }
        }
        Ok(None)
    }

    async fn run(&mut self, deferred: Self::Deferred) -> Result<(), CommandError> {
        let (line, request) = *deferred;
        let client = self.session.bulk_client().await?;
        self.client = Some(client);
        self.state.pipeline.push(line, request, client);
        Ok(())
    }

    fn finish(
        &mut self,
        (place, checked): PendingLine,
        result: Option<Result<Response, Error>>,
    ) -> Result<(), CommandError> {
        let expiring = *checked.as_ref().unwrap_or(&Expiring::Never);
        let result = match result {
            None => checked.map(|_| Exit::Yes),
            Some(result) => match result.and_then(|response| SetOutcome::decode(response, self.condition)) {
                Ok(SetOutcome { applied: true, .. }) => Ok(Exit::Yes),
                Ok(_) => Ok(Exit::No),
                Err(error) => Err(line_error(error)),
            },
        };
        self.state.errors.record(&place, &result);
        if !self.is_stopped {
            self.is_stopped = result.is_err() && (!self.state.errors.keeps_going() || self.is_canceled());
            self.next_line = if self.is_stopped { place.line } else { place.line.saturating_add(1) };
        }
        match result {
            Ok(Exit::No) => self.summary.skipped = self.summary.skipped.saturating_add(1),
            Ok(_) if expiring == Expiring::Before => {
                self.summary.expired = self.summary.expired.saturating_add(1)
            }
            Ok(_) => {
                self.summary.written = self.summary.written.saturating_add(1);
                let with_ttl = u64::from(expiring == Expiring::Later);
                self.summary.with_ttl = self.summary.with_ttl.saturating_add(with_ttl);
            }
            Err(error) => {
                let error = error.with_place(place.clone());
                let is_end = self.state.errors.is_stopped();
                (self.emit)(&FailedLine { place: &place, id: None, error: &error, is_end })?;
            }
        }
        Ok(())
    }

    fn report_progress(&mut self) -> Result<(), CommandError> {
        let count = self.summary.written.saturating_add(self.summary.skipped);
        let ProcessorState { bytes_read, bytes_total, .. } = self.state;
        let text = &format_args!("{count} keys");
        Ok((self.emit)(&Progress { done: bytes_read, total: bytes_total, text })?)
    }
}

impl Record for Imported {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let Self { written, with_ttl, skipped, expired, failed, dry_run, next_line } = *self;
        let mut text =
            format!("{} {}", if dry_run { "would write" } else { "wrote" }, counted(written, "key"));
        if skipped > 0 {
            text.push_str(&format!("; skipped {}", counted(skipped, "key")));
        }
        if expired > 0 {
            text.push_str(&format!(
                "; left out {} that {}",
                counted(expired, "key"),
                if expired == 1 { "has expired" } else { "have expired" }
            ));
        }
        if failed > 0 {
            text.push_str(&format!("; {failed} failed"));
        }
        if !dry_run && written > 0 {
            text.push_str(" (with new versions, ");
            text.push_str(&match with_ttl {
                0 => "without times to live)".to_owned(),
                with_ttl => format!("{with_ttl} with a time to live)"),
            });
        }
        // Otherwise the error has it.
        if let Some(line) = next_line
            && failed == 0
        {
            text.push_str(&format!("; continue from line {line}"));
        }
        notice(&text, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    #[test]
    fn the_error_of_an_import_that_stopped_has_the_line_to_continue_from() {
        let hints = |kind| continued(CommandError::new(kind, "it failed"), 3, false).hints;
        assert_eq!(hints(Kind::Data), ["correct line 3, then continue from there: mqkv help import"]);
        assert_eq!(hints(Kind::Unavailable), ["continue from line 3: mqkv help import"]);
        let refused = "then continue from line 3, or write all other lines: --keep-going";
        assert_eq!(hints(Kind::Refused), [refused]);
        let printed = CommandError { is_repetition: true, ..CommandError::new(Kind::Timeout, "it failed") };
        assert!(!continued(printed, 3, false).is_repetition);
        let canceled = continued(CommandError::new(Kind::Data, "1 of 2 lines failed"), 3, true);
        assert_eq!(canceled.hints, ["continue from line 3: mqkv help import"]);
    }

    #[test]
    fn the_summary_is_a_message_or_a_record() {
        let imported = Imported { written: 1, skipped: 2, failed: 3, ..Imported::default() };
        assert_eq!(
            shown(&imported, &Style::PLAIN),
            (
                String::new(),
                "wrote 1 key; skipped 2 keys; 3 failed (with new versions, without times to live)\n"
                    .to_owned()
            )
        );
        assert_eq!(
            shown(&imported, &Style::JSON).0,
            "{\"v\":1,\"op\":\"import\",\"written\":1,\"with_ttl\":0,\"left\":2,\"expired\":0,\"failed\":3,\"dry_run\":false}\n"
        );
        let expiring = Imported { with_ttl: 1, expired: 2, ..imported };
        let text = "wrote 1 key; skipped 2 keys; left out 2 keys that have expired; 3 failed (with new versions, 1 with a time to live)\n";
        assert_eq!(shown(&expiring, &Style::PLAIN).1, text);
        assert_eq!(shown(&imported, &Style::QUIET), Default::default());
        let stopped = Imported { next_line: Some(7), ..imported };
        assert!(
            shown(&stopped, &Style::PLAIN)
                .1
                .ends_with("; 3 failed (with new versions, without times to live)\n")
        );
        let canceled = Imported { failed: 0, ..stopped };
        assert!(
            shown(&canceled, &Style::PLAIN).1.ends_with("without times to live); continue from line 7\n")
        );
        assert!(shown(&stopped, &Style::JSON).0.ends_with(",\"dry_run\":false,\"next_line\":7}\n"));
    }
}
