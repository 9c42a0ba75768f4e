//! `help`: of a verb, or on a topic that belongs to none.

use std::fmt::Write;

use clap::{Args, CommandFactory};

use super::args::Cli;
use super::exit::TABLE;
use super::settle::{FENCING_TOKEN, FENCING_TOKEN_FILE};
use crate::commands::CommandError;

/// Show help for a verb or a topic
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A verb, or environment, exit-codes, formats
    #[arg(value_name = "VERB|TOPIC")]
    names: Vec<String>,
}

/// The help that is asked for; with colour where `color` says so.
///
/// # Errors
/// There is no such verb or topic.
pub fn text(args: &HelpArgs, color: bool) -> Result<String, CommandError> {
    if let Some(text) = topic(&args.names) {
        return Ok(text);
    }
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in &args.names {
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            CommandError::usage(format!("no such verb or topic: {name}"))
                .hint("mqkv help")
                .hint("mqkv help environment|exit-codes|formats")
        })?;
    }
    let help = command.render_long_help();
    Ok(if color { help.ansi().to_string() } else { help.to_string() })
}

fn topic(names: &[String]) -> Option<String> {
    let [name] = names else {
        return None;
    };
    match name.as_str() {
        "environment" => Some(environment()),
        "exit-codes" => Some(exit_codes()),
        "formats" => Some(formats()),
        _ => None,
    }
}

fn exit_codes() -> String {
    let mut out = String::from("Exit codes, the same for every verb and every output format:\n\n");
    for (exit, meaning) in TABLE {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {:>3}  {meaning}", exit.code());
    }
    out
}

fn formats() -> String {
    "\
Data goes to standard output, words to standard error.

  auto    text on a terminal; in a pipe the bare value of get, columns of watch, lines of ping, raw and
          decode, and nothing of set, del and vdel: their exit code says it all
  text    for people: control bytes, and bytes that are not UTF-8, are shown as \\xNN
  raw     the exact bytes, no line feed
  hex     hexadecimal digits and a line feed
  base64  base64 and a line feed
  json    one object; `del` with several keys: one object a key and line
  jsonl   the same, always one object a line

raw, hex and base64 are about values and, with the verb raw, payloads; other records stay lines, and with the verb
watch go to standard error.

JSON records have v (the schema, 1) and op (the verb); those of watch have event (current, set, delete, gap,
resync) and seq in place of op, and lost, skipped and command-ended are on standard error. A value comes with its encoding, utf-8 or base64;
a key with key_encoding only if that is base64. With -j an error is one object on standard error:

  {\"v\":1,\"error\":{\"kind\":\"timeout\",\"code\":124,\"message\":\"...\",\"outcome\":\"unknown\",\"retryable\":true}}

code is the exit code. outcome is there for writes: unchanged or unknown. retryable: the same command may
succeed later. hints and causes are there if there are any.
"
    .to_owned()
}

fn environment() -> String {
    format!(
        "\
Environment variables that are read:

  NO_COLOR                 not empty: no colour
  TERM                     dumb: no colour
  HOSTNAME, COMPUTERNAME   part of the default client id
  {FENCING_TOKEN_FILE}  --fence-env: a file with a fencing token
  {FENCING_TOKEN}       --fence-env: a fencing token, where no file is named
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> Result<String, CommandError> {
        let names = names.iter().map(ToString::to_string).collect();
        text(&HelpArgs { names }, false)
    }

    #[test]
    fn every_verb_and_topic_has_help() {
        assert!(shown(&[]).unwrap().contains("--embedded"));
        assert!(shown(&["get"]).unwrap().contains("mqkv get"));
        assert!(shown(&["rm"]).unwrap().contains("Remove keys"));
        assert!(shown(&["decode", "frame"]).unwrap().contains("--hex"));
        assert!(shown(&["exit-codes"]).unwrap().contains("  124  no answer"));
        assert!(shown(&["formats"]).is_ok() && shown(&["environment"]).is_ok());
        assert!(shown(&["nonsense"]).is_err());
    }
}
