//! Names for completion that the broker knows: one short request, where the user has asked for it.

use tokio::time::timeout;

use crate::cli::config::Configuration;
use crate::cli::config::variables::{COMPLETE_KEYS, Variables};
use crate::cli::connection::{Connection, Login};
use crate::cli::environment;
use crate::cli::options::{ConnectionArgs, DisplayArgs};
use crate::cli::runtime;
use crate::cli::session::session;
use crate::cli::signals::EndSignals;
use crate::commands::args::kind::ValueKind;
use crate::commands::{COMPLETION_NAMES_MAX, COMPLETION_WAIT_MAX, CommandError, exchange, first_keys};

/// Returns whether the user has asked for such names. Each Tab costs a connection, so it is off by default.
#[must_use]
pub fn are_wanted(variables: &Variables) -> bool {
    variables.get(COMPLETE_KEYS).is_some_and(|value| value == "1")
}

/// Lists names in order, of keys those with a prefix; the time includes connecting. Without an answer in time there are none: a
/// completion reports no errors.
#[must_use]
pub fn list(
    connection: &ConnectionArgs,
    variables: &Variables,
    kind: ValueKind,
    prefix: &str,
) -> Vec<String> {
    try_list(connection, variables, kind, prefix).unwrap_or_default()
}

fn try_list(
    connection: &ConnectionArgs,
    variables: &Variables,
    kind: ValueKind,
    prefix: &str,
) -> Result<Vec<String>, CommandError> {
    let configuration = Configuration::resolve(connection, &DisplayArgs::default(), variables)?;
    let connection = Connection::of(&configuration.settings, environment::process())?;
    if !matches!(connection.login, Login::Known(_)) {
        // The password would have to be typed, or read from standard input.
        return Ok(Vec::new());
    }
    let style = environment::style(&configuration.settings, false);
    let (session, store) = session(Some(connection), None, EndSignals::default(), style);
    runtime::block_on(false, async {
        let (mut names, mut keys) = (Vec::new(), Vec::new());
        let list_and_close = async {
            match kind {
                ValueKind::Key => {
                    let client = session.early_client().await?;
                    first_keys(client, prefix.as_bytes(), COMPLETION_NAMES_MAX, &mut keys).await?;
                }
                ValueKind::Leaf => names = exchange::leaf_names(&session).await?,
                ValueKind::Conflict => names = exchange::conflict_ids(&session).await?,
                ValueKind::Context => {}
            }
            session.clone().close().await;
            Ok::<_, CommandError>(())
        };
        // Keys that were listed in time count, even if more would have followed.
        let listed = timeout(COMPLETION_WAIT_MAX, list_and_close).await.unwrap_or(Ok(()));
        store.stop().await;
        listed?;
        keys.sort();
        names.extend(keys.iter().filter_map(|key| text(key.as_bytes())));
        Ok(names)
    })?
}

fn text(key: &[u8]) -> Option<String> {
    std::str::from_utf8(key).ok().map(str::to_owned)
}
