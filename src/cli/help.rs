//! `help`: help of a verb, or a topic that belongs to no verb.

use std::fmt::Write;

use clap::Command as Definition;

use super::config::setting::Setting;
use super::config::variables::{COMPLETE_KEYS, CONFIG as CONFIG_VARIABLE, CONTEXT};
use super::exit::TABLE;
use super::options::{self, Options};
use crate::commands::{CommandError, FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY};

/// The topics beside the verbs.
pub const TOPICS: &[&str] = &["config", "environment", "exit-codes", "formats", "locks", "options"];

/// Returns the help of a topic, or of the verb with these names in the definition.
///
/// # Errors
/// There is no such verb or topic.
pub fn text(names: &[String], mut definition: Definition, color: bool) -> Result<String, CommandError> {
    if let Some(text) = topic(names) {
        return Ok(text);
    }
    if let [name] = names
        && name == "options"
    {
        return Ok(render(&mut options(), color));
    }
    definition.build();
    let mut command = &mut definition;
    for name in names {
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            CommandError::usage(format!("unknown verb or topic: {name}"))
                .hint("mqkv help")
                .hint("mqkv help config|environment|exit-codes|formats|locks|options")
        })?;
    }
    Ok(render(command, color))
}

fn render(command: &mut Definition, color: bool) -> String {
    let help = command.render_long_help();
    if color { help.ansi().to_string() } else { help.to_string() }
}

/// Returns a definition whose help lists the options that the verbs share.
fn options() -> Definition {
    let definition = Definition::new("options").disable_help_flag(true).help_template(
        "Options of every verb that connects to a broker, before or after the verb. The output options belong to every \
         verb.\n\n{options}",
    );
    options::add_to::<Options>(definition)
}

fn topic(names: &[String]) -> Option<String> {
    let [name] = names else {
        return None;
    };
    match name.as_str() {
        "config" => Some(CONFIG.to_owned()),
        "environment" => Some(environment()),
        "exit-codes" => Some(exit_codes()),
        "formats" => Some(formats()),
        "locks" => Some(LOCKS.to_owned()),
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

  auto    text on a terminal; in a pipe the bare value of get, columns of watch and doctor, lines of ping,
          raw and decode, and nothing of set, del, vdel and context add|use|rm|edit: their exit code says it all
  text    for people: control bytes, and bytes that are not UTF-8, are shown as \\xNN
  raw     the exact bytes, no line feed
  hex     hexadecimal digits and a line feed
  base64  base64 and a line feed
  json    one object; `del`, `keys`, `batch`, `context ls`: one object a record and line; `batch` adds line and id;
          `doctor`: one array at the end
  jsonl   the same, always one object a line

Many records: `keys` prints one a line, control bytes as \\xNN and a backslash as \\\\, so that they can be read
back; `batch` prints one line for each get, alike, an empty one where there is no such key; `export` is JSON lines
in every format.

raw, hex and base64 are about values and, with the verb raw, payloads; other records stay lines, and with the verb
watch go to standard error. Those of monitor stay columns with tabs between.

JSON records have v (the schema, 1) and op (the verb); those of watch have event (current, set, delete, gap,
resync) and seq in place of op, and lost, skipped and command-ended are on standard error. Those of monitor have
event (listening, request, reply, no-reply, notification, gap) alike. Those of --trace have trace (sent, received,
connecting, connected, lost, new-token, token-unanswered, not-sent); the words of a request or a reply are escaped as
in text, with backslashes doubled. Those of `serve --log json` have event (ready, connected, disconnected, refused,
denied, dropped, unanswerable, left-out, warning, stopping and others), time, and message, which is the line of text.
Where `serve` does not serve, op is verify, salvage, clear-fence or user. The condition of a file is whole, late (what
was written last cannot be read), gap (some keys lost, those found there doubtful) or loose (no order left), with its
damage; the code is that of the text.
A value comes with its encoding, utf-8 or base64; a key with key_encoding only if that is base64. With -j an error is
one object on standard error:

  {\"v\":1,\"error\":{\"kind\":\"timeout\",\"code\":124,\"message\":\"...\",\"outcome\":\"unknown\",\"retryable\":true}}

code is the exit code. outcome is there for writes: unchanged or unknown. retryable: the same command may
succeed later. hints and causes are there if there are any.
"
    .to_owned()
}

fn environment() -> String {
    let names: Vec<String> =
        Setting::all().filter(|setting| setting.has_flag()).map(Setting::variable).collect();
    let row = |row: &[String]| {
        let row: String = row.iter().map(|name| format!("  {name:<22}")).collect();
        format!("{}\n", row.trim_end())
    };
    let settings: String = names.chunks(4).map(row).collect();
    format!(
        "\
Every setting of the connection and of the output has a variable, named after its long flag. Switches take 1, true,
yes, 0, false or no; an empty variable is as good as none. No variable holds a password: files do.

{settings}
  {CONTEXT}             the context to use, as -x
  {CONFIG_VARIABLE}              the configuration file, as --config

What flags, contexts and variables come to is said by `mqkv help config` and `mqkv config show --origin`.

Inside a pod the variables of the official SDKs are enough, from AIO_BROKER_HOSTNAME on:

  AIO_BROKER_HOSTNAME  AIO_BROKER_TCP_PORT (8883)  AIO_MQTT_USE_TLS (true)  AIO_TLS_CA_FILE  AIO_TLS_CERT_FILE
  AIO_TLS_KEY_FILE  AIO_TLS_KEY_PASSWORD_FILE  AIO_MQTT_USERNAME  AIO_MQTT_PASSWORD_FILE  AIO_SAT_FILE
  AIO_MQTT_KEEP_ALIVE

AIO_MQTT_CLIENT_ID is not among them: it would take over the application's session.

Other variables that are read:

  NO_COLOR                 not empty: no colour
  TERM                     dumb: no colour
  XDG_CONFIG_HOME, HOME    where the configuration file is
  XDG_STATE_HOME, HOME     where the history of the shell is kept
  VISUAL, EDITOR           what `context edit` opens the file with
  {COMPLETE_KEYS}       1: a Tab in the system's shell lists keys, which takes a connection
  SHELL                    what a lone \\! of the shell starts
  HOSTNAME, COMPUTERNAME   part of the default client id
  SSL_CERT_FILE, SSL_CERT_DIR  TLS without -T: the CAs to trust, instead of this machine's
  {FENCING_TOKEN_FILE}  --fence-env: a file with a fencing token
  {FENCING_TOKEN}       --fence-env: a fencing token, where no file is named
  {LOCK_HOLDER}         unlock: in whose name the lock is held
  NOTIFY_SOCKET            serve: the service manager that hears when it serves, reads again and stops
  XDG_RUNTIME_DIR, TMPDIR  lock: where the file with the fencing token is

Environment variables that `mqkv lock` gives to its command:

  {LOCK_KEY}, {LOCK_HOLDER}, {FENCING_TOKEN}, {FENCING_TOKEN_FILE}

Those that `mqkv serve --exec` gives to its command, all leading to its store:

  MQKV_BROKER, AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT, AIO_MQTT_USE_TLS; MQKV_CONTEXT is emptied, and what leads
  elsewhere, or says who one is there, is taken out, but for the application's AIO_MQTT_CLIENT_ID
"
    )
}

const CONFIG: &str = "\
Where settings come from, the highest first:

  1  flags
  2  the context named by -x NAME
  3  MQKV_* variables
  4  the context named by MQKV_CONTEXT
  5  AIO_* variables, if AIO_BROKER_HOSTNAME is among them
  6  the default context
  7  what is built in: mqtt://localhost:1883

A higher one always wins. `mqkv config show --origin` says what is in force, and why. Some things go together:

- Where the broker is comes from one place: with -n HOST the port and TLS of a context do not count. -p and --notls
  alone change the broker that something lower names.
- If -b, -n, -p or --embedded is typed, the default context counts for nothing.
- Credentials, certificates and CAs go to the broker that stands beside them and to no other; only -x gives those of a
  context to a broker that is typed, for example the near end of a tunnel.
- A token (sat_file) displaces user and password, and the other way round. A password goes with its user, a key with
  its certificate.

The file is TOML, in $MQKV_CONFIG, else $XDG_CONFIG_HOME/mqkv/config.toml, else ~/.config/mqkv/config.toml:

  default_context = \"lab\"

  [context.lab]
  broker = \"mqtt://localhost:1883\"

  [context.prod]
  broker = \"mqtts://aio-broker:18883\"
  cafile = \"ca.crt\"                      # in the folder of this file; ~/ is the home
  sat_file = \"/var/run/secrets/tokens/broker-sat\"
  timeout = \"3s\"
  prompt_color = \"red\"                   # of its name at the prompt
  read_only = true                       # what writes is refused, unless --force-write

A context takes all settings of connection and output, named as the long flags with _ for -, and the last two of the
example. Passwords and tokens are in files of their own: password_file, sat_file, keypasswordfile. What the file says
and mqkv does not understand is an error with its line, exit code 78: it may be a mistyped read_only.

`mqkv context add|use|rm` change the file and keep its remarks; `mqkv context edit` opens it and checks it afterwards.
At the prompt, \\c NAME changes to another context. `mqkv config --help` is about the verb.
";

const LOCKS: &str = "\
Locks, and why a lock is not enough

A lock is a key of the store that somebody has set with an end: a lease. While it is there nobody else can set it.

  mqkv lock line1 -- ./change-recipe.sh     waits for the lock, runs the script, releases
  mqkv holder line1                         who holds it

The lease is renewed while the script runs. If the machine dies, nobody renews it, it ends, and the next one gets the
lock. That is the point of the lease, and it is also its weakness: the lease ends whether or not its holder knows.

What can go wrong

Two writers change the recipe of line 1, each under the lock. The first is stopped at the wrong moment: the machine
swaps, its lid is closed, a virtual machine is moved to another host, somebody presses Ctrl-Z (SIGSTOP does the same):

  time   writer A                         writer B                         line1/recipe
  0 s    takes the lock for 30 s          waits for the lock                       6
  5 s    computes the new recipe: 7                                                6
  6 s    is stopped                                                                6
  30 s   (stopped; the lease ends)        gets the lock                            6
  31 s   (stopped)                        writes 8, tells the operator             8
  50 s   goes on, and writes 7                                                     7  wrong

A has held the lock when it looked, and has no way to know that half a minute has passed between that look and its
write. No program can: it can be stopped between any two of its instructions. mqkv stops a command whose lease cannot
be renewed, and stops it at once when it finds that it was stopped itself; but the write may be faster.

The fencing token

Each lock comes with a number, its fencing token. It grows from holder to holder, and with each renewal. A write may
carry it, and the store remembers for each key the greatest token that it has seen there. A write with a smaller one
comes from somebody who held the lock before, and is refused:

  0 s    takes the lock, token 100
  30 s                                    gets the lock, token 130
  31 s                                    writes 8 with token 130: done            8
  50 s   writes 7 with token 100: refused, exit code 76                            8  right

So the store is the judge, not the clock of a writer. In the script that is one option more:

  #!/bin/sh
  # change-recipe.sh, run as: mqkv lock line1 -- ./change-recipe.sh
  recipe=$(mqkv get line1/recipe) &&
  mqkv set line1/recipe $((recipe + 1)) --fence-env

--fence-env takes the token from MQKV_FENCING_TOKEN_FILE, which `mqkv lock` keeps up to date, or, where that is not
set, from MQKV_FENCING_TOKEN. `--fence TOKEN` names it. Both work for set, del and vdel.

See it happen, with `mqkv serve` running. In one terminal:

  $ mqkv lock line1 --ttl 12s -- sh -c 'sleep 20; mqkv set line1/recipe 7 --fence-env; sleep 60'

and in another, at once; the first line stops the keeper of the lock, but not its command, which goes on believing:

  $ kill -STOP $(pgrep -f '^mqkv lock line1')
  $ mqkv lock line1 --ttl 12s -- mqkv set line1/recipe 8 --fence-env    # gets the lock when the lease has ended

After 20 seconds the command in the first terminal writes, with exit code 76:

  error: the store refused the request: the request fencing token is a lower version than the fencing token protecting the resource
    nothing was changed
    hint: take the lock again: somebody else has had it since this token was given out

Now let the keeper go on. It finds the loss at once, stops the command, and ends with exit code 125:

  $ kill -CONT $(pgrep -f '^mqkv lock line1')
  error: the lock line1 was lost: its lease could not be renewed in time
    the command was told to stop; its code is 143

  $ mqkv get line1/recipe
  8

Rules

- Read, change, write: under a lock, and the write with --fence-env. There is no compare-and-set in this store;
  `set --nx`, `set --nex` and `vdel` look at one value and are done.
- The token belongs on what the lock protects, not on the lock's own key: a key that was written with a token once
  refuses every write without one, and a lock is taken without.
- Everybody who writes such a key must use a token. Until the key is deleted or expires, the store sees to that.
- What cannot carry a token (a machine, a mail, another database) is protected by the lease alone: choose a --ttl much
  longer than the work, and a --kill-after that lets it stop cleanly.
- --holder must be unique. Two holders of one name are one to the store: both hold the lock.
- A command that leaves its process group (a daemon, setsid, an interactive shell's jobs) is not stopped with it.
- The lease is measured with a clock that goes on while the machine sleeps (on Linux). Nobody stops anything meanwhile:
  a lease that has ended by then is noticed within a second of waking.

Exit codes: 1 held by somebody else (-E sets another), 125 lost, 126 and 127 the command cannot be run, else the
command's own; 128 and the signal's number if a signal ended it.
";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    fn shown(names: &[&str]) -> Result<String, CommandError> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        text(&names, Cli::command(), false)
    }

    #[test]
    fn every_verb_and_topic_has_help() {
        assert!(shown(&[]).unwrap().contains("--embedded"));
        assert!(shown(&["get"]).unwrap().contains("mqkv get"));
        assert!(shown(&["rm"]).unwrap().contains("Remove keys"));
        assert!(shown(&["decode", "frame"]).unwrap().contains("--hex"));
        assert!(shown(&["exit-codes"]).unwrap().contains("  124  no answer"));
        assert!(shown(&["config"]).unwrap().contains("read_only = true"));
        assert!(shown(&["environment"]).unwrap().contains("MQKV_CONNECT_TIMEOUT"));
        assert!(shown(&["locks"]).unwrap().contains("--fence-env"));
        assert!(shown(&["environment"]).unwrap().contains("MQKV_LOCK_HOLDER"));
        assert!(shown(&["formats"]).is_ok() && shown(&["environment"]).is_ok());
        let options = shown(&["options"]).unwrap();
        assert!(options.contains("Connection options:") && options.contains("--keep-alive <DURATION>"));
        assert!(options.contains("Output options:") && !options.contains("Usage:"));
        assert!(shown(&["unknown"]).is_err());
    }
}
