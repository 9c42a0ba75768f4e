//! Passwords of the terminal, of standard input and of a file. The prompt restores the terminal's modes, whatever ends it.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::time::sleep;

use super::runtime;
use crate::cli::detached::run_detached;
use crate::commands::{CommandError, Kind};
use crate::net::Secret;
use crate::platform::{self, SavedTerminal, Signal, Signals};

/// Maximum length of a password in bytes: the limit of MQTT.
const PASSWORD_BYTES_MAX: usize = 65_535;

/// Asks for a password on the terminal, even if standard input and output are pipes. The future can be dropped at any
/// time: the caller handles the signals, including Ctrl-C.
///
/// # Errors
/// There is no terminal, or no password was entered.
pub async fn ask(question: String) -> Result<Secret, CommandError> {
    let mut saved = SavedTerminal::new();
    let (reading, read) = channel::<()>();
    // Dropped before the saved modes, also by a signal.
    let _end = EndOfReading(read);
    let asked = run_detached(move || {
        let _reading = reading;
        rpassword::prompt_password(question)
    })
    .await;
    if let Some(saved) = &mut saved {
        saved.is_asking = false;
    }
    let answer = match asked? {
        Ok(answer) => Secret::new(answer.into_bytes()),
        Err(error) => {
            if error.kind() == ErrorKind::Interrupted {
                // Ctrl-C: gives the signal time to arrive, unless it is ignored.
                sleep(Duration::from_secs(1)).await;
            }
            return Err(match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::Interrupted => {
                    CommandError::usage("no password was entered")
                }
                _ => CommandError::usage("there is no terminal to ask for the password")
                    .hint("--password-file FILE, or - for standard input"),
            });
        }
    };
    if answer.bytes().is_empty() {
        return Err(CommandError::usage("the password is empty"));
    }
    Ok(answer)
}

/// Waits until the thread that reads the answer has ended. It sends the signal of Ctrl-C itself and restores the modes of the terminal
/// after that: a line editor that sets its own before would lose keys.
struct EndOfReading(Receiver<()>);

impl Drop for EndOfReading {
    fn drop(&mut self) {
        /// Another signal does not end the thread.
        const WAIT_MAX: Duration = Duration::from_millis(200);
        let _ = self.0.recv_timeout(WAIT_MAX);
    }
}

/// Asks in a runtime of its own; returns the signal if one arrived instead of an answer.
///
/// # Errors
/// There is no terminal, or no password was entered.
pub fn ask_here(question: String) -> Result<Result<Secret, Signal>, CommandError> {
    runtime::here()?.block_on(async {
        let mut signals =
            Signals::new().map_err(|error| CommandError::system("listen to signals", &error))?;
        tokio::select! {
            answer = ask(question) => answer.map(Ok),
            signal = signals.next() => Ok(Err(signal)),
        }
    })
}

/// Reads a password from standard input: its first line. Consumes all input.
///
/// # Errors
/// The password is empty or too long, or standard input cannot be read.
pub fn read_input() -> Result<Secret, CommandError> {
    let failed =
        |error: io::Error| CommandError::new(Kind::File, format!("cannot read standard input: {error}"));
    // Bypasses the buffer of standard input, which would retain a copy.
    let input = platform::stdin_file()
        .and_then(|input| Secret::read(input, 0, PASSWORD_BYTES_MAX))
        .map_err(failed)?;
    password_in(input, "standard input")
}

/// Reads a password from the first line of a file.
///
/// # Errors
/// The password is empty or too long, or the file cannot be read.
pub fn read_file(path: &Path) -> Result<Secret, CommandError> {
    let input = Secret::read_file(path, PASSWORD_BYTES_MAX)
        .map_err(|error| CommandError::file("read", path, &error))?;
    password_in(input, &path.display().to_string())
}

fn password_in(input: Secret, name: &str) -> Result<Secret, CommandError> {
    // A truncated password would be a wrong one.
    if input.bytes().len() > PASSWORD_BYTES_MAX {
        let message = format!("{name} has more than {PASSWORD_BYTES_MAX} bytes, the limit for a password");
        return Err(CommandError::usage(message));
    }
    let password = input
        .first_line()
        .map_err(|error| CommandError::usage(format!("{name} {error}")).hint(error.hint()))?;
    match password.bytes() {
        [] => Err(CommandError::usage(format!("{name} contains no password"))),
        _ => Ok(password),
    }
}
