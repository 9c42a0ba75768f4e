//! Help and greeting of the prompt (pure).

use clap::Command;

use super::backslash;
use super::definition;
use crate::commands::CommandError;

/// The state of a prompt for which no broker has answered yet.
pub const NOT_CONNECTED: &str = "not connected";

/// Returns the help that `\?` and `help` print.
#[must_use]
pub fn help(definition: &Command) -> String {
    let mut out = String::from("Verbs, in any case; `help VERB` describes one:\n");
    for verb in definition::verbs(definition) {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        out.push_str(&format!("  {:<12} {about}\n", verb.get_name()));
    }
    out.push_str("\nCommands of the prompt:\n");
    for (name, argument, about) in backslash::NAMES {
        out.push_str(&format!("  {:<22} {about}\n", format!("{name} {argument}")));
    }
    out.push_str(
        "
Lines:
  get k | jq .           pipe the output to a command, run by /bin/sh
  get k > file           write the output to a file
  watch k                run in the background; events appear above the line
  lock k                 hold the lock in the background until `unlock k`;
                         --fence-env attaches its fencing token to a write
  # ...                  comment

Quotes:
  'a b'                  every character is literal
  \"a\\tb\\xFF\"             interprets \\n \\r \\t \\0 \\e \\\\ \\\" \\xNN
  {\"a\":1}                a quote within a word is literal, and so is the rest
  a\\ b  C:\\temp          \\ escapes a blank, a quote and \\ # | >; before other
                         characters it is literal, also in double quotes

Ctrl-C clears the line or cancels the running command. Ctrl-D exits and
releases locks. Ctrl-R searches the history, Tab completes, Right accepts the
gray hint. The history omits the values of set and vdel, and lines that are
invalid, begin with a blank or contain a password.
",
    );
    out
}

/// Returns the state of a prompt without a connection, and what leads to one; `broker` is the one that has not answered.
#[must_use]
pub fn first_steps(broker: &str) -> String {
    format!(
        "{NOT_CONNECTED}; one of these connects:
  \\c kube:      the broker of Azure IoT Operations, by kubectl
  \\c HOST:1883  another broker; mqtts://HOST:8883 with TLS
  mqkv serve    in another terminal: a broker of your own; then \\c
Each command and \\c try {broker} again"
    )
}

/// Returns an error without the hints that [`first_steps`] repeats.
#[must_use]
pub fn without_serve(error: &CommandError) -> CommandError {
    let hints = error.hints.iter().filter(|hint| !hint.contains("mqkv serve")).cloned().collect();
    CommandError { hints, ..error.clone() }
}

/// Returns the text of the first screen: the connection, then how to get help and how to exit.
#[must_use]
pub fn greeting(connection: &str) -> String {
    format!(
        "{connection}\n\\? lists the commands, `help VERB` describes one, Tab completes\nCtrl-D or \\q exits, Ctrl-C clears the line\n"
    )
}
