//! Deletion of several keys, with many requests in flight.

use std::cell::Cell;

use crate::client::{Client, DeleteOutcome, Error, Outcome};
use crate::commands::error::CommandError;
use crate::commands::lines::pipeline::{self, Known};
use crate::protocol::{ErrorReply, Key, Timestamp};
use crate::render::name;

/// The most keys that an error names.
const NAMES_MAX: usize = 5;

/// Deletes keys. `handle` gets the outcome of each key that has one, in order, and None each time that it has got all that are
/// known. A refusal that is about one key does not keep the others; any other failure ends the deletion, as soon as the
/// requests that were sent are answered. An error of `handle` does not: an output that cannot be written ends no deletion halfway.
///
/// # Errors
/// A key was not deleted, or `handle` has failed.
pub async fn delete(
    client: &Client,
    keys: Vec<Key>,
    fence: Option<Timestamp>,
    mut handle: impl FnMut(Option<(Key, DeleteOutcome)>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let total = keys.len();
    let is_stopped = Cell::new(false);
    let requests = keys.into_iter().map_while(|key| {
        let request = DeleteOutcome::request(&key, None, fence.clone());
        (!is_stopped.get()).then_some((key, request))
    });
    let (mut failures, mut answered, mut handled) = (Failures::default(), 0_usize, Ok(()));
    pipeline::for_all(None, client, Known(requests), |answer| {
        let outcome = match answer {
            None => None,
            Some((key, response)) => {
                answered = answered.saturating_add(1);
                match response.and_then(|response| DeleteOutcome::decode(response, false)) {
                    Ok(outcome) => Some((key, outcome)),
                    Err(error) => {
                        is_stopped.set(is_stopped.get() || !is_about_key(&error));
                        failures.add(&key, error.into());
                        return Ok(());
                    }
                }
            }
        };
        let result = handle(outcome);
        if handled.is_ok() {
            handled = result;
        }
        Ok(())
    })
    .await?;
    failures.result(total, answered).and(handled)
}

/// Returns whether the store may accept the deletion of another key.
fn is_about_key(error: &Error) -> bool {
    use ErrorReply::{FenceRequired, FenceTooOld, NotAuthorized};
    matches!(error, Error::Denied(_) | Error::Refused(NotAuthorized | FenceRequired | FenceTooOld))
}

/// The keys that were not deleted because of an error.
#[derive(Debug, Default)]
struct Failures {
    first: Option<CommandError>,
    names: Vec<String>,
    count: usize,
    is_unknown: bool,
}

impl Failures {
    fn add(&mut self, key: &Key, error: CommandError) {
        self.count = self.count.saturating_add(1);
        self.is_unknown |= error.outcome == Some(Outcome::Unknown);
        if self.names.len() < NAMES_MAX {
            self.names.push(name(key));
        }
        self.first.get_or_insert(error);
    }

    /// Returns the first error, with the number of all.
    fn result(self, total: usize, answered: usize) -> Result<(), CommandError> {
        let Self { first, names, count, is_unknown } = self;
        let Some(first) = first else { return Ok(()) };
        let more = if count > names.len() { ", ..." } else { "" };
        let mut causes = vec![format!("{count} of {total} keys failed: {}{more}", names.join(", "))];
        if answered < total {
            causes.push(format!("{} of them were not sent", total.saturating_sub(answered)));
        }
        let outcome = match is_unknown {
            true => Some(Outcome::Unknown),
            // Other keys were deleted: "nothing was changed" would be wrong.
            false if count < answered => None,
            false => first.outcome,
        };
        Err(CommandError { causes, outcome, ..first })
    }
}
