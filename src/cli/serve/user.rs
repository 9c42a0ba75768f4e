//! `serve user`: manages the file of `--users`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::cli::options::DisplayArgs;
use crate::cli::report::{self, Reporter};
use crate::cli::{password, permissions, resolve};
use crate::commands::process::signal::Signal;
use crate::commands::{CommandError, Exit, Kind};
use crate::net::Secret;
use crate::render::escape::escape;
use crate::render::log::{Field, answer};
use crate::server::{IdentityError, UsersFile};

const EXAMPLES: &str = "\
Examples:
  mqkv serve user add users ann          asks for the password, twice
  mqkv serve user add users ann < FILE   reads the first line
  mqkv serve user add users ann --password-file FILE
  mqkv serve user ls users
  mqkv serve --users users

A running server reads the changed file at the next authentication. Connections of a removed user, or with a changed \
password, end when the server gets SIGHUP.";

/// The verbs below `serve`.
#[derive(Debug, Subcommand)]
pub enum ServeAction {
    /// Add, remove and list the users of a file
    #[command(after_long_help = EXAMPLES, disable_help_subcommand = true, arg_required_else_help = false)]
    User(UserArgs),
}

#[derive(Debug, Args)]
pub struct UserArgs {
    #[command(subcommand)]
    action: UserAction,
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// Add a user, or change the password of a user
    ///
    /// The password is the first line of --password-file. Without that option it is asked for on the terminal; if standard
    /// input is not a terminal, it is the first line of standard input. A new file is readable by its owner only.
    Add(AddArgs),
    /// Remove a user
    Rm(UserName),
    /// List the users
    Ls {
        /// File of the users
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    user: UserName,
    /// File whose first line is the password
    ///
    /// - reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "ask_password")]
    password_file: Option<PathBuf>,
    /// Ask for the password on the terminal
    #[arg(long)]
    ask_password: bool,
}

#[derive(Debug, Args)]
struct UserName {
    /// File of the users
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the user
    #[arg(value_name = "NAME")]
    name: String,
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be read or written or is invalid, or there is no password.
pub fn run(
    ServeAction::User(UserArgs { action }): &ServeAction,
    display: &DisplayArgs,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    // With JSON there are no messages.
    let is_quiet = display.quiet || reporter.is_json();
    let mut print = |name: &str, change: &str, words: &dyn Fn(String) -> String| {
        if reporter.is_json() {
            let fields = [("user", name), ("change", change)];
            let fields = fields.map(|(field, text)| (field, Field::Text(text.to_owned())));
            return reporter.data(answer("user", fields).as_bytes());
        }
        if !is_quiet {
            report::log(&words(escape(name.as_bytes())));
        }
        Ok(())
    };
    match action {
        UserAction::Add(AddArgs { user: UserName { file, name }, password_file, ask_password }) => {
            let source = match password_file {
                Some(file) => Some(Source::File(file)),
                None => ask_password.then_some(Source::Terminal),
            };
            let password = match password_for(name, source, is_quiet)? {
                Ok(password) => password,
                Err(signal) => return Ok(signal.exit()),
            };
            let was_there = UsersFile::new(file).add(name, &password)?;
            if was_there {
                print(name, "changed", &|name| format!("changed the password of {name}"))?;
            } else {
                print(name, "added", &|name| format!("added {name}"))?;
            }
        }
        UserAction::Rm(UserName { file, name }) => {
            let was_there = UsersFile::new(file).remove(name)?;
            if !was_there {
                print(name, "unchanged", &|name| format!("error: user not found: {name}"))?;
                return Ok(Exit::No);
            }
            print(name, "removed", &|name| format!("removed {name}"))?;
        }
        UserAction::Ls { file } => {
            let names = UsersFile::new(file).names()?;
            if reporter.is_json() {
                reporter.data(answer("user", [("users", Field::List(names))]).as_bytes())?;
                return Ok(Exit::Yes);
            }
            reporter.data(names.iter().map(|name| format!("{name}\n")).collect::<String>().as_bytes())?;
        }
    }
    Ok(Exit::Yes)
}

/// Source of a password.
enum Source<'a> {
    File(&'a Path),
    Terminal,
}

/// Returns the password, or the signal that arrived instead.
fn password_for(
    name: &str,
    source: Option<Source<'_>>,
    is_quiet: bool,
) -> Result<Result<Secret, Signal>, CommandError> {
    match source {
        Some(Source::File(file)) if file.as_os_str() != "-" => {
            if !is_quiet && let Some(warning) = permissions::warning(file) {
                report::log(&warning);
            }
            return password::read_file(file).map(Ok);
        }
        Some(Source::Terminal) => {}
        _ if resolve::is_input_terminal() => {}
        _ => return password::read_input().map(Ok),
    }
    let password = match password::ask_here(format!("Password for {}: ", escape(name.as_bytes())))? {
        Ok(password) => password,
        Err(signal) => return Ok(Err(signal)),
    };
    Ok(match password::ask_here("Repeat the password: ".to_owned())? {
        Ok(again) if again != password => {
            return Err(CommandError::usage("the passwords differ; nothing was changed"));
        }
        other => other,
    })
}

impl From<IdentityError> for CommandError {
    fn from(error: IdentityError) -> Self {
        let message = error.to_string();
        match error {
            IdentityError::Io { path, cause, .. } if cause.kind() == std::io::ErrorKind::AlreadyExists => {
                let hint = format!("remove {}, if no other process changes the users", path.display());
                Self::new(Kind::File, message).hint(hint)
            }
            IdentityError::Io { .. } => Self::new(Kind::File, message),
            IdentityError::Name(_) => Self::usage(message),
            IdentityError::Invalid { .. } => Self::new(Kind::Configuration, message),
        }
    }
}
