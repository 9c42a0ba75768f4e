//! The verbs below `store`, for the operator of a cluster on etcd.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::commands::args::etcd::{EtcdArgs, name};
use crate::commands::duration;

const STATUS_HELP: &str = "\
Examples:
  mqkv store status --etcd http://a:2379,http://b:2379
  mqkv store status -j | jq '{owner, epoch, seq}'

Prints the instances of a cluster, the owner of the store, and what the members of etcd report. It reads etcd only, and changes \
nothing.

EPOCH counts the ownerships, SEQ the commits. COMMITTED is the owner's clock at the last commit; an owner without writes \
commits only if etcd is of a version that may answer stale reads. (gone) after an owner: its member key is not there, so another \
instance takes over.

Exit status: 0 if the store has an owner that is there, 1 if it has none or the cluster does not exist, 76 if etcd reports an alarm or \
uses over 90 % of its quota.";

const CHECK_HELP: &str = "\
Examples:
  mqkv store check --etcd http://a:2379
  mqkv store check --cluster prod -j

Reads all records of a cluster at one revision of etcd, in pages, and verifies what instances rely on: that each record is valid, \
that no version is above the greatest one of the head, and that nothing was changed without a commit of an owner. \
It changes nothing; instances may run.

Prints one line for each invalid record: its key in etcd and the problem, separated by a tab. Then what there is.

Exit status: 0 if all records are valid, 1 if the cluster does not exist, 65 if a record is not valid.";

const RESIGN_HELP: &str = "\
Examples:
  mqkv store resign --etcd http://a:2379        before maintenance
  mqkv store resign --instance node1

Makes the owner answer what it has received, give the store up, and waits until another instance owns it. Behind a broker, no request is \
lost. Clients of mqkv serve must connect to the next owner; the instance ends with 69.

The owner leaves the store to the others for 10 s; if none takes it in that time, it takes it \
again.

It is refused if there is no other instance, unless --force is given.

Exit status: 0 if another instance owns the store, 1 if there was no owner or --instance names another one, 69 without another instance, 124 if none has taken over \
in time.";

const LOWER_VERSIONS_HELP: &str = "\
Examples:
  mqkv store lower-versions --etcd http://a:2379
  mqkv export > keys.jsonl      works without it

For a store whose versions clients refuse, because the clock of an instance was ahead. Instances own nothing while their clocks are over \
30 s behind those versions, and report it: mqkv store status.

Versions and fencing tokens that are over 60 s ahead of the clock of this machine become the present time. Set the clocks first, and \
stop all clients that use a lock: a token from before is greater than the new ones. It is refused while an instance owns the store; \
instances that own nothing may run, and one of them takes over afterwards.

Exit status: 0 if no version is ahead any more, 1 if the cluster does not exist, 65 if a record is not valid, 69 if an instance owns the \
store.";

/// The verbs below `store`.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Print owners, members and the state of etcd
    #[command(after_long_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Verify all records in etcd
    #[command(after_long_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Make the owner hand over to another instance
    #[command(after_long_help = RESIGN_HELP)]
    Resign(ResignArgs),
    /// Lower versions that are ahead of the clock
    #[command(after_long_help = LOWER_VERSIONS_HELP)]
    LowerVersions(LowerVersionsArgs),
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

#[derive(Debug, Args)]
pub struct LowerVersionsArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

#[derive(Debug, Args)]
pub struct ResignArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Do so only if this instance is the owner
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub instance: Option<String>,
    /// Do so even if no other instance could take over
    #[arg(long)]
    pub force: bool,
    /// Time to wait for another owner
    #[arg(short, long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub wait: Duration,
}

impl StoreAction {
    #[must_use]
    pub fn etcd(&self) -> &EtcdArgs {
        match self {
            Self::Status(args) => &args.etcd,
            Self::Check(args) => &args.etcd,
            Self::Resign(args) => &args.etcd,
            Self::LowerVersions(args) => &args.etcd,
        }
    }
}
