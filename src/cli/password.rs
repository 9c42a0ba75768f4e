//! Asks for a password on the terminal, where nobody sees it, and gives the terminal back whatever ends the question.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::time::Duration;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use tokio::time::sleep;

use super::runtime;
use crate::cli::detached::aside;
use crate::commands::CommandError;
use crate::commands::process::signal::{Signal, Signals};
use crate::net::Secret;

/// Asks; the terminal is used even where standard input and output are pipes. May be dropped at any time: whoever
/// calls listens to the signals, Ctrl-C among them.
///
/// # Errors
/// There is no terminal, or it was left without an answer.
pub async fn ask(question: String) -> Result<Secret, CommandError> {
    let mut lent = Lent::terminal();
    let asked = aside(move || rpassword::prompt_password(question)).await;
    if let Some(lent) = &mut lent {
        lent.is_asking = false;
    }
    let answer = match asked? {
        Ok(answer) => Secret::new(answer.into_bytes()),
        Err(error) => {
            if error.kind() == ErrorKind::Interrupted {
                // Ctrl-C: the signal is on its way to whoever listens, unless it is ignored.
                sleep(Duration::from_secs(1)).await;
            }
            return Err(match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::Interrupted => {
                    CommandError::usage("no password was given")
                }
                _ => CommandError::usage("there is no terminal to ask for the password on")
                    .hint("--password-file FILE, or - for standard input"),
            });
        }
    };
    if answer.bytes().is_empty() {
        return Err(CommandError::usage("the password is empty"));
    }
    Ok(answer)
}

/// Asks where nothing else runs; or the signal that came instead of an answer.
///
/// # Errors
/// There is no terminal, or it was left without an answer.
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

/// The terminal as it was: who asks makes it dark, and a signal in the middle of that would leave it so.
struct Lent {
    terminal: File,
    modes: Termios,
    is_asking: bool,
}

impl Lent {
    fn terminal() -> Option<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, modes, is_asking: true })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.modes);
        if self.is_asking {
            let _ = self.terminal.write_all(b"\n");
        }
    }
}
