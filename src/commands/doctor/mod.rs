//! `doctor`: goes the whole way to the store and back, step by step, and says what is wrong and how to mend it.

pub mod check;
mod connection;
mod report;
mod store;

use std::io;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::error::CommandError;
use super::session::Session;
use crate::clock;
use crate::commands::output::Emit;
use crate::commands::verdict::Verdict;
use check::Check;
use report::Report;

const EXAMPLES: &str = "\
Checks, in this order; what cannot be checked after a failure is skipped:
  dns            the host has an address
  tcp            one of its addresses answers, and which ones do not
  tls            version and cipher; whom the client trusts; the broker's certificate, its issuer,
                 its names; whether a client certificate is asked for. A warning below 30 days.
  ws             the broker takes MQTT in a WebSocket, where one is asked for
  connack        the broker lets the client in; what it grants
  subscribe      the client may hear the store's answers, with QoS 1
  request        the store answers a GET of a key that does not exist
  clock          the store's clock against this machine's. A warning from 10 s on, a failure from
                 60 s on: there the one or the other refuses what it is sent.
  notifications  a watch of a key is told when the key is set and deleted

clock and notifications write: they set the key mqkv-doctor/RANDOM, with an end, and delete it. \
With --read-only, or in a context that is, they are skipped. There is one connection, with no second try.

The exit code is that of the first failure, as any other verb would end; 0 with warnings alone. \
With -j everything is one JSON array, at the end; with -q only failures are told.

Examples:
  mqkv doctor
  mqkv doctor -n aio-broker -T ca.crt --read-only
  mqkv doctor -j | jq -r '.[] | select(.status == \"fail\") | .message'";

/// Find out what is wrong between here and the store, and how to mend it
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Write nothing: the checks that would are skipped
    #[arg(long)]
    read_only: bool,
}

/// Runs the verb.
pub async fn run(args: DoctorArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let mut report = Report::new(clock::monotonic, emit);
    examine(&args, session, &mut report).await?;
    Ok(report.end()?)
}

async fn examine(args: &DoctorArgs, session: &Session, report: &mut Report<'_>) -> io::Result<()> {
    /// A broker that does not listen is not waited for.
    const GOODBYE_MAX: Duration = Duration::from_secs(2);
    let settings = match session.second_settings().await {
        Ok(settings) => settings,
        Err(error) => {
            report.fail(Check::Settings, None, error)?;
            return report.skip_rest();
        }
    };
    let patience = settings.request_timeout;
    report.begin();
    let Some(client) = connection::connect(settings, report).await? else { return Ok(()) };
    let why_not_write = match session.check_write() {
        _ if args.read_only => Some("it would write, and --read-only is asked for".to_owned()),
        Err(guard) => Some(format!("it would write, and {}", guard.message)),
        Ok(()) => None,
    };
    let result = store::examine(&client, patience, why_not_write.as_deref(), report).await;
    let _ = timeout(GOODBYE_MAX, client.close()).await;
    result
}
