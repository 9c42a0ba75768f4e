//! Many requests in order, passed to the session's task in groups.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{mpsc, watch as observe};

use super::answers::{AnswerSender, Answers};
use super::connection_status::ConnectionStatus;
use super::driver::Command;
use super::error::Error;
use super::request::{RawRequest, Response};

/// Many requests of one caller, sent and answered in their order.
///
/// A request of its own takes a channel, two task switches and two wake-ups. Here requests are passed to the session's task in
/// groups, by [`Bulk::wait`], and their results come back in groups. The caller bounds the number of requests.
///
/// The session takes no more of them than [`Settings::inflight_max`](super::Settings::inflight_max) allows, and requests of other
/// handles before them. When this handle is dropped, those that have not been sent are not sent any more.
#[derive(Debug)]
pub struct Bulk {
    commands: mpsc::Sender<Command>,
    status: observe::Receiver<ConnectionStatus>,
    /// Requests that the session's task does not have yet. They are the last of `results`.
    queued: Vec<RawRequest>,
    /// A place for each request whose result has not been taken.
    results: VecDeque<Option<Result<Response, Error>>>,
    /// The number of the first place.
    first: u64,
    sender: AnswerSender,
    answers: mpsc::UnboundedReceiver<Answers>,
    receive_max: Option<u16>,
}

impl Bulk {
    pub(super) fn new(commands: mpsc::Sender<Command>, status: observe::Receiver<ConnectionStatus>) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            commands,
            status,
            queued: Vec::new(),
            results: VecDeque::new(),
            first: 0,
            sender: Arc::new(sender),
            answers,
            receive_max: None,
        }
    }

    /// Adds a request. It is sent with the next call of [`Bulk::wait`].
    pub fn push(&mut self, request: RawRequest) {
        self.queued.push(request);
        self.results.push_back(None);
    }

    /// Removes and returns the result of the first request, if it is known.
    pub fn try_next(&mut self) -> Option<Result<Response, Error>> {
        let result = self.results.pop_front_if(|result| result.is_some())??;
        self.first = self.first.wrapping_add(1);
        Some(result)
    }

    /// Sends the requests that were pushed, and waits until the result of the first one is known. Returns at once if there is
    /// none. Cancel-safe.
    pub async fn wait(&mut self) {
        if !self.queued.is_empty() {
            let Ok(permit) = self.commands.reserve().await else {
                return self.handle_end();
            };
            let sent = self.results.len().saturating_sub(self.queued.len());
            // The next group is about as large.
            let next_group = Vec::with_capacity(self.queued.len());
            permit.send(Command::SendAll {
                requests: std::mem::replace(&mut self.queued, next_group),
                // A usize fits into u64 on every platform of Rust.
                first: self.first.wrapping_add(sent as u64),
                answers: self.sender.clone(),
            });
        }
        while matches!(self.results.front(), Some(None)) {
            tokio::select! {
                biased;
                Some(answers) = self.answers.recv() => self.handle_answers(answers),
                () = self.commands.closed() => return self.handle_end(),
            }
        }
    }

    /// Returns the broker's Receive Maximum, once a result is known.
    #[must_use]
    pub fn receive_max(&self) -> Option<u16> {
        self.receive_max
    }

    fn handle_answers(&mut self, answers: Answers) {
        self.receive_max = answers.receive_max.or(self.receive_max);
        for (number, result) in answers.results {
            let at = usize::try_from(number.wrapping_sub(self.first)).ok();
            if let Some(place) = at.and_then(|at| self.results.get_mut(at)) {
                *place = Some(result);
            }
        }
    }

    /// Handles the end of the session's task: results that it has not sent are the error that ended it.
    fn handle_end(&mut self) {
        while let Ok(answers) = self.answers.try_recv() {
            self.handle_answers(answers);
        }
        self.queued.clear();
        let error = self.status.borrow().end_error();
        for place in self.results.iter_mut().filter(|place| place.is_none()) {
            *place = Some(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::client::Access;

    fn request(number: u64) -> RawRequest {
        let payload = Bytes::from(number.to_string());
        RawRequest { payload, access: Access::Write, properties: None }
    }

    fn response(payload: &'static str) -> Result<Response, Error> {
        Ok(Response {
            payload: Bytes::from_static(payload.as_bytes()),
            version: None,
            has_status: true,
            denial: None,
            details: None,
            is_limited: false,
            is_pending: false,
            is_prefix: false,
        })
    }

    /// A handle, and the other side of its channels.
    fn bulk() -> (Bulk, mpsc::Receiver<Command>, Arc<observe::Sender<ConnectionStatus>>) {
        let (sender, commands) = mpsc::channel(4);
        let (status, observed) = observe::channel(ConnectionStatus::Connected);
        (Bulk::new(sender, observed), commands, Arc::new(status))
    }

    async fn next_group(commands: &mut mpsc::Receiver<Command>) -> (Vec<RawRequest>, u64, AnswerSender) {
        match commands.recv().await.unwrap() {
            Command::SendAll { requests, first, answers } => (requests, first, answers),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn requests_are_passed_in_groups_and_results_returned_in_their_order() {
        let (mut bulk, mut commands, _status) = bulk();
        bulk.push(request(0));
        bulk.push(request(1));
        assert_eq!(bulk.try_next(), None);
        let task = async {
            let (requests, first, answers) = next_group(&mut commands).await;
            assert_eq!((requests.len(), first), (2, 0));
            answers.send(Answers { results: vec![(1, response("b"))], receive_max: Some(7) }).unwrap();
            answers.send(Answers { results: vec![(0, response("a"))], receive_max: Some(7) }).unwrap();
        };
        tokio::join!(bulk.wait(), task);
        assert_eq!(
            [bulk.try_next(), bulk.try_next(), bulk.try_next()],
            [Some(response("a")), Some(response("b")), None]
        );
        assert_eq!(bulk.receive_max(), Some(7));
        bulk.push(request(2));
        let task = async {
            let (requests, first, answers) = next_group(&mut commands).await;
            assert_eq!((requests.len(), first), (1, 2));
            answers.send(Answers { results: vec![(2, response("c"))], receive_max: None }).unwrap();
        };
        tokio::join!(bulk.wait(), task);
        assert_eq!(bulk.try_next(), Some(response("c")));
        bulk.wait().await;
    }

    #[tokio::test]
    async fn after_the_end_of_the_session_no_request_waits() {
        let (mut bulk, mut commands, status) = bulk();
        bulk.push(request(0));
        bulk.push(request(1));
        let task = async {
            let (_, _, answers) = next_group(&mut commands).await;
            answers.send(Answers { results: vec![(1, response("b"))], receive_max: None }).unwrap();
            status.send_replace(ConnectionStatus::Ended(Error::EmptyPattern));
            drop(commands);
        };
        tokio::join!(bulk.wait(), task);
        assert_eq!([bulk.try_next(), bulk.try_next()], [Some(Err(Error::EmptyPattern)), Some(response("b"))]);
        bulk.push(request(2));
        bulk.wait().await;
        assert_eq!(bulk.try_next(), Some(Err(Error::EmptyPattern)));
    }
}
