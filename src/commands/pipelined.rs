//! Verbs of one request, which may be in flight together with others.

use super::command::Command;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use super::{del, get, raw, set, vdel};
use crate::client::{Access, Error, RawRequest, Response};
use crate::protocol::Key;

/// A verb whose request is sent.
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

impl Call {
    /// Returns the request of a verb.
    ///
    /// # Errors
    /// The arguments are invalid, or the session is read-only.
    pub fn prepare(command: Command, session: &Session) -> Result<(RawRequest, Self), CommandError> {
        let access = command.access();
        if command.writes() {
            session.check_write()?;
        }
        let prepared = match command {
            Command::Get(args) => get::prepare(args).map(|(request, call)| (request, VerbCall::Get(call))),
            Command::Set(args) => {
                set::prepare(args, session).map(|(request, call)| (request, VerbCall::Set(call)))
            }
            Command::Del(args) => {
                del::prepare(args, session).map(|(request, call)| (request, VerbCall::Del(call)))
            }
            Command::Vdel(args) => {
                vdel::prepare(args, session).map(|(request, call)| (request, VerbCall::Vdel(call)))
            }
            Command::Raw(args) => {
                let (request, call) = raw::prepare(args);
                Ok((request, VerbCall::Raw(call)))
            }
            _ => Err(CommandError::new(Kind::Bug, "a command that is not pipelined")),
        };
        let (request, verb) = prepared.map_err(|error| about(access, error))?;
        Ok((request, Self { access, verb }))
    }

    /// Returns the request that sets a key without options.
    ///
    /// # Errors
    /// The session is read-only.
    pub fn set(key: Key, value: &[u8], session: &Session) -> Result<(RawRequest, Self), CommandError> {
        session.check_write()?;
        let (request, call) = set::prepare_plain(key, value);
        Ok((request, Self { access: Access::Write, verb: VerbCall::Set(call) }))
    }

    /// Emits the records of the verb.
    pub fn finish(self, result: Result<Response, Error>, emit: Emit<'_>) -> Result<Exit, CommandError> {
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

/// Returns the error of a verb with this access: the outcome is about writes only.
pub fn about(access: Access, error: CommandError) -> CommandError {
    match access {
        Access::Read => CommandError { outcome: None, ..error },
        Access::Write => error,
    }
}
