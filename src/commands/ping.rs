//! `ping`: measures the round trip to the store.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::number::number;
use super::output::Emit;
use super::session::Session;
use crate::client::Error;
use crate::clock;
use crate::protocol::Key;
use crate::render::duration::ms_text;
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths};

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
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = number(1..=u32::MAX))]
    count: u32,
}

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "ping")]
struct RoundTrip {
    /// The broker's address.
    broker: String,
    /// Counts from 1.
    #[serde(rename = "seq")]
    sequence: u32,
    /// The time from the first packet to CONNACK; only in the first record.
    #[serde(rename = "connect_ms", skip_serializing_if = "Option::is_none", serialize_with = "json::ms")]
    connect: Option<Duration>,
    /// The version of TLS; only in the first record.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<&'static str>,
    #[serde(rename = "round_trip_ms", serialize_with = "json::ms")]
    round_trip: Duration,
}

pub async fn run(args: PingArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
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
        emit(&RoundTrip {
            broker: about.target.clone(),
            sequence,
            connect: about.connect_elapsed().filter(|_| sequence == 1),
            tls: about.tls().filter(|_| sequence == 1),
            round_trip: clock::monotonic().saturating_duration_since(sent),
        })?;
    }
    Ok(Exit::Yes)
}

impl Record for RoundTrip {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        let tls = self.tls.map_or_else(String::new, |version| format!(" (TLS {version})"));
        let connect =
            self.connect.map_or_else(String::new, |connect| format!("  connect {}{tls}", ms_text(connect)));
        let broker = escape(self.broker.as_bytes());
        Rendered::stdout(format!("{broker}{connect}  round trip {}\n", ms_text(self.round_trip)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn round_trip(connect: Option<Duration>, tls: Option<&'static str>) -> RoundTrip {
        let broker = "localhost:1883".to_owned();
        RoundTrip { broker, sequence: 1, connect, tls, round_trip: Duration::from_nanos(57_400) }
    }

    #[test]
    fn a_ping_has_the_time_to_connect_only_once() {
        let connect = Some(Duration::from_micros(12_100));
        let text = |connect, tls| shown(&round_trip(connect, tls), &Style::PLAIN).0;
        assert_eq!(text(connect, None), "localhost:1883  connect 12.1 ms  round trip 0.057 ms\n");
        let with_tls = "localhost:1883  connect 12.1 ms (TLS 1.3)  round trip 0.057 ms\n";
        assert_eq!(text(connect, Some("1.3")), with_tls);
        assert_eq!(text(None, None), "localhost:1883  round trip 0.057 ms\n");
        assert_eq!(
            shown(&round_trip(connect, Some("1.3")), &Style::JSON).0,
            "{\"v\":1,\"op\":\"ping\",\"broker\":\"localhost:1883\",\"seq\":1,\"connect_ms\":12.1,\
             \"tls\":\"1.3\",\"round_trip_ms\":0.057}\n"
        );
    }
}
