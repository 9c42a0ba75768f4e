//! Refusals by the rules of the store (pure).

use super::Session;
use crate::client::denial::Denial;

impl<T> Session<T> {
    /// Returns what the response to a request denies, if it reports that no rule allows the request.
    pub(super) fn denial(&self, id: u64, response: &[u8]) -> Option<Box<Denial>> {
        if !Denial::is_in(response) {
            return None;
        }
        let pending = self.requests.get(&id)?;
        Some(Box::new(Denial::of(&pending.request.payload, &self.config.identity)))
    }
}
