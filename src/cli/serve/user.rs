//! `serve user`: manages the file of `--users`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::report::{self, Reporter, takes_warnings};
use crate::cli::{file_permissions, password};
use crate::commands::output::Hint;
use crate::commands::process::signal::exit_of;
use crate::commands::process::stdin;
use crate::commands::{CommandError, Exit, Kind};
use crate::net::Secret;
use crate::platform::Signal;
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, negative, notice};
use crate::server::{IdentityError, UsersFile};

const EXAMPLES: &str = "\
Examples:
  mqkv serve user add users ann          asks for the password, twice
  mqkv serve user add users ann < FILE   reads the first line
  mqkv serve user add users ann --password-file FILE
  mqkv serve user passwd users ann
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
    /// Add a user
    ///
    /// The password is the first line of --password-file. Without that option it is asked for on the terminal; if standard
    /// input is not a terminal, it is the first line of standard input. A new file is readable by its owner only; an existing one
    /// keeps its owner, group and permissions.
    Add(AddArgs),
    /// Change the password of a user
    ///
    /// The password is read as by `add`.
    Passwd(PasswordArgs),
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
    password: PasswordArgs,
    /// Change the password if the user exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct PasswordArgs {
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

/// The result of a verb that changes the file.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "user")]
struct UserRecord {
    user: String,
    change: UserChange,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum UserChange {
    Added,
    /// Has another password now.
    Changed,
    Removed,
    /// `add` would have replaced a user.
    #[serde(rename = "unchanged")]
    Exists,
    /// There is no such user.
    #[serde(rename = "unchanged")]
    NotFound,
}

/// The names of the users, in the order of the file.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "user")]
struct UserList {
    users: Vec<String>,
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be read or written or is invalid, or there is no password.
pub fn run(
    ServeAction::User(UserArgs { action }): &ServeAction,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let (user, change) = match action {
        UserAction::Add(AddArgs { password, force }) => match set(password, true, *force, reporter)? {
            Ok(change) => (&password.user.name, change),
            Err(signal) => return Ok(exit_of(signal)),
        },
        UserAction::Passwd(password) => match set(password, false, true, reporter)? {
            Ok(change) => (&password.user.name, change),
            Err(signal) => return Ok(exit_of(signal)),
        },
        UserAction::Rm(UserName { file, name }) => {
            let was_there = UsersFile::new(file).remove(name)?;
            (name, if was_there { UserChange::Removed } else { UserChange::NotFound })
        }
        UserAction::Ls { file } => {
            reporter.put(&UserList { users: UsersFile::new(file).names()? })?;
            return Ok(Exit::Yes);
        }
    };
    let (exit, hint) = match change {
        UserChange::Exists => (Exit::No, Some("mqkv serve user passwd FILE NAME changes the password")),
        UserChange::NotFound => (Exit::No, None),
        UserChange::Added | UserChange::Changed | UserChange::Removed => (Exit::Yes, None),
    };
    reporter.put(&UserRecord { user: user.clone(), change })?;
    if let Some(hint) = hint {
        reporter.put(&Hint(hint.to_owned()))?;
    }
    Ok(exit)
}

/// Adds a user or changes its password, or returns the signal that arrived instead of the password.
fn set(
    PasswordArgs { user: UserName { file, name }, password_file, ask_password }: &PasswordArgs,
    may_add: bool,
    may_change: bool,
    reporter: &Reporter,
) -> Result<Result<UserChange, Signal>, CommandError> {
    let users = UsersFile::new(file);
    // Before a password is typed in vain. The file can change until it is known, so this is not the only check.
    match users.contains(name)? {
        true if !may_change => return Ok(Ok(UserChange::Exists)),
        false if !may_add => return Ok(Ok(UserChange::NotFound)),
        _ => {}
    }
    let source = match password_file {
        Some(file) => Some(Source::File(file)),
        None => ask_password.then_some(Source::Terminal),
    };
    let password = match password_for(name, source, takes_warnings(&reporter.style()))? {
        Ok(password) => password,
        Err(signal) => return Ok(Err(signal)),
    };
    Ok(Ok(if may_add && users.add(name, &password)? {
        UserChange::Added
    } else if may_change && users.set_password(name, &password)? {
        UserChange::Changed
    } else if may_add {
        UserChange::Exists
    } else {
        UserChange::NotFound
    }))
}

impl Record for UserRecord {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let user = escape(self.user.as_bytes());
        match self.change {
            UserChange::Added => notice(&format!("added {user}"), style),
            UserChange::Changed => notice(&format!("changed the password of {user}"), style),
            UserChange::Removed => notice(&format!("removed {user}"), style),
            UserChange::Exists => negative(&format!("user exists: {user}"), style),
            UserChange::NotFound => negative(&format!("user not found: {user}"), style),
        }
    }
}

impl Record for UserList {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(self.users.iter().map(|name| format!("{name}\n")).collect::<String>())
    }
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
    takes_warnings: bool,
) -> Result<Result<Secret, Signal>, CommandError> {
    match source {
        Some(Source::File(file)) if file.as_os_str() != "-" => {
            if takes_warnings && let Some(warning) = file_permissions::warning(file) {
                report::log(&warning);
            }
            return password::read_file(file).map(Ok);
        }
        Some(Source::Terminal) => {}
        _ if stdin::is_terminal() => {}
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
            IdentityError::Io { .. } => Self::new(Kind::File, message),
            IdentityError::Name(_) => Self::usage(message),
            IdentityError::Invalid { .. } => Self::new(Kind::Configuration, message),
        }
    }
}
