//! The verbs below `store`, for the operator of a cluster on etcd.

use clap::{Args, Subcommand};

use crate::cli::config::variables::Variables;
use crate::cli::etcd::complete_required;
use crate::cli::exit::Exit;
use crate::cli::report::Reporter;
use crate::commands::CommandError;
use crate::commands::args::etcd::EtcdArgs;

const STATUS_HELP: &str = "\
Examples:
  mqkv store status --etcd http://a:2379,http://b:2379
  mqkv store status -j | jq '.shards[] | {shard, owner, seq}'

Prints the instances of a cluster, the owner of each shard, and what the members of etcd report. It reads etcd only, and changes \
nothing.

EPOCH counts the owners of a shard, SEQ its commits. COMMITTED is the owner's clock at the last commit; an owner without writes \
commits only if etcd is of a version that may answer stale reads. (gone) after an owner: its member key is not there, so another \
instance takes over.

Exit status: 0 if every shard has an owner that is there, 1 if one has none or the cluster does not exist.";

/// The verbs below `store`.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Print owners, members and the state of etcd
    #[command(after_long_help = STATUS_HELP)]
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

impl StoreAction {
    fn etcd(&self) -> &EtcdArgs {
        match self {
            Self::Status(args) => &args.etcd,
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// etcd cannot be used, its content is not valid, or this build does not support etcd.
pub fn run(
    action: &StoreAction,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let etcd = complete_required(action.etcd(), variables)?;
    #[cfg(not(feature = "cluster"))]
    {
        let _ = (etcd, reporter);
        Err(crate::cli::etcd::unsupported())
    }
    #[cfg(feature = "cluster")]
    match action {
        StoreAction::Status(_) => super::status::run(&etcd, reporter),
    }
}
