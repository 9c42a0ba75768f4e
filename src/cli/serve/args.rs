//! Arguments and help of `serve`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::cluster::ClusterArgs;
use super::exchange::ExchangeOptions;
use super::limits::LimitArgs;
use super::listen_address::{ListenAddress, parse_origin};
use super::operations::OperationsArgs;
use super::persistence::PersistenceArgs;
use super::user::ServeAction;
use crate::commands::duration;

const EXAMPLES: &str = "\
Examples:
  mqkv serve                            in memory: the data is lost at exit
  mqkv serve --data ./state             persistent: stored in ./state
  mqkv serve --data ./state --persist custom
  mqkv serve --etcd http://a:2379,http://b:2379 --instance one
  mqkv serve --listen 0.0.0.0:1883      for clients on other machines
  mqkv serve --listen 127.0.0.1:0 --port-file port
  mqkv serve --tls-cert server.pem --tls-key server.key --client-ca ca.pem
  mqkv serve --users users              users added by mqkv serve user
  mqkv serve --sat-tokens tokens        a file with lines NAME TOKEN
  mqkv serve --listen 127.0.0.1:1883 --listen ws://127.0.0.1:8080/mqtt
  mqkv serve --users users --listen mqtt://0.0.0.0:1884 \\
    --listen 'mqtt://127.0.0.1:1883?anonymous=yes'
  mqkv serve --admin 9883               status page http://127.0.0.1:9883/
  mqkv serve --seed defaults.jsonl --exec -- ./test.sh
  mqkv serve --config mqkv.toml         options from a file

Listeners:
The URL after --listen selects the protocol: mqtt:// or ws:// (WebSockets), with TLS mqtts:// or wss://. Options of one \
listener follow a ?, separated by &:
  anonymous=yes|no
      whether clients without credentials are accepted;
      default: yes, unless there is --users or --sat-tokens
  client-cert=required|optional|none
      whether clients are asked for a certificate;
      default: required, if there is --client-ca

Configuration file:
The keys of the file of --config are the long names of options, with _ instead of -:
  listen = [\"127.0.0.1:1883\", \"ws://127.0.0.1:8080/mqtt\"]
  data = \"/var/lib/mqkv\"
  memory_max = \"1G\"
  keys_max = 1000000
  users = \"users\"
An option on the command line replaces the one of the file. Paths are relative to the folder of the file. --exec and \
--leave-exchange cannot be in it. The file is read at the start only; SIGHUP reloads the files that it names.

Authorization:
The file of --authz contains rules in the shape of the BrokerAuthorization resource, in YAML or JSON. Requests that no \
rule allows are rejected:
  rules:
  - principals:
      clientIds: [press-7]
      usernames: [ann]
      attributes: [{CN: press 7, O: Werk}]
    brokerResources:
    - method: Connect
    - method: Publish
      topics:
      - statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke
    - {method: Publish, topics: [\"clients/{principal.clientId}/#\"]}
    - {method: Subscribe, topics: [\"clients/{principal.clientId}/#\"]}
    stateStoreResources:
    - method: ReadWrite
      keyType: Pattern
      keys: [\"line1/*\", \"{principal.clientId}/*\"]
The attributes are those of the client certificate: the subject's by short name (CN, O, OU, L, ST, C, UID, DC, \
serialNumber, emailAddress; others by object identifier), DNS, IP, URI and email of the alternative names, and those of \
the issuer with the prefix issuer. (issuer.CN). A certificate must have all attributes of one entry. An attribute with several values matches by any of them; \
{principal.attributes.NAME} is the first. An entry with a placeholder does not apply to a client whose value contains \
the separator / or the text after the placeholder, or would make a topic begin with clients, statestore or $: the log has \
a line for each such client. A client also needs permission to publish to its response topic.

Reload:
SIGHUP reloads the files of --authz, --users, --sat-tokens, --tls-cert, --tls-key and --client-ca, and the rules in the \
file of the root of an exchange. It disconnects the \
clients of removed users, changed passwords and removed tokens, and those whose certificate has expired; all others \
continue. A subscription that is no longer allowed delivers nothing until it is allowed again. New connections get the new certificate and are \
verified against the new CAs. If a file is invalid, the error is logged and the previous content stays in force: \
separately for the rules, the users, the tokens and the exchange, and together for all TLS files.

The files of --users and --sat-tokens are also read at each authentication, and the TLS files every second, which disconnects no \
other client. A file that is unreadable or not a regular file is logged and changes nothing. A session belongs to the user that created it: another user with the same client id does not get it.

Commands:
--exec sets MQKV_BROKER, AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT and AIO_MQTT_USE_TLS for its command. Without --listen \
the store listens on a free port of 127.0.0.1. Variables that lead to another broker or contain credentials for it are \
removed, unless --users, --sat-tokens or TLS make them meaningful here. If the file of --tls-cert ends with a self-signed \
certificate, MQKV_CAFILE and AIO_TLS_CA_FILE name it; for another CA, set them to its file. Signals are forwarded to the \
command. Ctrl-Z stops the command and the store, and `fg` continues both. Nothing is logged without -v.

State in etcd:
With --etcd the state is in etcd, and several instances of one cluster may run, each with a name of its own (--instance). One \
owns the store and listens; the others follow and open no listener until it is gone. Sessions, subscriptions and retained messages \
end with the owner: its clients connect again, to the address of the next one. An instance that has lost the store ends with 69: start it again. It needs a \
build with the feature cluster.

Status page:
--admin serves read-only pages to every client that can reach the address; there is no password. Requests by a host name \
are answered only for the name given here; addresses and localhost are always valid.

Shutdown:
SIGTERM and SIGINT stop the server: it accepts no new connection, answers the requests received so far and exits with 0. \
So does SIGHUP without --config, --authz, --users, --sat-tokens, --exchange and TLS; with --exec it is forwarded to the command, unless there \
is --authz.";

/// Run an MQTT broker with a state store
///
/// Any MQTT 5 or MQTT 3.1.1 client can use the broker. Without --data the data is in memory and lost at exit.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ServeArgs {
    #[command(subcommand)]
    pub action: Option<ServeAction>,
    /// Read options from FILE, in TOML
    ///
    /// See Configuration file. Options on the command line take precedence.
    #[arg(id = "config_file", long = "config", hide_short_help = true, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:1883]
    ///
    /// The option is repeatable. The default includes [::1]:1883, if available; with TLS the port is 8883.
    #[arg(long, value_name = "HOST:PORT|URL", value_parser = ListenAddress::parse)]
    pub listen: Vec<ListenAddress>,
    /// Accept WebSockets from pages of this origin
    ///
    /// The option is repeatable; * accepts all. The default is pages of this machine and of the address listened on.
    #[arg(long, hide_short_help = true, value_name = "ORIGIN", value_parser = parse_origin)]
    pub ws_origin: Vec<String>,
    #[command(flatten)]
    pub data: PersistenceArgs,
    #[command(flatten)]
    pub exchange: ExchangeOptions,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Enable TLS with this certificate, PEM
    ///
    /// The file contains the chain of the certificate too.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Require a client certificate of these CAs, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Require a user name and password from FILE
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Require a service account token from FILE
    ///
    /// Combined with --users, either is accepted.
    #[arg(long, value_name = "FILE")]
    pub sat_tokens: Option<PathBuf>,
    /// Allow only the requests that FILE allows
    ///
    /// FILE contains rules; see Authorization.
    #[arg(long, value_name = "FILE")]
    pub authz: Option<PathBuf>,
    /// Write the port of the first listener to FILE
    ///
    /// The file appears when the listeners are open, and is removed at the end; one of an earlier server is removed at the start.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// Interval of the counters below $SYS/broker
    ///
    /// 0 publishes none.
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "10s", value_parser = duration::parse_or_zero)]
    pub sys_interval: Duration,
    #[command(flatten)]
    pub run: ExecArgs,
    // Last: arguments that follow would stand below its heading in the help.
    #[command(flatten)]
    pub limits: LimitArgs,
}

impl ServeArgs {
    /// Whether an option is given that contradicts `--etcd`, so that the variable `MQKV_ETCD` means nothing.
    #[must_use]
    pub fn excludes_etcd(&self) -> bool {
        self.action.is_some()
            || self.data.data.is_some()
            || self.exchange.exchange.is_some()
            || self.run.seed.is_some()
            || self.run.exec
    }
}

/// Initial content of the store, and a command to run with it.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Set the keys of this file in a new store
    ///
    /// JSON lines, as `mqkv export` prints them. A store in memory is new at each start; in the folder of --data they are set once.
    #[arg(long, value_name = "FILE", conflicts_with = "etcd")]
    pub seed: Option<PathBuf>,
    /// Run CMD with variables that lead to this store
    ///
    /// The server ends with the command, and exits with its code.
    #[arg(long, requires = "command", conflicts_with = "etcd")]
    pub exec: bool,
    /// Command of --exec
    #[arg(last = true, hide_short_help = true, value_name = "CMD", requires = "exec")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn the_heading_of_the_limits_covers_the_limits_only() {
        let serve = ServeArgs::augment_args(Command::new("serve"));
        let below = serve.get_arguments().filter(|arg| arg.get_help_heading() == Some("Limits"));
        let limits = LimitArgs::augment_args(Command::new("limits"));
        assert!(below.map(clap::Arg::get_id).eq(limits.get_arguments().map(clap::Arg::get_id)));
    }

    #[test]
    fn state_in_etcd_excludes_what_it_does_not_have() {
        let options =
            [&["--data", "DIR"][..], &["--seed", "FILE"], &["--exchange", "FILE"], &["--exec", "--", "CMD"]];
        for option in options {
            let words = [&["serve", "--etcd", "http://etcd"], option].concat();
            let error =
                ServeArgs::augment_args(Command::new("serve")).try_get_matches_from(words).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{option:?}");
        }
    }
}
