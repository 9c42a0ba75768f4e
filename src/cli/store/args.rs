//! Arguments and help of `store`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::action::StoreAction;
use crate::cli::serve::cluster::ClusterArgs;
use crate::cli::serve::limits::LimitArgs;
use crate::cli::serve::operations::OperationsArgs;
use crate::cli::serve::persistence::PersistenceArgs;
use crate::commands::number::number;
use crate::commands::{CommandError, size};
use crate::server::external::requests::RequestFilter;

const HELP: &str = "\
Examples:
  mqkv store -b mqtt://localhost:1883                 in memory
  mqkv store -b mqtts://broker --data ./state         persistent
  mqkv store -x site --requests 'mqkv/in/+' --authz rules.yaml
  mqkv store -b mqtt://broker --etcd http://a:2379,http://b:2379

The store connects to the broker as the client mqkv-store (-i sets another id), subscribes to the requests, and publishes responses and notifications. \
Applications connect to that broker and need no change. One store serves a broker: if another one answers there, mqkv store does not \
start.

Clients:
The broker does not report which client has published a message. With --identity claimed, the response topic of a request and its \
user property __srcId name the client, and must agree; each client can claim to be another one. With --identity topic, the broker \
writes the client id into the topic of the request (EMQX: topic rewriting), as the level of + or #, so that --authz can decide \
what a client may do. Deny clients to publish to that topic themselves.

A watch ends when the broker reports that no subscription matches a notification (reason code 0x10).

State in etcd:
With --etcd the state is in etcd, and several stores of one cluster may serve a broker, each with a name of its own (--instance), \
which is also a part of its client id. One answers; the others receive all requests, hold those of the last seconds, and one of them \
takes over when the owner is gone (--failover). It needs a build with the feature cluster.

Connection:
After a loss the store connects again, for ever. The broker keeps its session for 30 s, so that a short loss delays requests \
but loses none. The broker's limit on messages in flight bounds the throughput; Mosquitto's is 20 (max_inflight_messages).

SIGTERM and SIGINT stop the store: it unsubscribes, answers the requests received so far and exits with 0. SIGHUP reloads the \
rules of --authz; without --authz it stops the store.";

/// Serve the state store behind another MQTT broker
///
/// The store is a client of that broker. Without --data the data is in memory and lost at exit.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "etcd" => arg.hide_short_help(false),
    // The summary has 24 lines.
    "keys_max" | "memory_max" => arg.hide_short_help(true),
    _ => arg,
}))]
pub struct StoreArgs {
    #[command(subcommand)]
    pub action: Option<StoreAction>,
    #[command(flatten)]
    pub data: PersistenceArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Where the client of a request is named
    ///
    /// The default is topic if --requests has a wildcard, otherwise claimed.
    #[arg(long, value_name = "HOW")]
    pub identity: Option<Identity>,
    /// Topic of requests [default: the state store's]
    ///
    /// A level that is +, or # at the end, stands for the client id.
    #[arg(long, value_name = "FILTER", value_parser = RequestFilter::parse)]
    pub requests: Option<RequestFilter>,
    /// Allow only the requests that FILE allows
    ///
    /// FILE contains rules; see Authorization in `mqkv help serve`. It requires --identity topic.
    #[arg(long, value_name = "FILE")]
    pub authz: Option<PathBuf>,
    #[command(flatten)]
    pub operations: OperationsArgs,
    // Last: arguments that follow would stand below its heading in the help.
    #[command(flatten)]
    pub limits: StoreLimitArgs,
}

/// How the client of a request is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Identity {
    /// In the request itself
    Claimed,
    /// In the topic, by the broker
    Topic,
}

/// Limits of the store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct StoreLimitArgs {
    /// Maximum number of keys [default: 10,000,000]
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX))]
    keys_max: Option<u64>,
    /// Maximum size of a value [default: 64M]
    ///
    /// A SIZE is a number of bytes, or one with K, M or G. The broker may accept less in a packet.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, hide_short_help = true)]
    value_bytes_max: Option<u64>,
    /// Maximum memory held for clients [default: 1G]
    ///
    /// Seven sixteenths are for keys and values, one sixteenth for recorded replies, one eighth for watched keys.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory_max: Option<u64>,
    /// Maximum of watched keys per client [default: 100,000]
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX), hide_short_help = true)]
    watches_max: Option<u64>,
}

impl StoreLimitArgs {
    /// Returns the limits with the defaults of `serve`.
    #[must_use]
    pub fn limits(&self) -> LimitArgs {
        let Self { keys_max, value_bytes_max, memory_max, watches_max } = *self;
        LimitArgs { keys_max, value_bytes_max, memory_max, watches_max, ..LimitArgs::default() }
    }
}

impl StoreArgs {
    /// Returns the topic of the requests.
    pub fn request_filter(&self) -> Result<RequestFilter, CommandError> {
        let requests = self.requests.clone().unwrap_or_default();
        let has_client = requests.has_client();
        match self.identity {
            Some(Identity::Topic) if !has_client => {
                let error = CommandError::usage(
                    "--identity topic: the topic of --requests has no level for the client id",
                );
                Err(error.hint("--requests 'mqkv/in/+'"))
            }
            Some(Identity::Claimed) if has_client => {
                let error = CommandError::usage(
                    "--identity claimed: the topic of --requests has a level for the client id",
                );
                Err(error.hint("a topic without + and #, or --identity topic"))
            }
            _ if self.authz.is_some() && !has_client => {
                let error = CommandError::usage(
                    "--authz requires --identity topic: otherwise each client can claim to be another one",
                );
                Err(error.hint("--requests 'mqkv/in/+'"))
            }
            _ => Ok(requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    fn rules_need_a_topic_that_names_the_client() {
        let filter = |line: &str| Only::parse_from(line.split(' ')).store.request_filter();
        assert!(!filter("store").unwrap().has_client());
        assert!(filter("store --requests in/+ --authz rules").unwrap().has_client());
        assert!(filter("store --requests in/# --identity topic").unwrap().has_client());
        assert!(filter("store --requests in --identity claimed").is_ok());
        for line in [
            "store --authz rules",
            "store --identity topic",
            "store --identity topic --requests in",
            "store --identity claimed --requests in/+",
        ] {
            assert_eq!(filter(line).unwrap_err().kind, crate::commands::Kind::Usage, "{line}");
        }
    }
}
