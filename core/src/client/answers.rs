//! Results of many requests, passed from the session's task in groups.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::error::Error;
use super::request::Response;

/// The receiver of the groups of one owner. Their number is bounded by the owner's requests. Shared, because each request has one,
/// and the channel counts its senders once more.
pub(super) type AnswerSender = Arc<mpsc::UnboundedSender<Answers>>;

/// The most places that a group begins with.
const GROUP_KEPT_MAX: usize = 1024;

/// Results of requests, in the order in which they became known.
#[derive(Debug)]
pub(super) struct Answers {
    /// Each with the number of its request.
    pub(super) results: Vec<(u64, Result<Response, Error>)>,
    /// The Receive Maximum of the current connection.
    pub(super) receive_max: Option<u16>,
}

/// Collects results until they are sent: a wake-up for each of them would cost more than all else.
#[derive(Debug, Default)]
pub(super) struct AnswerGroup {
    results: Vec<(u64, Result<Response, Error>)>,
    receiver: Option<AnswerSender>,
}

impl AnswerGroup {
    /// Adds a result; sends those before it if they have another receiver.
    pub(super) fn add(
        &mut self,
        receiver: AnswerSender,
        number: u64,
        result: Result<Response, Error>,
        receive_max: Option<u16>,
    ) {
        if self.receiver.as_ref().is_none_or(|current| !current.same_channel(&receiver)) {
            self.send(receive_max);
            self.receiver = Some(receiver);
        }
        self.results.push((number, result));
    }

    /// Sends the results.
    pub(super) fn send(&mut self, receive_max: Option<u16>) {
        if let Some(receiver) = self.receiver.take() {
            // The next group is about as large, if it is not the rest of a burst.
            let next_group = Vec::with_capacity(self.results.len().min(GROUP_KEPT_MAX));
            let results = std::mem::replace(&mut self.results, next_group);
            // An error means that the owner has dropped its handle.
            let _ = receiver.send(Answers { results, receive_max });
        }
    }
}
