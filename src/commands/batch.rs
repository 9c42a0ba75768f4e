//! `batch`: runs the lines of a file over one session.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::error::CommandError;
use super::grammar::Grammar;
use super::output::{Answer, Answered, Output, Progress};
use super::session::Session;
use super::{Command, Emit, Room, Verdict};
use crate::client::Reconnect;
use crate::commands::lines::pipeline::{INFLIGHT, INFLIGHT_MAX};
use crate::commands::lines::processor::{Flow, Work, pump};
use crate::commands::lines::reader::{Line, Lines};
use crate::commands::lines::records;
use crate::commands::lines::records::Id;
use crate::commands::lines::words;

const EXAMPLES: &str = "\
Examples:
  mqkv batch setup.mqkv
  printf 'set a 1\\nset b 2 --ttl 30s\\nget a\\n' | mqkv batch -
  jq -c '{op:\"set\",key:.name,value:.text}' items.json | mqkv batch --format jsonl -

A line is a verb with its arguments: get, set, del, vdel, raw, keys, ping, decode. A verb may be in upper case, and SET \
may end as on the wire: SET k v NX PX 5000. Words are parted by blanks; 'single quotes' keep everything as it is, \
\"double quotes\" know \\n \\r \\t \\0 \\e \\\\ \\\" \\xNN. A key or value in quotes is taken as it is, also \"-\" and \"--nx\", where \
no option follows. A line that begins with # is a comment.

In JSON lines the members are op (get, set, del, vdel), key, value, and, where needed, key_encoding and encoding \
(utf-8, base64), ttl_ms, condition (nx, nex), fence, persist; and id, any JSON, which comes back with the answer.

Lines are sent in order, up to --inflight of them before the first is answered, and the store does them in order: a get \
sees the set before it. Answers come in the order of the lines: in a pipe one line for each get, escaped as between \
double quotes, empty for a key that is not there; with -j, and for JSON lines, one object for each answer, with its line.

The first trouble ends the batch with its exit code; what had been sent by then is waited for, and the error says which \
lines that were. A no (exit code 1) ends nothing, and is the exit code at the end. --keep-going runs all lines and ends \
with the greatest code of all.";

/// Run the lines of a file, one session for all
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct BatchArgs {
    /// The file; - reads standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Run all lines, whatever becomes of them
    #[arg(long)]
    keep_going: bool,
    /// How many requests may wait for their answers
    #[arg(long, value_name = "N", default_value_t = INFLIGHT, value_parser = clap::value_parser!(u16).range(1..=INFLIGHT_MAX))]
    inflight: u16,
    /// What the lines are
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    format: Lining,
}

/// What lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Lining {
    /// Verbs and their arguments, as on the command line
    Lines,
    /// JSON objects; the answers are JSON, too
    Jsonl,
}

impl BatchArgs {
    /// Whether the answers are JSON unless another format is asked for.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Lining::Jsonl
    }
}

/// Runs the verb.
pub async fn run(args: BatchArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let lines = Lines::open(&args.file, b'\n', session)?;
    session.close_input();
    let mut batch = Batch {
        session,
        emit,
        reader: Reader::new(args.format),
        flow: Flow::new(args.inflight, args.keep_going, &lines),
        inflight: args.inflight,
        answered: 0,
    };
    pump(&mut batch, lines).await?;
    batch.flow.troubles.finish()
}

struct Batch<'a> {
    session: &'a Session,
    emit: Emit<'a>,
    reader: Reader,
    flow: Flow<'a, Outcome>,
    inflight: u16,
    answered: u64,
}

/// What became of a line.
struct Outcome {
    line: u64,
    id: Option<Id>,
    records: Vec<Output>,
    result: Result<Verdict, CommandError>,
}

impl<'a> Work<'a> for Batch<'a> {
    type Outcome = Outcome;

    fn flow(&mut self) -> &mut Flow<'a, Outcome> {
        &mut self.flow
    }

    /// A line that cannot share the window is carried out when that is empty.
    async fn take(&mut self, line: Line) -> Result<(), CommandError> {
        self.flow.bytes_read = line.bytes_read;
        let Line { number, is_cut_off, .. } = line;
        let size = line.content.as_ref().map_or(0, Vec::len);
        let Some((id, command)) = self.reader.read(line) else {
            return Ok(());
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let error = if is_cut_off { error.cause("the file ends within this line") } else { error };
                self.flow.push_failed(Outcome { line: number, id, records: Vec::new(), result: Err(error) });
                return Ok(());
            }
        };
        if !command.is_offline() {
            let inflight = self.inflight;
            self.session
                .client_that(|settings| {
                    settings.inflight_max = usize::from(inflight);
                    settings.reconnect = Reconnect::WithBackoff;
                })
                .await?;
        }
        match command.room() {
            Room::Shared => {
                let flight = answer(number, id, command, self.session);
                let landed = self.flow.window.push(size, flight);
                let failed = landed.is_some_and(|outcome| outcome.result.is_err());
                self.flow.is_failing |= failed && !self.flow.troubles.keeps_going();
            }
            Room::Alone | Room::None => self.run_alone(number, id, command).await?,
        }
        Ok(())
    }

    fn put(&mut self, outcome: Outcome) -> Result<(), CommandError> {
        let Outcome { line, id, records, result } = outcome;
        self.answered = self.answered.saturating_add(1);
        for record in records {
            let answer = Answer::Record(Box::new(record));
            (self.emit)(Output::Answered(Answered { line, id: id.clone(), answer }))?;
        }
        self.flow.troubles.note(line, &result);
        if let Err(error) = result {
            let answer =
                Answer::Failed { error: error.at_line(line), is_end: self.flow.troubles.is_stopped() };
            (self.emit)(Output::Answered(Answered { line, id, answer }))?;
        }
        Ok(())
    }

    fn tell_progress(&mut self) -> Result<(), CommandError> {
        let Flow { bytes_read, bytes_total, .. } = self.flow;
        let progress = Progress { count: self.answered, unit: "lines", bytes_read, bytes_total };
        Ok((self.emit)(Output::Progress(progress))?)
    }
}

impl Batch<'_> {
    /// Runs what makes more than one request: everything before it is done by then, and nothing goes beside it.
    async fn run_alone(&mut self, line: u64, id: Option<Id>, command: Command) -> Result<(), CommandError> {
        while !self.flow.window.is_empty() {
            self.flow.window.settle().await;
            while let Some(outcome) = self.flow.window.try_next() {
                self.put(outcome)?;
            }
        }
        if self.flow.troubles.is_stopped() {
            return Ok(());
        }
        let emit = &mut self.emit;
        let mut emit_line = |record| {
            let answer = Answer::Record(Box::new(record));
            emit(Output::Answered(Answered { line, id: id.clone(), answer }))
        };
        // Boxed, for the compiler must not look for a batch within a batch.
        let result = Box::pin(command.run(self.session, &mut emit_line)).await;
        self.put(Outcome { line, id, records: Vec::new(), result })
    }
}

async fn answer(line: u64, id: Option<Id>, command: Command, session: &Session) -> Outcome {
    let mut records = Vec::new();
    let mut keep = |record| {
        records.push(record);
        Ok(())
    };
    let result = command.run(session, &mut keep).await;
    Outcome { line, id, records, result }
}

/// Reads lines as verbs.
enum Reader {
    Lines(Box<Grammar>),
    Jsonl,
}

impl Reader {
    fn new(lining: Lining) -> Self {
        match lining {
            Lining::Lines => Self::Lines(Box::default()),
            Lining::Jsonl => Self::Jsonl,
        }
    }

    /// None: the line says nothing.
    fn read(&mut self, line: Line) -> Option<(Option<Id>, Result<Command, CommandError>)> {
        let content = match line.content {
            Ok(content) => content,
            Err(error) => return Some((None, Err(error))),
        };
        let mark = if line.number == 1 { BYTE_ORDER_MARK } else { b"" };
        let content = content.strip_prefix(mark).unwrap_or(&content);
        let (id, command) = match self {
            Self::Jsonl if content.trim_ascii().is_empty() => return None,
            Self::Jsonl => records::request(content),
            Self::Lines(grammar) => {
                let words = match words::split(content) {
                    Ok(words) if words.is_empty() => return None,
                    words => words.map_err(|error| CommandError::usage(error.to_string())),
                };
                (None, words.and_then(|words| grammar.parse(words)))
            }
        };
        Some((id, command.and_then(within_a_batch)))
    }
}

/// What editors of Windows put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

fn within_a_batch(command: Command) -> Result<Command, CommandError> {
    match command.room() {
        Room::Shared | Room::Alone => Ok(command),
        Room::None => Err(CommandError::usage("this verb does not go into a batch")
            .hint("get, set, del, vdel, raw, keys, ping, decode")),
    }
}
