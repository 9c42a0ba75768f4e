//! Runs a verb.

use super::batch::{BatchCommand, BatchMode, CommandFuture, LineParser, PipelinedCall};
use super::command::Command;
use super::error::{CommandError, Kind};
use super::grammar::Grammar;
use super::json_request;
use super::lines::records::Id;
use super::lines::words::Word;
use super::output::Emit;
use super::session::Session;
use super::verdict::Verdict;
use super::{
    batch, bench, decode, del, doctor, edit, exchange, export, get, holder, import, keys, lock, monitor,
    ping, raw, set, unlock, vdel, watch,
};
use crate::client::{Access, Error, RawRequest, Response};

impl Command {
    /// Runs the verb; `emit` takes its records.
    ///
    /// # Errors
    /// The verb failed; the records so far have been emitted.
    pub async fn run(self, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let access = self.access();
        if self.writes() {
            session.check_write()?;
        }
        let mut output_failed = false;
        let emit: Emit<'_> = &mut |output| emit(output).inspect_err(|_| output_failed = true);
        let result = match self {
            Self::Get(args) => get::run(args, session, emit).await,
            Self::Set(args) => set::run(args, session, emit).await,
            Self::Del(args) => del::run(args, session, emit).await,
            Self::Vdel(args) => vdel::run(args, session, emit).await,
            Self::Edit(args) => edit::run(args, session, emit).await,
            Self::Watch(args) => watch::run(args, session, emit).await,
            Self::Lock(args) => lock::run(args, session, emit).await,
            Self::Unlock(args) => unlock::run(args, session, emit).await,
            Self::Holder(args) => holder::run(args, session, emit).await,
            Self::Keys(args) => keys::run(args, session, emit).await,
            Self::Export(args) => export::run(args, session, emit).await,
            Self::Import(args) => import::run(args, session, emit).await,
            Self::Batch(args) => batch::run(args, Parser::default(), session, emit).await,
            Self::Ping(args) => ping::run(args, session, emit).await,
            Self::Doctor(args) => doctor::run(args, session, emit).await,
            Self::Bench(args) => bench::run(args, session, emit).await,
            Self::Raw(args) => raw::run(args, session, emit).await,
            Self::Monitor(args) => monitor::run(args, session, emit).await,
            Self::Exchange(args) => exchange::run(args, session, emit).await,
            Self::Decode(args) => decode::run(args, session, emit),
        };
        result.map_err(|error| match access {
            Access::Write if output_failed => error.cause("the store has answered; only the output failed"),
            access => about(access, error),
        })
    }
}

/// Returns the error of a command with this access: the outcome is about writes only.
fn about(access: Access, error: CommandError) -> CommandError {
    match access {
        Access::Read => CommandError { outcome: None, ..error },
        Access::Write => error,
    }
}

/// A command of a batch that is sent.
#[derive(Debug)]
pub struct Call {
    access: Access,
    verb: VerbCall,
}

#[derive(Debug)]
enum VerbCall {
    Get(get::GetCall),
    Set(set::SetCall),
    Del(del::DelCall),
    Vdel(vdel::VdelCall),
    Raw(raw::RawCall),
}

impl PipelinedCall for Call {
    fn finish(self, result: Result<Response, Error>, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let Self { access, verb } = self;
        let finish = |response| match verb {
            VerbCall::Get(call) => call.finish(response, emit),
            VerbCall::Set(call) => call.finish(response, emit),
            VerbCall::Del(call) => call.finish(response, emit),
            VerbCall::Vdel(call) => call.finish(response, emit),
            VerbCall::Raw(call) => call.finish(response, emit),
        };
        result.map_err(CommandError::from).and_then(finish).map_err(|error| about(access, error))
    }
}

impl BatchCommand for Command {
    type Call = Call;

    fn mode(&self) -> BatchMode {
        self.batch_mode()
    }

    fn is_offline(&self) -> bool {
        self.is_offline()
    }

    fn prepare(self, session: &Session) -> Result<(RawRequest, Call), CommandError> {
        let access = self.access();
        if self.writes() {
            session.check_write()?;
        }
        let prepared = match self {
            Self::Get(args) => get::prepare(args).map(|(request, call)| (request, VerbCall::Get(call))),
            Self::Set(args) => {
                set::prepare(args, session).map(|(request, call)| (request, VerbCall::Set(call)))
            }
            Self::Del(args) => {
                del::prepare(args, session).map(|(request, call)| (request, VerbCall::Del(call)))
            }
            Self::Vdel(args) => {
                vdel::prepare(args, session).map(|(request, call)| (request, VerbCall::Vdel(call)))
            }
            Self::Raw(args) => {
                let (request, call) = raw::prepare(args);
                Ok((request, VerbCall::Raw(call)))
            }
            _ => Err(CommandError::new(Kind::Bug, "a command that is not pipelined")),
        };
        let (request, verb) = prepared.map_err(|error| about(access, error))?;
        Ok((request, Call { access, verb }))
    }

    fn run<'a>(self, session: &'a Session, emit: Emit<'a>) -> CommandFuture<'a> {
        Box::pin(self.run(session, emit))
    }
}

/// Parses the lines of a batch.
#[derive(Default)]
struct Parser {
    /// Built for the first line that needs it.
    grammar: Option<Box<Grammar>>,
}

impl LineParser for Parser {
    type Command = Command;

    fn parse_words(&mut self, words: Vec<Word>) -> Result<Command, CommandError> {
        self.grammar.get_or_insert_default().parse(words)
    }

    fn parse_json(&self, line: &[u8]) -> (Option<Id>, Result<Command, CommandError>) {
        json_request::parse(line)
    }
}
