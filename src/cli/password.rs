//! Asks for a password on the terminal, where nobody sees it.

use std::io::ErrorKind;

use crate::client::Secret;
use crate::commands::{CommandError, Kind};

/// Asks; the terminal is used even where standard input and output are pipes.
///
/// # Errors
/// There is no terminal, or it was left without an answer.
pub fn ask(question: &str) -> Result<Secret, CommandError> {
    let answer = rpassword::prompt_password(question).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => CommandError::usage("no password was given"),
        ErrorKind::Interrupted => CommandError::usage("no password was given"),
        _ => CommandError::new(Kind::Usage, "there is no terminal to ask for the password on")
            .hint("--password-file FILE, or - for standard input"),
    })?;
    if answer.is_empty() {
        return Err(CommandError::usage("the password is empty"));
    }
    Ok(Secret::new(answer.into_bytes()))
}
