//! Checks whether the broker answers packets that are sent together with CONNECT, on a connection of its own.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::check::{Check, Detail, Warning};
use super::report::Report;
use crate::client::{Client, ConnectionProbe, ConnectionStep, Error, Reconnect, Settings};
use crate::protocol::Key;

const HINT: &str = "use --cautious, or cautious = true in the context";

/// Reads a key that does not exist.
pub(super) async fn check(settings: Settings, key: &Key, report: &mut Report<'_>) -> io::Result<()> {
    // A broker that does not answer the DISCONNECT is not waited for longer.
    const CLOSE_MAX: Duration = Duration::from_secs(2);
    let why = match &settings {
        Settings { is_cautious: true, .. } => Some("--cautious is in force"),
        settings if settings.authentication.has_method() => Some("MQTT does not allow it with a token"),
        _ => None,
    };
    if let Some(why) = why {
        return report.skip(Check::Early, why);
    }
    report.start();
    let (probe, mut observations) = ConnectionProbe::new();
    let settings = Settings { probe, connect_retries: 0, reconnect: Reconnect::Never, ..settings };
    let client = match Client::lazy(settings) {
        Ok(client) => client,
        Err(error) => return report.fail(Check::Early, None, error),
    };
    let result = client.get(key).await;
    let is_accepted = client.connection_info().connect_elapsed().is_some();
    let _ = timeout(CLOSE_MAX, client.close()).await;
    let refused =
        std::iter::from_fn(|| observations.try_recv().ok()).find_map(|observed| match observed.step {
            ConnectionStep::EarlyPacketsRefused { cause } => Some(cause),
            _ => None,
        });
    let saves = |what: &str| format!("{HINT}: it saves {what} of each run");
    let dropped = || {
        let message = "the broker does not answer packets that were sent before its CONNACK";
        Some((message.to_owned(), saves("a second")))
    };
    let warning = match (result, refused) {
        (Ok(_) | Err(Error::Refused(_) | Error::Denied(_)), None) => None,
        (Ok(_) | Err(Error::Refused(_) | Error::Denied(_)), Some(None)) => dropped(),
        // The store has answered the same read on the first connection.
        (Err(Error::Timeout { .. }), _) if is_accepted => dropped(),
        (Ok(_) | Err(Error::Refused(_) | Error::Denied(_)), Some(Some(cause))) => {
            let message = format!("the broker accepts no packets before its CONNACK: {cause}");
            Some((message, saves("an attempt")))
        }
        (Err(Error::NoConnack { .. }), _) => {
            Some(("the broker sends no CONNACK if packets follow the CONNECT".to_owned(), HINT.to_owned()))
        }
        (Err(error), _) => return report.fail(Check::Early, None, error),
    };
    let warning = warning.map(|(message, hint)| Warning { message, hint });
    let detail = Detail::Early { is_answered: warning.is_none() };
    report.pass(Check::Early, detail, warning.into_iter().collect())
}
