//! Password prompt on the terminal; restores the terminal's modes, whatever ends the prompt.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::time::Duration;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use tokio::time::sleep;

use super::runtime;
use crate::cli::detached::run_detached;
use crate::commands::CommandError;
use crate::commands::process::signal::{Signal, Signals};
use crate::net::Secret;

/// Asks for a password on the terminal, even if standard input and output are pipes. The future can be dropped at any
/// time: the caller handles the signals, including Ctrl-C.
///
/// # Errors
/// There is no terminal, or no password was entered.
pub async fn ask(question: String) -> Result<Secret, CommandError> {
    let mut saved = SavedTerminal::new();
    let asked = run_detached(move || rpassword::prompt_password(question)).await;
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

/// Modes of the terminal before the prompt: the prompt switches echo off, and a signal must not leave it so.
struct SavedTerminal {
    terminal: File,
    modes: Termios,
    is_asking: bool,
}

impl SavedTerminal {
    fn new() -> Option<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, modes, is_asking: true })
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        // Fails if the terminal is gone: nothing to restore.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.modes);
        if self.is_asking {
            let _ = self.terminal.write_all(b"\n");
        }
    }
}
