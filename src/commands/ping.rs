//! `ping`: measures the way to the store and back.

use clap::Args;

use super::error::{CommandError, Kind};
use super::output::Output;
use super::session::Session;
use super::{Emit, Verdict};
use crate::protocol::Key;

const EXAMPLES: &str = "\
Examples:
  mqkv ping
  mqkv ping -c 10 -j | jq .round_trip_ms

What is timed is a GET of a key that does not exist, mqkv/ping/CLIENT-ID, from asking to the answer.";

/// Measure the way to the store and back
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PingArgs {
    /// How many round trips to make, one after the other
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Runs the verb.
pub async fn run(args: PingArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let client = session.client().await?;
    let about = client.about().clone();
    let key = Key::new(format!("mqkv/ping/{}", about.client_id))
        .map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
    for sequence in 1..=args.count {
        let asked = session.now();
        client.get(&key).await?;
        emit(Output::Pinged {
            broker: about.target.clone(),
            sequence,
            connect: (sequence == 1).then_some(about.connect_elapsed),
            tls: about.tls.filter(|_| sequence == 1),
            round_trip: session.now().saturating_duration_since(asked),
        })?;
    }
    Ok(Verdict::Yes)
}
