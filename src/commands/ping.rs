//! `ping`: measures the round trip to the store.

use clap::Args;

use super::error::{CommandError, Kind};
use super::output::{Emit, Output};
use super::session::Session;
use super::verdict::Verdict;
use crate::client::Error;
use crate::clock;
use crate::protocol::Key;

const HELP: &str = "\
Examples:
  mqkv ping
  mqkv ping -c 10 -j | jq .round_trip_ms

Each round trip is a GET of mqkv/ping/CLIENT-ID, a key that does not exist. A refusal by the rules of the store is an answer, \
too: the client needs no permission for that key.";

/// Measure the round trip to the store
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct PingArgs {
    /// Number of round trips, one after the other
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Runs the verb.
pub async fn run(args: PingArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let client = session.client().await?;
    let about = client.connection_info();
    let key = Key::new(format!("mqkv/ping/{}", about.client_id))
        .map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
    for sequence in 1..=args.count {
        let sent = clock::monotonic();
        match client.get(&key).await {
            // The store has answered; the rules may allow this client keys of its own only.
            Ok(_) | Err(Error::Denied(_)) => {}
            Err(error) => return Err(error.into()),
        }
        emit(Output::Pinged {
            broker: about.target.clone(),
            sequence,
            connect: about.connect_elapsed().filter(|_| sequence == 1),
            tls: about.tls().filter(|_| sequence == 1),
            round_trip: clock::monotonic().saturating_duration_since(sent),
        })?;
    }
    Ok(Verdict::Yes)
}
