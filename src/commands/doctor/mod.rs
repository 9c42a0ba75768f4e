//! `doctor`: checks every step from this client to the store and back.

pub mod check;
mod connection;
mod early;
mod members;
pub mod record;
mod report;
mod store;
mod text;

use std::io;
use std::time::Duration;

use clap::{Arg, Args};
use tokio::time::timeout;

use self::check::Check;
use self::report::Report;
use super::args::etcd::EtcdArgs;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::session::Session;
use crate::protocol::Key;
use crate::random;

const HELP: &str = "\
Examples:
  mqkv doctor
  mqkv doctor -n aio-broker -T ca.crt --read-only
  mqkv doctor --etcd http://a:2379,http://b:2379
  mqkv doctor -j | jq -r '.[] | select(.status == \"fail\") | .message'

Checks:
The checks run in this order; after a failure the rest is skipped:
  forward        only with -b kube:, as the next: kubectl forwards a port
  ca             kubectl gets the trusted CAs of the broker
  token          with --sat-file or -b kube:: account, audience, expiry
                 of the token, as it states them itself; never the token
  dns            the host name has an address
  tcp            an address accepts connections; the addresses that do not
  tls            version and cipher; trusted CAs; the broker's certificate,
                 its issuer and names; whether a client certificate is
                 requested. Warns 30 days before the expiry.
  ws             the WebSocket handshake, if the URL is ws:// or wss://
  connack        the broker accepts the client; properties of the CONNACK
  qos            shown only if the broker supports QoS 0 only: requests to
                 the store need QoS 1
  subscribe      the client may subscribe to the store's replies (QoS 1)
  request        the store answers a GET of a key that does not exist
  clock          the difference between the clocks of the store and of this
                 machine. Warns from 10 s on, fails from 60 s on: then
                 requests or replies are rejected.
  notifications  a watch of a key gets notifications of SET and DEL
  early          the broker answers packets that are sent together with
                 CONNECT, which saves a round trip; on a second connection

etcd:
With --etcd the checks are those of a cluster on etcd, not of a broker:
  members        the members answer, and have a leader
  version        whether reads may be stale; whether versions differ
  alarms         none; less than 90 % of the quota is in use
  size           the size of the database; warns above 80 % of the quota
  read           the time of a linearizable read
  commit         etcd accepts a transaction as long as the longest commit
                 of a store; it changes nothing
  cluster        the store has an owner that is there

Writes:
The checks clock and notifications set the key mqkv-doctor/RANDOM with an expiry and delete it. They are skipped with \
--read-only, in a read-only context, and for a client whose rules do not allow that key. Connections are not retried.

Credentials:
A broker checks a password, a token or a certificate when a client connects. doctor connects anew: it shows whether they \
are valid now, not whether other connections still use revoked ones. `mqkv serve` ends those on SIGHUP.

Output:
With -j one JSON array at the end; with -q only failures.

Exit status:
That of the first failure, as for any other verb; 0 if there are only warnings.";

/// Diagnose the connection to the store
#[derive(Debug, Args)]
#[command(after_long_help = HELP, mut_args(as_doctor_has_it))]
pub struct DoctorArgs {
    /// Skip the checks that write
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

impl DoctorArgs {
    /// Returns the options of etcd, if etcd is to be checked instead of a broker.
    #[must_use]
    pub fn etcd(&self) -> Option<&EtcdArgs> {
        (!self.etcd.etcd.is_empty()).then_some(&self.etcd)
    }

    /// Returns whether the checks that write are skipped.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// Returns an option of etcd as the doctor has it.
fn as_doctor_has_it(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "etcd" => arg.help("Check etcd at these URLs instead of a broker"),
        _ => arg,
    }
}

/// Runs the verb at a broker.
pub async fn run(args: DoctorArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    if args.etcd().is_some() {
        let error = CommandError::usage("--etcd is not available here");
        return Err(error.hint("run it from a shell: mqkv doctor --etcd URLS"));
    }
    if let Some((option, missing)) = args.etcd.incomplete() {
        return Err(CommandError::usage(format!("{option} requires {missing}")));
    }
    let mut report = Report::new(emit);
    check(&args, session, &mut report).await?;
    Ok(report.finish()?)
}

async fn check(args: &DoctorArgs, session: &Session, report: &mut Report<'_>) -> io::Result<()> {
    // A broker that does not answer the DISCONNECT is not waited for longer.
    const CLOSE_MAX: Duration = Duration::from_secs(2);
    let settings = session.second_settings().await;
    for prepared in session.preparation().take() {
        report.prepared(prepared, settings.is_ok())?;
    }
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            if !report.has_failure() {
                report.fail(Check::Settings, None, error)?;
            }
            return report.skip_rest();
        }
    };
    let request_timeout = settings.request_timeout;
    report.start();
    let Some(client) = connection::check(settings.clone(), report).await? else { return Ok(()) };
    let no_writes = match session.check_write() {
        _ if args.read_only => Some("it writes, and --read-only is given".to_owned()),
        Err(error) => Some(format!("it writes, and {}", error.message)),
        Ok(()) => None,
    };
    let key = match Key::new(format!("mqkv-doctor/{:016x}", random::u64())) {
        Ok(key) => key,
        Err(error) => {
            return report.fail(Check::Settings, None, CommandError::new(Kind::Bug, error.to_string()));
        }
    };
    let result = store::check(&client, &key, request_timeout, no_writes.as_deref(), report).await;
    let _ = timeout(CLOSE_MAX, client.close()).await;
    if report.has(Check::Early) {
        return result;
    }
    result?;
    early::check(settings, &key, report).await
}
