//! The keys of a bench: set before it, deleted after it.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::client::{Client, DeleteOutcome, Error, RawRequest, Response, SetOptions, SetOutcome};
use crate::commands::error::{CommandError, Kind};
use crate::commands::lines::pipeline::{self, Known};
use crate::protocol::{Key, Value};

/// Returns the keys that begin with a prefix, followed by a number.
///
/// # Errors
/// The prefix is too long.
pub fn keys(prefix: &[u8], count: usize) -> Result<Vec<Key>, CommandError> {
    let key = |number: usize| {
        Key::new([prefix, number.to_string().as_bytes()].concat())
            .map_err(|error| CommandError::usage(format!("invalid --prefix: {error}")))
    };
    (0..count).map(key).collect()
}

/// Returns the options of a SET of a key that expires.
///
/// # Errors
/// The time is too long.
pub fn set_options(ttl: Duration) -> Result<SetOptions, CommandError> {
    let ms = u64::try_from(ttl.as_millis()).ok().and_then(NonZeroU64::new);
    let ttl_ms = Some(ms.ok_or_else(|| CommandError::new(Kind::Usage, "the bench would last too long"))?);
    Ok(SetOptions { ttl_ms, ..SetOptions::default() })
}

/// Sets all keys; `report` gets the number of those that have been set.
///
/// # Errors
/// A SET failed, or `report` did.
pub async fn set_all(
    client: &Client,
    keys: &[Key],
    value: &Value,
    options: &SetOptions,
    mut report: impl FnMut(u64) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let request = |key: &Key| options.clone().request(key, value);
    let finish = |response| SetOutcome::decode(response, None).map(drop);
    set_or_delete(client, keys, request, finish, &mut report).await
}

/// Deletes all keys; missing ones are no error. `report` gets the number of those that have been deleted.
///
/// # Errors
/// A DEL failed, or `report` did.
pub async fn delete_all(
    client: &Client,
    keys: &[Key],
    mut report: impl FnMut(u64) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let request = |key: &Key| DeleteOutcome::request(key, None, None);
    let finish = |response| DeleteOutcome::decode(response, false).map(drop);
    set_or_delete(client, keys, request, finish, &mut report).await
}

async fn set_or_delete(
    client: &Client,
    keys: &[Key],
    request: impl Fn(&Key) -> RawRequest,
    finish: impl Fn(Response) -> Result<(), Error>,
    report: &mut dyn FnMut(u64) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut done = 0_u64;
    let requests = Known(keys.iter().map(|key| ((), request(key))));
    let handle = |answer: Option<((), _)>| match answer {
        Some(((), response)) => {
            finish(response?)?;
            done = done.saturating_add(1);
            Ok(())
        }
        None => report(done),
    };
    pipeline::for_all(None, client, requests, handle).await
}
