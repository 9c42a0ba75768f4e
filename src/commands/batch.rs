//! `batch`: runs the lines of a file on one session.

use bytes::Bytes;
use serde::Serialize;

use super::batch_args::{BatchArgs, BatchMode, LineFormat};
use super::command::{BATCH_VERBS, Command};
use super::error::{CommandError, Place};
use super::exit::Exit;
use super::grammar::{self, Grammar};
use super::json_request;
use super::lines::answered::{Answered, FailedLine};
use super::lines::operators;
use super::lines::processor::{LineProcessor, ProcessorState, process_lines};
use super::lines::reader::{Line, Lines};
use super::lines::records::{Id, is_object};
use super::lines::words;
use super::output::Emit;
use super::pipelined::Call;
use super::process::stdin;
use super::session::Session;
use crate::client::{Client, Error, RawRequest, Response};
use crate::protocol::Key;
use crate::render::json::Json;
use crate::render::{Progress, Record, Rendered, Style, Widths, notice};

/// The number of valid lines of `--dry-run`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "batch")]
struct Validated {
    lines: u64,
    dry_run: bool,
}

pub async fn run(args: BatchArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let session = session.of_many_verbs().without_questions();
    let file = stdin::file_or_input(args.file, "mqkv batch FILE")?;
    let lines = Lines::open(&file, b'\n', &session)?;
    session.close_input();
    let mut batch = Batch {
        session: &session,
        client: None,
        emit,
        grammar: None,
        format: args.format,
        state: ProcessorState::new(args.inflight, args.keep_going || args.dry_run, &lines),
        dry_run: args.dry_run,
        answered: 0,
    };
    process_lines(&mut batch, lines).await?;
    let Batch { state, emit, answered, .. } = batch;
    let exit = state.errors.finish()?;
    if args.dry_run {
        emit(&Validated { lines: answered, dry_run: true })?;
    }
    Ok(exit)
}

struct Batch<'a> {
    session: &'a Session,
    /// None before the first request.
    client: Option<&'a Client>,
    emit: Emit<'a>,
    /// Built for the first line that needs it.
    grammar: Option<Box<Grammar>>,
    format: LineFormat,
    state: ProcessorState<PendingLine>,
    dry_run: bool,
    answered: u64,
}

/// A line that waits for its answer or its turn.
struct PendingLine {
    place: Place,
    /// In a box, as the result is: most lines have neither, and thousands of them may wait.
    id: Option<Box<Id>>,
    state: PendingState,
}

enum PendingState {
    Sent(Call),
    /// It needs no request.
    Done(Box<Result<Exit, CommandError>>),
}

/// A line that is not sent at once.
enum DeferredLine {
    /// There is no connection yet.
    Request(Box<(PendingLine, RawRequest)>),
    /// It runs alone, or is only checked.
    Command { place: Place, id: Option<Id>, command: Box<Command> },
}

impl LineProcessor for Batch<'_> {
    type Pending = PendingLine;
    type Deferred = DeferredLine;

    fn state(&mut self) -> &mut ProcessorState<Self::Pending> {
        &mut self.state
    }

    fn start(&mut self, line: Line) -> Result<Option<Self::Deferred>, CommandError> {
        let Line { place, content, is_cut_off, bytes_read } = line;
        self.state.bytes_read = bytes_read;
        if let Ok(content) = &content
            && let Some((key, value)) = self.plain_set(content)
        {
            let prepared = Call::set(key, value, self.session);
            return Ok(self.push(place, None, prepared));
        }
        let Some((id, command)) = self.parse(content) else {
            return Ok(None);
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let error = if is_cut_off { error.cause("the file ends within this line") } else { error };
                self.push_done(place, id, Err(error));
                return Ok(None);
            }
        };
        if self.dry_run || command.batch_mode() != BatchMode::Pipelined {
            return Ok(Some(DeferredLine::Command { place, id, command: Box::new(command) }));
        }
        Ok(self.push(place, id, Call::prepare(command, self.session)))
    }

    async fn run(&mut self, deferred: Self::Deferred) -> Result<(), CommandError> {
        match deferred {
            DeferredLine::Request(request) => {
                let (pending, request) = *request;
                let client = self.session.bulk_client().await?;
                self.client = Some(client);
                self.state.pipeline.push(pending, request, client);
            }
            DeferredLine::Command { place, id, command } if self.dry_run => {
                let checked =
                    self.session.dry_run(async |session| command.run(session, &mut |_| Ok(())).await).await;
                self.push_done(place, id, checked.map(|()| Exit::Yes));
            }
            DeferredLine::Command { place, id, command } => {
                if !command.is_offline() {
                    self.client = Some(self.session.bulk_client().await?);
                }
                self.run_exclusively(place, id, *command).await?;
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        pending: Self::Pending,
        result: Option<Result<Response, Error>>,
    ) -> Result<(), CommandError> {
        let PendingLine { place, id, state } = pending;
        let result = match (state, result) {
            (PendingState::Done(result), _) => *result,
            (PendingState::Sent(call), result) => {
                // An error of the output is not one of the line.
                let mut output = Ok(());
                let emit = &mut self.emit;
                let mut emit_line = |record: &dyn Record| {
                    if output.is_ok() {
                        output = emit(&Answered { place: &place, id: id.as_deref(), record });
                    }
                    Ok(())
                };
                let result = call.finish(result.unwrap_or(Err(Error::Closed)), &mut emit_line);
                output?;
                result
            }
        };
        self.record_result(place, id.as_deref(), result)
    }

    fn report_progress(&mut self) -> Result<(), CommandError> {
        let ProcessorState { bytes_read, bytes_total, .. } = self.state;
        let text = &format_args!("{} lines", self.answered);
        Ok((self.emit)(&Progress { done: bytes_read, total: bytes_total, text })?)
    }
}

/// The id and the command of a line.
type ParsedLine = (Option<Id>, Result<Command, CommandError>);

impl Batch<'_> {
    /// Returns key and value of a line that only sets a key, as most lines do. Parsing it as words
    /// and arguments takes five times the instructions.
    fn plain_set<'l>(&self, content: &'l Bytes) -> Option<(Key, &'l [u8])> {
        let is_command = self.format == LineFormat::Lines && !self.dry_run;
        let (key, value) = is_command.then(|| grammar::plain_set(content)).flatten()?;
        // A part of the line would keep all of it until the answer.
        Some((Key::new(Bytes::copy_from_slice(key)).ok()?, value))
    }

    /// Adds the request of a line. Returns it if there is no connection yet.
    fn push(
        &mut self,
        place: Place,
        id: Option<Id>,
        prepared: Result<(RawRequest, Call), CommandError>,
    ) -> Option<DeferredLine> {
        match prepared {
            Ok((request, call)) => {
                let pending = PendingLine { place, id: id.map(Box::new), state: PendingState::Sent(call) };
                let Some(client) = self.client else {
                    return Some(DeferredLine::Request(Box::new((pending, request))));
                };
                self.state.pipeline.push(pending, request, client);
            }
            Err(error) => self.push_done(place, id, Err(error)),
        }
        None
    }

    /// Adds a line that needs no request.
    fn push_done(&mut self, place: Place, id: Option<Id>, result: Result<Exit, CommandError>) {
        let has_failed = result.is_err();
        let state = PendingState::Done(Box::new(result));
        let pending = PendingLine { place, id: id.map(Box::new), state };
        match has_failed {
            true => self.state.push_failed(pending),
            false => self.state.pipeline.push_done(pending),
        }
    }

    /// Records the result of a line, and emits its error.
    fn record_result(
        &mut self,
        place: Place,
        id: Option<&Id>,
        result: Result<Exit, CommandError>,
    ) -> Result<(), CommandError> {
        self.answered = self.answered.saturating_add(1);
        self.state.errors.record(&place, &result);
        if let Err(error) = result {
            let error = error.with_place(place.clone());
            let is_end = self.state.errors.is_stopped();
            (self.emit)(&FailedLine { place: &place, id, error: &error, is_end })?;
        }
        Ok(())
    }

    /// Runs a command after all lines before it are finished, and returns when it is finished.
    async fn run_exclusively(
        &mut self,
        place: Place,
        id: Option<Id>,
        command: Command,
    ) -> Result<(), CommandError> {
        while !self.state.pipeline.is_empty() {
            self.state.pipeline.wait().await;
            while let Some((pending, result)) = self.state.pipeline.try_next() {
                LineProcessor::finish(self, pending, result)?;
            }
        }
        if self.state.errors.is_stopped() {
            return Ok(());
        }
        let emit = &mut self.emit;
        let mut emit_line = |record: &dyn Record| emit(&Answered { place: &place, id: id.as_ref(), record });
        let result = command.run(self.session, &mut emit_line).await;
        self.record_result(place, id.as_ref(), result)
    }

    /// Parses a line; None if it is empty or a comment.
    fn parse(&mut self, content: Result<Bytes, CommandError>) -> Option<ParsedLine> {
        let content = match content {
            Ok(content) => content,
            Err(error) => return Some((None, Err(error))),
        };
        let content = &content;
        let is_lines = self.format == LineFormat::Lines;
        let (id, command) = match self.format {
            LineFormat::Jsonl if content.trim_ascii().is_empty() => return None,
            LineFormat::Jsonl => json_request::parse(content),
            LineFormat::Lines => {
                let words = match words::split(content) {
                    Ok(words) if words.is_empty() => return None,
                    words => words.map_err(|error| CommandError::usage(error.to_string())),
                };
                let words = words.and_then(|words| operators::refuse_all(content).map(|()| words));
                (None, words.and_then(|words| self.grammar.get_or_insert_default().parse(words)))
            }
        };
        let command = command.and_then(|command| check_mode(command, content));
        Some((id, command.map_err(|error| if is_lines { with_format(content, error) } else { error })))
    }
}

fn check_mode(command: Command, line: &[u8]) -> Result<Command, CommandError> {
    match command.batch_mode() {
        BatchMode::Pipelined | BatchMode::Exclusive => Ok(command),
        BatchMode::Unsupported => {
            let words = words::split(line).unwrap_or_default();
            let verb = words.first().map(|verb| String::from_utf8_lossy(&verb.bytes).to_ascii_lowercase());
            let message = format!("'{}' is not available in a script", verb.unwrap_or_default());
            Err(CommandError::usage(message).hint(format!("verbs of a script: {BATCH_VERBS}")))
        }
    }
}

/// Replaces the hints of an error about a line that is a JSON object by how to run it.
fn with_format(line: &[u8], error: CommandError) -> CommandError {
    if !is_object(line) {
        return error;
    }
    let hint = match line.windows(4).any(|part| part == br#""op""#) {
        true => "mqkv batch --format jsonl FILE runs JSON objects",
        false => "mqkv import FILE writes the keys of JSON objects",
    };
    let message = "a JSON object is not a command".to_owned();
    CommandError { message, hints: vec![hint.to_owned()], ..error }
}

impl Record for Validated {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self.lines {
            1 => notice("1 line is valid", style),
            lines => notice(&format!("{lines} lines are valid"), style),
        }
    }
}
