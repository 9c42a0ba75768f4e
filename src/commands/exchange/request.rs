//! Requests of `exchange` and their answers.

use crate::client::{Access, Client, Error, Outcome, RawRequest, ReasonCode, Reconnect, RequestProperties};
use crate::commands::error::{CommandError, Kind};
use crate::commands::exit::Exit;
use crate::commands::output::Emit;
use crate::commands::session::Session;
use crate::protocol::exchange::topic::COMMAND;
use crate::protocol::exchange::{Answer, Command, Refusal};
use crate::render::Record;

/// Returns a client that survives a loss of the connection.
pub async fn connect(session: &Session) -> Result<&Client, CommandError> {
    session.client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await
}

/// Sends a request and returns its answer.
pub async fn ask(command: &Command, session: &Session) -> Result<Answer, CommandError> {
    let client = connect(session).await?;
    let access = if command.changes() { Access::Write } else { Access::Read };
    let properties = RequestProperties { topic: Some(COMMAND), ..RequestProperties::default() };
    let request = RawRequest { payload: command.encode(), access, properties: properties.shared() };
    let response = client.send(request).await.map_err(failed)?;
    match Answer::decode(&response.payload) {
        Ok(Answer::Refused(refusal)) => Err(refused(&refusal)),
        Ok(answer) => Ok(answer),
        Err(error) => {
            let outcome = access.outcome_when_unanswered();
            Err(Error::MalformedReply { cause: error.to_string(), outcome }.into())
        }
    }
}

/// Emits a record, which is the answer yes or no.
pub fn put(emit: Emit<'_>, record: &dyn Record, is_yes: bool) -> Result<Exit, CommandError> {
    emit(record)?;
    Ok(if is_yes { Exit::Yes } else { Exit::No })
}

/// Returns the error for an answer to another request.
pub fn unexpected() -> CommandError {
    let cause = "an answer to another request".to_owned();
    Error::MalformedReply { cause, outcome: Outcome::Unchanged }.into()
}

const SERVE: &str = "start the store with: mqkv serve --data DIR --exchange FILE";

/// Explains that a broker does not answer: one without an exchange accepts the message and drops it.
fn failed(error: Error) -> CommandError {
    match &error {
        Error::NoStore { target, .. } => {
            let message = format!("no exchange at {target}: nothing subscribes to {COMMAND}");
            let hints =
                vec!["the broker must be a root or a leaf: mqkv serve --data DIR --exchange FILE".to_owned()];
            CommandError { message, hints, ..error.into() }
        }
        Error::Timeout { .. } => {
            let error = CommandError::from(error);
            error.hint("only a root or a leaf answers: mqkv serve --data DIR --exchange FILE")
        }
        Error::SubscribeRefused { reason, .. } if reason.code == ReasonCode::NOT_AUTHORIZED => {
            let hints = vec![format!(
                "for the answer, this client needs the permission to subscribe to clients/CLIENT-ID/#, and to publish to \
                 {COMMAND}"
            )];
            CommandError { hints, ..error.into() }
        }
        Error::PublishRefused { reason } if reason.code == ReasonCode::NOT_AUTHORIZED => {
            let hints = vec![format!(
                "this client needs the permission to publish to {COMMAND} and, for the answer, to clients/CLIENT-ID/#"
            )];
            CommandError { hints, ..error.into() }
        }
        _ => error.into(),
    }
}

/// Returns the error for a refusal, with what to do.
pub fn refused(refusal: &Refusal) -> CommandError {
    let error = CommandError::new(Kind::Refused, refusal.text());
    let error = CommandError { outcome: Some(Outcome::Unchanged), ..error };
    match refusal {
        Refusal::NoExchange => error.hint(SERVE),
        Refusal::UnknownCommand => error.hint("the store has another version: update the older program"),
        Refusal::RootOnly => error.hint("name the root as the broker: -b URL"),
        Refusal::LeafOnly => error.hint("name the leaf as the broker: -b URL"),
        Refusal::TooManyLeaves => error.hint("forget leaves that are gone: mqkv exchange drop-leaf NAME"),
        Refusal::NotReadable => error.hint(
            "this client needs in the rules of --authz: stateStoreResources with method Read and the key, \
             keyType Pattern or String",
        ),
        Refusal::NotPersisted => error.hint("see the log of the store: its disk is full or has failed"),
        Refusal::InvalidName | Refusal::Other(_) => error,
    }
}
