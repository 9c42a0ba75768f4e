//! The verbs as one type, their properties, and their groups in the help.

use clap::{Args, Subcommand};

use super::batch_args::{BatchArgs, BatchMode};
use super::{
    bench, decode, del, doctor, edit, exchange, export, get, holder, import, keys, lock, monitor, ping, raw,
    set, unlock, vdel, watch,
};
use crate::client::Access;

/// The verbs of the command line, of a batch and of the prompt.
#[derive(Debug, Subcommand)]
pub enum Command {
    Get(get::GetArgs),
    Set(set::SetArgs),
    Del(del::DelArgs),
    Vdel(vdel::VdelArgs),
    Edit(edit::EditArgs),
    Watch(watch::WatchArgs),
    Lock(lock::LockArgs),
    Unlock(unlock::UnlockArgs),
    Holder(holder::HolderArgs),
    Keys(keys::KeysArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Batch(BatchArgs),
    Ping(ping::PingArgs),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    Raw(raw::RawArgs),
    Monitor(monitor::MonitorArgs),
    Exchange(exchange::ExchangeArgs),
    Decode(decode::DecodeArgs),
}

/// The verbs in the groups of the program's help, most with others on a line; `exchange` is with the verbs that run a store.
pub const HELP_GROUPS: &[(&str, &str)] = &[
    ("get, set, edit, del, vdel", "Read, write and delete keys"),
    ("keys, watch", "List keys, print their changes"),
    ("lock, unlock, holder", "Hold a lock while a command runs"),
    ("export, import, batch", "Read and write many keys"),
    ("ping, bench, doctor", "Measure the store, diagnose the connection"),
    ("monitor, decode, raw", "Look at requests, replies and notifications"),
];

/// The verbs that can be lines of a batch, as the help of `batch` lists them.
pub const BATCH_VERBS: &str = "get, set, del, vdel, keys, unlock, holder, ping, raw, exchange, decode";

impl Command {
    /// Returns the definition of a frequent verb alone.
    #[must_use]
    pub fn define_frequent(name: &str) -> Option<clap::Command> {
        Some(match name {
            "get" => get::GetArgs::augment_args(clap::Command::new("get")),
            "set" => set::SetArgs::augment_args(clap::Command::new("set")),
            "del" => del::DelArgs::augment_args(clap::Command::new("del")),
            "vdel" => vdel::VdelArgs::augment_args(clap::Command::new("vdel")),
            _ => return None,
        })
    }

    /// Returns whether the verb needs no broker.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        match self {
            Self::Decode(_) => true,
            Self::Import(args) => args.is_offline(),
            Self::Batch(args) => args.is_offline(),
            Self::Exchange(args) => args.check().is_some(),
            _ => false,
        }
    }

    /// Returns whether a slow reader of the records, or an editor, can hold the verb up for longer than the keep-alive
    /// interval, so that another thread must serve the session.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        let is_follow = matches!(self, Self::Exchange(args) if args.is_follow());
        self.is_bulk() || self.handles_signals() || is_follow
    }

    /// Returns whether the verb shows its progress. Its records are written together, because there can be many.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        match self {
            Self::Del(args) => args.has_pattern(),
            Self::Keys(_) | Self::Export(_) | Self::Import(_) | Self::Batch(_) | Self::Bench(_) => true,
            _ => false,
        }
    }

    /// Returns whether JSON is the default format of the records.
    #[must_use]
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Batch(args) if args.is_json())
    }

    /// Returns how the verb runs as a line of a batch.
    #[must_use]
    pub fn batch_mode(&self) -> BatchMode {
        match self {
            Self::Raw(_) => BatchMode::Pipelined,
            Self::Vdel(args) if !args.reads_file() => BatchMode::Pipelined,
            Self::Get(args) if args.count() <= 1 => BatchMode::Pipelined,
            Self::Set(args) if !args.reads_file() => BatchMode::Pipelined,
            Self::Del(args) if args.is_single() => BatchMode::Pipelined,
            Self::Get(_) | Self::Set(_) | Self::Del(_) | Self::Vdel(_) => BatchMode::Exclusive,
            Self::Keys(_) => BatchMode::Exclusive,
            Self::Unlock(_) | Self::Holder(_) | Self::Ping(_) | Self::Decode(_) => BatchMode::Exclusive,
            Self::Exchange(args) => args.batch_mode(),
            Self::Doctor(_) | Self::Edit(_) => BatchMode::Unsupported,
            Self::Watch(_) | Self::Monitor(_) | Self::Lock(_) | Self::Bench(_) => BatchMode::Unsupported,
            Self::Export(_) | Self::Import(_) | Self::Batch(_) => BatchMode::Unsupported,
        }
    }

    /// Returns whether the verb is a watch that prints records, so that it can run in the background.
    #[must_use]
    pub fn is_watch_of_records(&self) -> bool {
        matches!(self, Self::Watch(args) if !args.runs_commands())
    }

    /// Returns whether the verb writes keys once or lists them, so that it is of no use to a store that ends with it.
    #[must_use]
    pub fn needs_lasting_store(&self) -> bool {
        match self {
            Self::Set(_) | Self::Del(_) | Self::Vdel(_) | Self::Edit(_) | Self::Unlock(_) => true,
            Self::Keys(_) | Self::Export(_) => true,
            Self::Import(args) => !args.is_offline(),
            _ => false,
        }
    }

    /// Returns whether the verb handles signals itself, because it has something to release before it ends.
    #[must_use]
    pub fn handles_signals(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Lock(_) | Self::Monitor(_) | Self::Edit(_) | Self::Bench(_))
    }

    /// Returns whether the verb, or the editor that it starts, asks on the terminal.
    #[must_use]
    pub fn asks(&self) -> bool {
        match self {
            Self::Edit(_) => true,
            Self::Del(args) => args.asks(),
            _ => false,
        }
    }

    /// Returns whether the verb itself writes. A batch does not: each of its lines is checked.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.access() == Access::Write && !self.is_offline() && !matches!(self, Self::Batch(_))
    }

    /// Returns whether the verb may change the store.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Get(_) | Self::Watch(_) | Self::Monitor(_) | Self::Keys(_) | Self::Export(_) => {
                Access::Read
            }
            // `doctor` deletes the key that it writes.
            Self::Holder(_) | Self::Ping(_) | Self::Doctor(_) | Self::Decode(_) => Access::Read,
            Self::Del(args) => args.access(),
            Self::Set(_) | Self::Vdel(_) | Self::Lock(_) | Self::Unlock(_) => Access::Write,
            Self::Edit(_) | Self::Import(_) | Self::Batch(_) | Self::Bench(_) => Access::Write,
            Self::Raw(args) => args.access(),
            Self::Exchange(args) => args.access(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches, Subcommand};

    use super::*;

    fn parse(line: &str) -> Option<Command> {
        let definition = Command::augment_subcommands(clap::Command::new("mqkv").no_binary_name(true));
        let matches = definition.try_get_matches_from(line.split_whitespace()).ok()?;
        Some(Command::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn the_verbs_that_the_help_of_batch_lists_are_those_that_its_lines_may_have() {
        let definition = Command::augment_subcommands(clap::Command::new("mqkv"));
        for verb in definition.get_subcommands().map(clap::Command::get_name) {
            let command = ["", "k", "k v", "status", "topic k"]
                .iter()
                .find_map(|words| parse(&format!("{verb} {words}")));
            let command = command.unwrap_or_else(|| panic!("arguments for {verb} are missing above"));
            let is_listed = BATCH_VERBS.split(", ").any(|listed| listed == verb);
            assert_eq!(command.batch_mode() != BatchMode::Unsupported, is_listed, "{verb}");
        }
        let batch = definition.find_subcommand("batch").unwrap();
        let help = batch.get_after_long_help().unwrap().to_string();
        assert!(help.contains(&format!("with its arguments: {BATCH_VERBS}.")), "{help}");
    }

    #[test]
    fn a_line_whose_value_is_read_from_a_file_runs_alone() {
        for (line, mode) in [
            ("set k v", BatchMode::Pipelined),
            ("set k -f file", BatchMode::Exclusive),
            ("vdel k v", BatchMode::Pipelined),
            ("vdel k -f file", BatchMode::Exclusive),
        ] {
            assert_eq!(parse(line).unwrap().batch_mode(), mode, "{line}");
        }
    }
}
