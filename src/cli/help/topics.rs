//! The topics of `help` that belong to no verb.

use clap::Command;

use super::page::{Page, Row, Table};
use crate::cli::config::setting::Setting;
use crate::cli::config::variables::{COMPLETE_KEYS, CONFIG as CONFIG_VARIABLE, CONTEXT, KUBECTL, PAGER};
use crate::cli::exit_codes::TABLE;
use crate::cli::options::{self, Options};
use crate::client::Error;
use crate::client::lock::LossReason;
use crate::commands::{
    CommandError, Exit, FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY, loss_message,
};
use crate::protocol::ErrorReply;

#[derive(Debug)]
pub struct Topic {
    pub name: &'static str,
    pub about: &'static str,
    /// Returns the text, in the form of [`sections`](super::text::sections).
    pub text: fn() -> String,
    /// Returns the tables below the text.
    pub tables: fn() -> Vec<Table>,
}

/// The topics beside the verbs.
pub const TOPICS: &[Topic] = &[
    Topic::of("config", "Options, contexts, variables, and the configuration file", || CONFIG.to_owned()),
    Topic::of("environment", "Variables that mqkv reads and sets", environment),
    Topic {
        tables: || vec![exit_codes()],
        ..Topic::of("exit-codes", "Meaning of the exit codes", || EXIT_CODES.to_owned())
    },
    Topic::of("formats", "Output formats, JSON records, messages", || FORMATS.to_owned()),
    Topic::of("locks", "Leases and fencing tokens", locks),
    Topic {
        tables: shared_options,
        ..Topic::of("options", "Connection and output options of the verbs", || OPTIONS.to_owned())
    },
    Topic::of("ttl", "Time to live of keys", || TTL.to_owned()),
];

/// Returns the names of the topics, each with its description.
pub fn names() -> Vec<(&'static str, &'static str)> {
    TOPICS.iter().map(|topic| (topic.name, topic.about)).collect()
}

impl Topic {
    const fn of(name: &'static str, about: &'static str, text: fn() -> String) -> Self {
        Self { name, about, text, tables: Vec::new }
    }
}

/// Returns the exit codes with their meaning.
pub fn exit_codes() -> Table {
    let row = |(exit, about): &(Exit, &str)| Row {
        names: vec![exit.code().to_string()],
        about: (*about).to_owned(),
        ..Row::default()
    };
    Table { heading: "Exit codes".to_owned(), rows: TABLE.iter().map(row).collect() }
}

/// Returns the options that verbs share.
pub fn shared_options() -> Vec<Table> {
    let mut definition = options::add_to::<Options>(Command::new("mqkv"));
    definition.build();
    Page::of(&definition).shared
}

const EXIT_CODES: &str = "The exit codes are the same for every verb and every output format.";

const OPTIONS: &str = "\
The connection options belong to every verb that connects to a broker, the output options to every verb. They stand \
before or after the verb. Each has a variable (mqkv help environment), and a context can contain it (mqkv help config).";

const FORMATS: &str = r#"Data goes to standard output, messages and errors to standard error. -o FORMAT selects the
form of the data:

  auto    text on a terminal; in a pipe the bare value of get, columns of
          watch and doctor, lines of ping, raw and decode, and no output of
          set, del, vdel and context add|set|use|rename|rm|edit: the exit
          code is the answer
  text    for people: control and invisible characters, and bytes that are
          not UTF-8, are printed as \xNN
  raw     the exact bytes, no line feed
  hex     hexadecimal digits and a line feed
  base64  base64 and a line feed
  json    one object; of del, keys, batch and context ls one per line; batch
          adds line and id; of doctor one array at the end
  jsonl   the same, always one object per line

Several records: `keys` prints one per line, control bytes as \xNN and a backslash as \\, so that the keys can be read
back. `batch` prints one line for each get in the same form, an empty line for a key that does not exist. `export` prints
JSON lines in every format.

raw, hex and base64 apply to values and, with the verb raw, to payloads. Other records stay lines; with the verb watch
they go to standard error. The records of monitor stay columns separated by tabs.

JSON:
Records have v (the schema, 1) and op (the verb).

- watch: event (current, set, delete, gap, resync) and seq instead of op; lost, skipped and command-ended are on
  standard error
- bench: one object at the end. latency has an object for each measured latency, the first of them for whole operations;
  its bands are the numbers of latencies up to to_ms. end is done, interrupted, unanswered or failed. inflight_met is false if
  inflight is above receive_max, the broker's Receive Maximum
- monitor: event (listening, request, reply, no-reply, notification, gap)
- --trace: trace (sent, received, connecting, connected, lost, new-token, token-unanswered, not-sent); the words of a
  request or reply are escaped as in text, with doubled backslashes
- `serve --log json`: event (ready, connected, disconnected, refused, denied, dropped, unanswerable, left-out, warning,
  stopping and others), time, and message, which is the line of text
- `exchange`: op is exchange-status, exchange-key, exchange-conflict (one object for each conflict), exchange-value,
  exchange-clear, exchange-add-leaf, exchange-drop-leaf, exchange-resync or exchange-check. by is null if the root made
  the version; of a conflict, lost and won have deletion, or size and value, which is left out if it is long
- `data`: op is verify, recover, clear-fence or lower-versions. The condition of a store is intact, log-corrupt (the last
  writes cannot be read, or not all of them) or snapshot-corrupt (keys are missing); corruption is the cause, lost the
  number of records of the snapshot that cannot be read. rows is the number of rows, only if the store takes part in an
  exchange. The exit code is the same as with text
- `serve user`: op is user

A value comes with its encoding, utf-8 or base64; a key has key_encoding only if that is base64.

Errors:
With -j an error is one object on standard error:

  {"v":1,"error":{"kind":"timeout","code":124,"message":"...",
   "outcome":"unknown","retryable":true}}

It is printed on one line. code is the exit code. Writes have outcome: unchanged or unknown. retryable means that the same
command can succeed later. hints and causes are present if there are any.
"#;

fn environment() -> String {
    let names: Vec<String> =
        Setting::all().filter(|setting| setting.has_flag()).map(Setting::variable).collect();
    let row = |row: &[String]| {
        let row: String = row.iter().map(|name| format!("  {name:<22}")).collect();
        format!("{}\n", row.trim_end())
    };
    let settings: String = names.chunks(3).map(row).collect();
    format!(
        "\
Each connection option and output option has a variable, named after its long form. Switches accept 1, true, yes, 0,
false and no. An empty variable counts as unset. No variable contains a password: use a file.

Settings:
{settings}  {CONTEXT}           context to use, as -x
  {CONFIG_VARIABLE}            configuration file, as --config

`mqkv help config` explains how options, contexts and variables are combined; `mqkv config show --origin` prints the
result.

Pods:
Inside a pod the variables of the official SDKs are sufficient. They count if AIO_BROKER_HOSTNAME is set:

  AIO_BROKER_HOSTNAME   AIO_BROKER_TCP_PORT (8883)  AIO_MQTT_USE_TLS (true)
  AIO_TLS_CA_FILE       AIO_TLS_CERT_FILE           AIO_TLS_KEY_FILE
  AIO_MQTT_USERNAME     AIO_MQTT_PASSWORD_FILE      AIO_TLS_KEY_PASSWORD_FILE
  AIO_SAT_FILE          AIO_MQTT_KEEP_ALIVE

AIO_MQTT_CLIENT_ID is ignored: with it mqkv would take over the application's session.

Other variables:
  NO_COLOR                 not empty: no color
  TERM                     dumb: no color
  COLUMNS                  width of help that is not printed on a terminal
  XDG_CONFIG_HOME, HOME    location of the configuration file;
                           Windows: APPDATA
  XDG_STATE_HOME, HOME     location of the history of the prompt;
                           Windows: LOCALAPPDATA
  VISUAL, EDITOR           editor of `edit` and `context edit`
  SHELL                    shell that \\! at the prompt starts
  HOSTNAME, COMPUTERNAME   part of the default client id
  SSL_CERT_FILE, SSL_CERT_DIR
                           TLS without -T: CAs instead of the system's
  {COMPLETE_KEYS}       1: completion in the shell reads the keys
  {PAGER}               the pager of long help, before PAGER; cat: none
  {KUBECTL}             -b kube: the program that takes the place of kubectl
  {FENCING_TOKEN_FILE}  --fence-env: file with a fencing token
  {FENCING_TOKEN}       --fence-env: fencing token, if no file is named
  {LOCK_HOLDER}         unlock: name of the holder
  NOTIFY_SOCKET            serve: service manager to notify of start,
                           reload and stop
  XDG_RUNTIME_DIR, TMPDIR  lock: directory of the file with the token

Commands of lock:
`mqkv lock` sets these variables for its command:

  {LOCK_KEY}, {LOCK_HOLDER}, {FENCING_TOKEN},
  {FENCING_TOKEN_FILE}

Commands of serve:
`mqkv serve --exec` sets these variables for its command, all of them leading to its store:

  MQKV_BROKER, AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT, AIO_MQTT_USE_TLS

MQKV_CONTEXT is emptied. Variables that lead to another broker or contain credentials for it are removed, except the
application's AIO_MQTT_CLIENT_ID.
"
    )
}

const CONFIG: &str = "\
Settings come from these layers, the highest first:

  1  options
  2  the context named by -x NAME
  3  MQKV_* variables
  4  the context named by MQKV_CONTEXT
  5  AIO_* variables, if AIO_BROKER_HOSTNAME is set
  6  the default context
  7  built in: mqtt://localhost:1883

A higher layer wins. `mqkv config show --origin` prints each setting in effect with its source. Some settings belong
together:

- The broker's address comes from one layer: with -n HOST the port and TLS of a context do not count. -p and --notls
  alone change the broker that a lower layer names.
- With -b, -n, -p or --embedded the default context does not count.
- Credentials, certificates and CAs are used only for the broker that the same layer names. With -x, those of the
  context are also used for a broker named by an option, for example the near end of a tunnel.
- A token (sat_file) replaces user and password, and vice versa. A password belongs to its user, a key to its
  certificate.

File:
The file is TOML: $MQKV_CONFIG, else $XDG_CONFIG_HOME/mqkv/config.toml, else ~/.config/mqkv/config.toml; on macOS \
~/Library/Application Support/mqkv/config.toml, on Windows %APPDATA%\\mqkv\\config.toml:

  default_context = \"lab\"

  [context.lab]
  broker = \"mqtt://localhost:1883\"

  [context.prod]
  broker = \"mqtts://aio-broker:18883\"
  cafile = \"ca.crt\"          # relative to the directory of this file;
                             # ~/ is the home directory
  sat_file = \"/var/run/secrets/tokens/broker-sat\"
  timeout = \"3s\"
  prompt_color = \"red\"       # color of the name at the prompt
  read_only = true           # reject writes, unless --force-write is given

A context contains any connection and output options, named as the long options with _ instead of -, and the last two
of the example. Passwords and tokens are in files of their own: password_file, sat_file, keypasswordfile. An unknown
setting is an error with its line (exit code 78): it can be a mistyped read_only.

`mqkv context add|set|rename|use|rm` change the file and preserve its comments; `mqkv context edit` opens it in an editor and checks
it afterwards. At the prompt, \\c NAME changes the context. `mqkv config --help` describes the verb.
";

const TTL: &str = "\
A key with a time to live is deleted by the store when that has passed:

  mqkv set session 42 --ttl 30m       the store deletes it after 30 minutes
  mqkv set session 42                 no time to live: replaces an earlier one

Every SET sets the time to live anew: without --ttl the key no longer expires. To extend it, set the key again.

Remaining time:
`mqkv serve` and `mqkv store` report it: `get -v`, `keys -l`, `watch -v`, and -j. The protocol has no request for it, so other stores do
not; there, a client that must know it stores the end in the value. `mqkv watch KEY` reports the deletion when it happens; an expiry and a
DEL look the same.

Export and import:
From a store that reports it, `mqkv export` writes the time at which a key expires, and `mqkv import` sets what is left of it. From other
stores, a lock or a key with a time to live cannot be distinguished from another key, and never expires after an import.

Locks:
A lock is a key with a time to live that its holder renews: mqkv help locks.
";

/// Returns the topic of locks, with the messages that the program prints.
fn locks() -> String {
    let refused = CommandError::from(Error::Refused(ErrorReply::FenceTooOld));
    let hints = refused.hints.iter().map(|hint| format!("\n- hint: {hint}"));
    let refused = format!("- error: {}{}", refused.message, hints.collect::<String>());
    LOCKS.replace("{REFUSED}", &refused).replace("{LOST}", &loss_message("line1", LossReason::NotRenewed))
}

const LOCKS: &str = "\
A lock is a key of the store that its holder has set with an expiry: a lease. While the key exists, no other client can
set it.

  mqkv lock line1 -- ./change-recipe.sh    run the script under the lock
  mqkv holder line1                        print the holder of the lock

mqkv renews the lease while the script runs. If the machine fails, the lease is not renewed and expires, and the next
client gets the lock. This is the purpose of the lease, and also its weakness: it expires whether or not its holder
notices.

What can go wrong:
Two writers change the recipe of line 1, each under the lock. The first is suspended at the wrong moment: the machine
swaps, its lid is closed, a virtual machine is moved to another host, or Ctrl-Z or SIGSTOP stops the process:

  time  writer A                        writer B                 recipe
  0 s   takes the lock for 30 s         waits for the lock       6
  5 s   computes the new recipe: 7                               6
  6 s   is suspended                                             6
  30 s  (suspended, lease expires)      gets the lock            6
  31 s  (suspended)                     writes 8                 8
  50 s  continues, and writes 7                                  7  wrong

A held the lock when it checked, and cannot know that half a minute has passed between the check and the write. No
program can: it can be suspended between any two instructions. mqkv stops a command whose lease cannot be renewed, and
stops it at once when it finds that it was itself suspended; but the write can be faster.

Fencing tokens:
Each lock comes with a number, its fencing token. The number grows from holder to holder, and with each renewal. A write
can carry it, and the store keeps for each key the greatest token it has seen there. A write with a smaller token comes
from an earlier holder and is rejected:

  0 s   takes the lock, token 100
  30 s                                  gets the lock, token 130
  31 s                                  writes 8 with token 130  8
  50 s  writes 7 with token 100:
        rejected, exit code 76                                   8  right

The store decides, not the clock of a writer. The script needs one more option:

  #!/bin/sh
  # change-recipe.sh, run as: mqkv lock line1 -- ./change-recipe.sh
  recipe=$(mqkv get line1/recipe) &&
  mqkv set line1/recipe $((recipe + 1)) --fence-env

--fence-env reads the token from MQKV_FENCING_TOKEN_FILE, which `mqkv lock` updates at each renewal, or, if that is not
set, from MQKV_FENCING_TOKEN. `--fence TOKEN` sets it directly. Both work with set, del and vdel.

Try it, with `mqkv serve` running. In one terminal:

  $ mqkv lock line1 --ttl 12s -- sh -c '
      sleep 20; mqkv set line1/recipe 7 --fence-env; sleep 60'

and at once in another. The first line suspends `mqkv lock`, but not its command; the second gets the lock when the lease
has expired:

  $ kill -STOP $(pgrep -f '^mqkv lock line1')
  $ mqkv lock line1 --ttl 12s -- mqkv set line1/recipe 8 --fence-env

After 20 seconds the command in the first terminal writes, with exit code 76:

{REFUSED}

Now continue `mqkv lock`. It detects the loss at once, stops the command and exits with code 125:

  $ kill -CONT $(pgrep -f '^mqkv lock line1')
  error: {LOST}

  $ mqkv get line1/recipe
  8

Rules:
- Read, change and write under a lock, and write with --fence-env. The store has no compare-and-set; `set --nx`,
  `set --nex` and `vdel` check one value only.
- The token belongs on the keys that the lock protects, not on the lock's own key: a key that was written with a token
  rejects every write without one, and a lock is taken without a token.
- Every client that writes such a key must use a token. The store enforces this until the key is deleted or expires.
- An action that cannot carry a token (a machine, an e-mail, another database) is protected by the lease alone: use a
  --ttl much longer than the work, and a --kill-after that allows it to stop cleanly.
- --holder must be unique. Two holders of the same name are one to the store: both hold the lock.
- A command that leaves its process group (a daemon, setsid, the jobs of an interactive shell) is not stopped.
- The lease is measured with a clock that runs while the machine sleeps (on Linux). Nothing can be stopped meanwhile: a
  lease that has expired by then is detected within a second after waking.

Exit status:
1 if another holder has the lock (-E sets another code), 125 if the lock was lost, 126 or 127 if the command
cannot be run, else the command's own; 128 plus the number of the signal that ended it.
";
