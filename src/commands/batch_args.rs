//! Arguments of `batch`, and how the other verbs run as its lines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::lines::pipeline::INFLIGHT_MAX;
use super::number::number;

const HELP: &str = "\
Examples:
  mqkv batch setup.mqkv
  mqkv batch --dry-run setup.mqkv       check all lines, send nothing
  printf 'set a 1\\nset b 2 --ttl 30s\\nget a\\n' | mqkv batch -
  jq -c '{op:\"set\",key:.name,value:.text}' items.json |
    mqkv batch --format jsonl -

Lines:
Each line is a verb with its arguments: get, set, del, vdel, keys, unlock, holder, ping, raw, exchange, decode. Verbs are case-insensitive, and \
SET accepts the options of the wire: SET k v NX PX 5000. Blanks separate words. 'Single quotes' keep every character; \
\"double quotes\" interpret \\n \\r \\t \\0 \\e \\\\ \\\" \\xNN. They enclose a whole word, or the value behind --name=. From a quote \
within a word on, the word is literal: {\"a\":1}. Elsewhere a backslash escapes a blank, a quote, #, |, > \
and a backslash. Before any other character a backslash is literal: C:\\temp. In a line without options, a quoted key or value is literal, also \
\"-\" and \"--nx\". Lines that begin with # are comments.

JSON lines:
Members: op (get, set, del, vdel), key and value; optionally key_encoding and encoding (utf-8 or base64), ttl_ms, \
condition (nx or nex), fence, persist, and id (any JSON, returned with the answer).

Order:
Requests are sent in the order of the lines, up to --inflight of them before the first answer, and the store handles \
them in that order: a get sees the set before it. Without --inflight their number grows from 64, to 4096 at most, as long \
as answers then arrive faster, and falls if the store becomes slower. Answers are printed in the order of the lines. In a pipe each get \
prints one line, escaped as in double quotes; the line is empty if the key does not exist. With -j, and for JSON lines, \
each answer is one object with the number of its line.

Exit status:
The batch stops at the first error and exits with its status. Requests that were already sent are completed, and the \
error lists their lines. A \"no\" (status 1) does not stop the batch; it exits with 1 at the end. With --keep-going all \
lines run, and the greatest status counts.";

/// Run the lines of a file on one session
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct BatchArgs {
    /// File with the lines [default: -, standard input]
    #[arg(value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// Check all lines, without a connection
    #[arg(long)]
    pub dry_run: bool,
    /// Run all lines, even after an error
    #[arg(long)]
    pub keep_going: bool,
    /// Requests in flight [default: adapts]
    #[arg(long, value_name = "N", value_parser = number(1..=INFLIGHT_MAX))]
    pub inflight: Option<u16>,
    /// Format of the lines
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    pub format: LineFormat,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Verbs and arguments, as on the command line
    Lines,
    /// JSON objects; answers are JSON too
    Jsonl,
}

impl BatchArgs {
    /// Returns whether JSON is the default format of the answers.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == LineFormat::Jsonl
    }

    /// Returns whether no request is made.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.dry_run
    }
}

/// How a command runs as a line of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchMode {
    /// It makes one request, which may be in flight together with others.
    Pipelined,
    /// It makes several requests, or uses much memory: it runs after all lines before it and before all lines after it.
    Exclusive,
    /// It cannot be a line of a batch.
    Unsupported,
}
