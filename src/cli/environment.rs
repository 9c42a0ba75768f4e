//! Environment of the process: variables and terminals. The only file that reads the variables.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the environment")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use super::config::setting::{Settings, is_on, value};
use super::config::variables::{KUBECTL, PAGER, Variables};
use super::connection::Process;
use super::help::terminal::Screen;
use super::options::{ColorWhen, OutputFormat};
use crate::clock;
use crate::commands::process::{stdin, stdout};
use crate::commands::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, ProcessContext};
use crate::platform::{self, HOME, STATE};
use crate::random;
use crate::render::{Format, Style, Zone};

#[must_use]
pub fn variables() -> Variables {
    Variables::of(env::vars_os())
}

/// Returns what a connection depends on in this process.
#[must_use]
pub fn process() -> Process {
    Process { client_id: default_client_id, input_is_terminal: stdin::is_terminal }
}

/// Returns the user's editor.
#[must_use]
pub fn editor() -> OsString {
    let named = |name| env::var_os(name).filter(|editor| !editor.is_empty());
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| platform::EDITOR.into())
}

/// Returns the program that leads to brokers in a cluster.
#[must_use]
pub fn kubectl() -> OsString {
    env::var_os(KUBECTL).filter(|program| !program.is_empty()).unwrap_or_else(|| "kubectl".into())
}

/// Returns the shell command of the pager: `MQKV_PAGER`, `PAGER`, or less; None if the terminal is a dumb one, or if a variable
/// is empty or `cat`. Without LESS, less shows color, ends if the text fits on the screen, and leaves it there.
#[must_use]
pub fn pager() -> Option<OsString> {
    let is_dumb = env::var_os("TERM").is_none_or(|value| value == "dumb");
    let has_less = || {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join("less").is_file())
    };
    let named = env::var_os(PAGER).or_else(|| env::var_os("PAGER"));
    let pager = named.or_else(|| has_less().then(|| "less -FRX".into()))?;
    if is_dumb || pager.is_empty() || pager == "cat" {
        return None;
    }
    let mut command = OsString::from("export LESS=\"${LESS-FRX}\"; ");
    command.push(pager);
    Some(command)
}

/// Returns a client id that is unique to this run: two runs with the same id would take over each other's session.
#[must_use]
pub fn default_client_id() -> String {
    let random = random::u64() & 0xFFFF_FFFF;
    format!("mqkv-{}-{random:08x}", host_name())
}

pub fn host_name() -> String {
    /// Maximum length of a label of a host name.
    const LEN_MAX: usize = 63;
    let named = |name| env::var(name).ok();
    let name = named("HOSTNAME")
        .or_else(|| named("COMPUTERNAME"))
        .or_else(|| fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .or_else(|| fs::read_to_string("/etc/hostname").ok())
        .unwrap_or_default();
    let label = name.trim().split('.').next().unwrap_or_default();
    let plain: String =
        label.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(LEN_MAX).collect();
    if plain.is_empty() { "host".to_owned() } else { plain }
}

/// Returns whether a progress bar can be shown.
#[must_use]
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|value| value != "dumb")
}

/// Returns whether no output format is set.
#[must_use]
pub fn is_auto(settings: &Settings) -> bool {
    !is_on(&settings.json) && value(&settings.output).is_none_or(|format| *format == OutputFormat::Auto)
}

/// Returns the style of the output; `json` is whether the verb prints JSON by default.
#[must_use]
pub fn style(settings: &Settings, json: bool) -> Style {
    let wanted = value(&settings.output).copied().unwrap_or(OutputFormat::Auto);
    let color = value(&settings.color).copied().unwrap_or(ColorWhen::Auto);
    let format = match wanted {
        _ if is_on(&settings.json) => Format::Json,
        OutputFormat::Json | OutputFormat::Jsonl => Format::Json,
        OutputFormat::Text => Format::Text,
        OutputFormat::Raw => Format::Raw,
        OutputFormat::Hex => Format::Hex,
        OutputFormat::Base64 => Format::Base64,
        OutputFormat::Auto if json => Format::Json,
        OutputFormat::Auto if io::stdout().is_terminal() => Format::Text,
        OutputFormat::Auto => Format::Lines,
    };
    Style {
        format,
        color_stdout: has_color(color, io::stdout().is_terminal()),
        color_stderr: has_color(color, io::stderr().is_terminal()),
        stdout_is_terminal: io::stdout().is_terminal(),
        stderr_is_terminal: io::stderr().is_terminal(),
        columns: stdout::columns().or_else(stdout::stderr_columns),
        zone: if is_on(&settings.utc) { Zone::Utc } else { Zone::Local(clock::utc_offset_s) },
        verbose: is_on(&settings.verbose),
        quiet: is_on(&settings.quiet),
    }
}

fn has_color(when: ColorWhen, terminal: bool) -> bool {
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
                || env::var_os("TERM").is_some_and(|value| value == "dumb");
            terminal && !refused
        }
    }
}

/// Returns the screen that help is written for, with or without color.
#[must_use]
pub fn screen(has_color: bool) -> Screen {
    /// Longer lines are hard to read.
    const WIDTH_MAX: usize = 100;
    let named = || env::var("COLUMNS").ok()?.parse().ok();
    let width = stdout::columns().or_else(named).unwrap_or(WIDTH_MAX);
    Screen { width: width.min(WIDTH_MAX), has_color, is_prompt: false }
}

#[must_use]
pub fn prompt_screen() -> Screen {
    Screen { is_prompt: true, ..screen(false) }
}

/// Returns whether standard input and standard output are terminals.
#[must_use]
pub fn is_at_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns the path of the prompt's history.
#[must_use]
pub fn history_path() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder(STATE.variable).or_else(|| folder(HOME).map(|home| home.join(STATE.below_home)));
    state.map(|state| state.join("mqkv").join("history"))
}

/// Returns the user's login shell.
#[must_use]
pub fn login_shell() -> OsString {
    env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| platform::SHELL.into())
}

/// Returns what the verbs use of the environment.
#[must_use]
pub fn process_context() -> ProcessContext {
    ProcessContext {
        fencing_token: env::var(FENCING_TOKEN).ok(),
        fencing_token_file: env::var_os(FENCING_TOKEN_FILE).map(PathBuf::from),
        lock_holder: env::var_os(LOCK_HOLDER),
        editor: editor(),
        private_folder: private_folder(),
    }
}

/// Returns a directory of this user, in memory if the system has one.
fn private_folder() -> PathBuf {
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    folder.filter(|folder| folder.is_absolute() && folder.is_dir()).unwrap_or_else(env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_own_client_id() {
        let (one, other) = (default_client_id(), default_client_id());
        assert_ne!(one, other);
        assert!(one.starts_with("mqkv-") && !one.contains([':', '/', '+', '#', ' ']), "{one}");
    }
}
