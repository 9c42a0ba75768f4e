//! `exchange`: asks the root or a leaf of an exchange.

mod conflict_record;
mod conflicts;
mod key_record;
mod record;
mod request;
mod status;
mod status_record;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::conflict_record::{LostValue, NoConflict};
use self::conflicts::ConflictsArgs;
use self::key_record::KeyRecord;
use self::record::{Cleared, LeafAdded, LeafDropped, Reconnected, Resync};
use self::request::{ask, put};
use self::status::StatusArgs;
use super::args::key::KeyArgs;
use super::args::kind::ValueKind;
use super::batch_args::BatchMode;
use super::error::CommandError;
use super::exit::Exit;
use super::number::number;
use super::output::Emit;
use super::session::Session;
use crate::client::Access;
use crate::protocol::exchange::{Answer, Command, Lost};

const HELP: &str = "\
Examples:
  mqkv exchange check root.toml         validate the file of a root
  mqkv serve --data r --exchange root.toml
  mqkv serve --data l --exchange leaf.toml --listen 127.0.0.1:1884
  mqkv exchange status --wait 30s --leaves 2    until all are, at least 2
  mqkv -b mqtt://press-7 exchange conflicts
  mqkv exchange value 41 | mqkv set line/2/setpoint -
  mqkv exchange clear 41

An exchange keeps keys of a root and of its leaves alike, over connections that fail at times. A leaf shows its own \
changes at once and proposes them; the root decides in the order of its commits. A change that loses is replaced by the \
one that won, and recorded as a conflict at both nodes.

Files:
The file of a root, and the file of a leaf, in TOML:
  exchange = \"plant\"                    exchange = \"plant\"
  node = \"root\"                         node = \"press-7\"
  role = \"root\"                         role = \"leaf\"
  admit = [\"press-*\"]                   root = \"mqtts://plant:8883\"
  [[rule]]                              cafile = \"ca.crt\"
  keys = [\"recipe/**\"]                  certfile = \"press-7.crt\"
  change = \"root\"                       keyfile = \"press-7.key\"
  [[rule]]                              on_join = \"offer\"
  keys = [\"line/*/setpoint\"]
  change = \"leaves\"
  leaves = [\"press-*\"]
admit has the patterns of the leaves that may join unasked; others join after `mqkv exchange add-leaf NAME`. Of the rules \
the first with a pattern for a key counts, and a key without a rule takes no part. change is \"root\" if only the root \
changes the keys, and \"leaves\" if leaves may propose changes; leaves has the patterns of the leaves that get the keys, \
by default all. The rules are sent to the leaves. SIGHUP makes the root read them again.

The connection of a leaf has the settings of a context (mqkv help config), with root in place of broker. on_join is \
\"offer\" or \"discard\": what becomes of the leaf's own keys that the root does not have when it joins. A leaf that has \
never been linked does not know the rules, and refuses all writes unless before_join is \"accept\".

Status:
A root reports each leaf: expected (admit has its name, or add-leaf, and it has never joined), offline, linked (it gets what it lacks), or \
synchronized. BEHIND counts the versions of the root that the leaf has not stored; PENDING counts changes on which \
the root has not decided, and is not known while it is offline.

A key is local (no rule has a pattern for it), absent (it takes part, and has no record), proposed (a change of this leaf \
waits for the root), replicating (the root has a change that a leaf has not stored), or synchronized.

Output:
In a pipe, status of a root has a line for each leaf, and conflicts one for each conflict, with tabs between the columns. \
Of a leaf: name, state, behind, pending, conflicts, milliseconds since it was heard. Of a conflict: number, time in UTC, \
key, leaf, reason, version that won, node that made it, and the first 256 bytes that lost. value prints all bytes.

Exit status:
status: 0 if all is synchronized, 1 if not; with --wait 124 if not in time; with --leaves also if fewer have joined. The others: 1 if there is no such leaf or \
conflict, or if a key takes no part (check).";

/// Ask the root or a leaf of an exchange
///
/// The broker is the node that answers: the root, or one leaf. Only check needs no broker.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, arg_required_else_help = false, disable_help_subcommand = true)]
pub struct ExchangeArgs {
    #[command(subcommand)]
    verb: ExchangeVerb,
}

/// The verbs below `exchange`.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
enum ExchangeVerb {
    /// Show whether root and leaves are synchronized
    Status(StatusArgs),
    /// Show the rule and the state of a key
    Key(KeyArgs),
    /// List the changes that lost
    Conflicts(ConflictsArgs),
    /// Print the value that lost
    ///
    /// The output is the exact value, as that of get.
    Value {
        /// Number of the conflict
        #[arg(value_name = "ID", add = ValueKind::Conflict, value_parser = number(1..=u64::MAX))]
        id: u64,
    },
    /// Remove conflicts that are dealt with
    Clear(ClearArgs),
    /// Let a leaf join
    AddLeaf(AddLeafArgs),
    /// Forget a leaf
    ///
    /// It can join again if the file of the root admits it, or after add-leaf.
    DropLeaf {
        /// Name of the leaf
        #[arg(value_name = "LEAF", add = ValueKind::Leaf)]
        name: String,
    },
    /// Send all records again
    Resync(ResyncArgs),
    /// Have a leaf connect to its root now
    ///
    /// The broker is the leaf. Without it, a leaf that has failed to connect waits up to 30 seconds.
    Reconnect,
    /// Validate an exchange file, offline
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct ClearArgs {
    /// Numbers of the conflicts
    #[arg(value_name = "ID", add = ValueKind::Conflict, value_parser = number(1..=u64::MAX), required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<u64>,
    /// Remove all conflicts of the node
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
struct AddLeafArgs {
    /// Name of the leaf
    #[arg(value_name = "NAME")]
    name: String,
    /// Let another store take the name
    ///
    /// For a machine that was replaced: the leaf joins anew, also with another identity.
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, Args)]
struct ResyncArgs {
    /// Name of a leaf; the broker is the root [default: all]
    ///
    /// If the broker is a leaf, that leaf gets all records again.
    #[arg(value_name = "LEAF", add = ValueKind::Leaf)]
    name: Option<String>,
    /// Join a root that has lost its store
    ///
    /// The broker is a leaf. It offers all its keys to the new root.
    #[arg(long, conflicts_with = "name")]
    new_root: bool,
}

/// Arguments of `exchange check`, which the command line runs: a rule is no part of the protocol.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Exchange file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Keys, to show which rule holds for each
    #[arg(value_name = "KEY", add = ValueKind::Key)]
    pub keys: Vec<OsString>,
}

impl ExchangeArgs {
    /// Returns the arguments of `check`, which is offline.
    #[must_use]
    pub fn check(&self) -> Option<&CheckArgs> {
        match &self.verb {
            ExchangeVerb::Check(args) => Some(args),
            _ => None,
        }
    }

    /// Returns whether the verb may change the node.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.verb {
            ExchangeVerb::Status(_)
            | ExchangeVerb::Key(_)
            | ExchangeVerb::Conflicts(_)
            | ExchangeVerb::Value { .. }
            | ExchangeVerb::Reconnect
            | ExchangeVerb::Check(_) => Access::Read,
            ExchangeVerb::Clear(_)
            | ExchangeVerb::AddLeaf(_)
            | ExchangeVerb::DropLeaf { .. }
            | ExchangeVerb::Resync(_) => Access::Write,
        }
    }

    /// Returns whether the verb prints records until a signal.
    #[must_use]
    pub fn is_follow(&self) -> bool {
        matches!(&self.verb, ExchangeVerb::Conflicts(args) if args.is_follow())
    }

    /// Returns how the verb runs as a line of a batch.
    #[must_use]
    pub fn batch_mode(&self) -> BatchMode {
        match &self.verb {
            ExchangeVerb::Check(_) => BatchMode::Unsupported,
            ExchangeVerb::Conflicts(args) if args.is_follow() => BatchMode::Unsupported,
            _ => BatchMode::Exclusive,
        }
    }
}

pub async fn run(args: ExchangeArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    match args.verb {
        ExchangeVerb::Status(args) => status::run(args, session, emit).await,
        ExchangeVerb::Key(args) => key(args, session, emit).await,
        ExchangeVerb::Conflicts(args) => conflicts::run(args, session, emit).await,
        ExchangeVerb::Value { id } => value(id, session, emit).await,
        ExchangeVerb::Clear(args) => clear(args, session, emit).await,
        ExchangeVerb::AddLeaf(AddLeafArgs { name, replace }) => {
            let command = Command::AddLeaf { name: name.clone(), is_replaced: replace };
            let count = done(command, session).await?;
            put(emit, &LeafAdded { name, is_known: count == Some(0) }, true)
        }
        ExchangeVerb::DropLeaf { name } => {
            let found = done(Command::DropLeaf { name: name.clone() }, session).await?.is_some();
            put(emit, &LeafDropped { name, found }, found)
        }
        ExchangeVerb::Resync(ResyncArgs { name, new_root }) => {
            let command = Command::Resync { name: name.clone(), is_new_root: new_root };
            let count = done(command, session).await?;
            let (leaves, found) = (count.unwrap_or(0), count.is_some());
            put(emit, &Resync { name, leaves, is_new_root: new_root, found }, found)
        }
        ExchangeVerb::Reconnect => {
            let count = done(Command::Reconnect, session).await?;
            put(emit, &Reconnected { was_connected: count != Some(1) }, true)
        }
        ExchangeVerb::Check(_) => {
            let error = CommandError::usage("exchange check is not available here");
            Err(error.hint("mqkv exchange check FILE, at the command line"))
        }
    }
}

/// Returns the names of the leaves that the node knows, for completion.
pub async fn leaf_names(session: &Session) -> Result<Vec<String>, CommandError> {
    Ok(match ask(&Command::Status { leaf: None }, session).await? {
        Answer::Root(report) => report.leaves.into_iter().map(|leaf| leaf.name).collect(),
        Answer::Leaf(report) => vec![report.name],
        _ => Vec::new(),
    })
}

/// Returns the numbers of the oldest conflicts of the node, for completion.
pub async fn conflict_ids(session: &Session) -> Result<Vec<String>, CommandError> {
    const IDS_MAX: u64 = 500;
    Ok(match ask(&Command::Conflicts { leaf: None, since: 0, max: IDS_MAX }, session).await? {
        Answer::Conflicts(page) => page.conflicts.iter().map(|conflict| conflict.id.to_string()).collect(),
        _ => Vec::new(),
    })
}

/// Returns the number of conflicts or leaves that a request has changed; `None` if there are none of the name.
async fn done(command: Command, session: &Session) -> Result<Option<u64>, CommandError> {
    match ask(&command, session).await? {
        Answer::Done { count } => Ok(Some(count)),
        Answer::NotFound => Ok(None),
        _ => Err(request::unexpected()),
    }
}

async fn key(args: KeyArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let key = args.resolve_only("mqkv exchange key KEY")?;
    match ask(&Command::Key { key: key.clone() }, session).await? {
        Answer::Key(report) => put(emit, &KeyRecord { key, report }, true),
        _ => Err(request::unexpected()),
    }
}

async fn value(id: u64, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    match ask(&Command::Value { id }, session).await? {
        Answer::Value(value) => {
            let (is_deletion, is_yes) = (value == Err(Lost::Deletion), value.is_ok());
            put(emit, &LostValue { id, is_deletion, value }, is_yes)
        }
        Answer::NotFound => put(emit, &NoConflict { id, found: false }, false),
        _ => Err(request::unexpected()),
    }
}

async fn clear(args: ClearArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let mut cleared = 0_u64;
    if args.all {
        // Each request removes a bounded number.
        while let Some(count) = done(Command::Clear { ids: None }, session).await? {
            cleared = cleared.saturating_add(count);
        }
        return put(emit, &Cleared { cleared }, true);
    }
    // One by one, so that each that does not exist is reported.
    let mut exit = Exit::Yes;
    for id in args.ids {
        match done(Command::Clear { ids: Some(vec![id]) }, session).await? {
            Some(count) => cleared = cleared.saturating_add(count),
            None => exit = put(emit, &NoConflict { id, found: false }, false)?,
        }
    }
    if cleared > 0 {
        put(emit, &Cleared { cleared }, true)?;
    }
    Ok(exit)
}
