//! Requests in flight: sent in order, answered in order.

use std::collections::VecDeque;

use super::window::{WINDOW_MIN, Window};
use crate::client::{Access, Bulk, Client, Error, RawRequest, Response};
use crate::clock;
use crate::commands::error::CommandError;

/// The greatest number of requests in flight that an option accepts.
pub const INFLIGHT_MAX: u16 = 1024;
/// The limit of the bytes in flight; a single request or answer may be larger.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Requests in flight, each with a context of the caller, and contexts without a request that wait for the ones before them.
///
/// Requests enter the session in the order in which they are pushed; the session keeps the order, and a request sees what
/// those before it have changed.
#[derive(Debug)]
pub struct Pipeline<T> {
    slots: VecDeque<Slot<T>>,
    /// None until the first request.
    bulk: Option<Bulk>,
    window: Window,
    bytes: BytesInFlight,
    /// The answers that the window has not counted.
    answers: usize,
}

#[derive(Debug)]
struct Slot<T> {
    context: T,
    /// None: there is no request.
    request: Option<Counted>,
}

/// A request as it was counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    bytes: usize,
    access: Access,
}

/// The bytes of requests in flight and of their answers.
///
/// The size of an answer is known only when it has arrived. Until then the largest one of the last reads stands in for it.
#[derive(Debug)]
struct BytesInFlight {
    bytes: usize,
    read_answer: usize,
}

impl BytesInFlight {
    fn new() -> Self {
        // The first window fits, whatever the size of the answers is.
        let read_answer = BYTES_MAX.checked_div(WINDOW_MIN).unwrap_or(BYTES_MAX);
        Self { bytes: 0, read_answer }
    }

    fn add(&mut self, request: &RawRequest) -> Counted {
        let access = request.access;
        let answer = if access == Access::Read { self.read_answer } else { 0 };
        let bytes = request.payload.len().saturating_add(answer);
        self.bytes = self.bytes.saturating_add(bytes);
        Counted { bytes, access }
    }

    fn remove(&mut self, Counted { bytes, access }: Counted, answer: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if access == Access::Read {
            // A large answer counts for some more: large and small ones may alternate.
            let fading = self.read_answer.saturating_sub(self.read_answer.div_ceil(16));
            self.read_answer = answer.max(fading);
        }
    }
}

impl<T> Pipeline<T> {
    /// Creates an empty pipeline for a fixed number of requests in flight, or one that adapts.
    #[must_use]
    pub fn new(inflight: Option<u16>) -> Self {
        Self {
            slots: VecDeque::new(),
            bulk: None,
            window: Window::new(inflight),
            bytes: BytesInFlight::new(),
            answers: 0,
        }
    }

    /// Returns whether another request may be pushed.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.slots.len() < self.window.size() && (self.bytes.bytes < BYTES_MAX || self.slots.is_empty())
    }

    /// Returns whether there is no request, pending or done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a request. It is sent with the next call of [`Pipeline::wait`]; the client is the same each time.
    pub fn push(&mut self, context: T, request: RawRequest, client: &Client) {
        let window = &mut self.window;
        let bulk = self.bulk.get_or_insert_with(|| {
            window.set_request_timeout(client.request_timeout());
            client.bulk()
        });
        self.slots.push_back(Slot { context, request: Some(self.bytes.add(&request)) });
        bulk.push(request);
    }

    /// Adds a context that needs no request.
    pub fn push_done(&mut self, context: T) {
        self.slots.push_back(Slot { context, request: None });
    }

    /// Removes and returns the first context, with the result of its request if it has one, once that is known.
    pub fn try_next(&mut self) -> Option<(T, Option<Result<Response, Error>>)> {
        let result = match self.slots.front()?.request {
            None => None,
            Some(counted) => {
                let result = self.bulk.as_mut()?.try_next()?;
                self.bytes.remove(counted, result.as_ref().map_or(0, |response| response.payload.len()));
                self.answers = self.answers.saturating_add(1);
                Some(result)
            }
        };
        self.slots.pop_front().map(|slot| (slot.context, result))
    }

    /// Sends the requests that were pushed, and waits until the result of the first is known; returns at once if there is none.
    /// Cancel-safe.
    pub async fn wait(&mut self) {
        if self.slots.front().is_none_or(|slot| slot.request.is_none()) {
            return;
        }
        let is_full = !self.has_capacity();
        let answers = std::mem::take(&mut self.answers);
        self.window.handle_answers(answers, self.slots.len(), is_full, clock::monotonic());
        let Some(bulk) = &mut self.bulk else { return };
        bulk.wait().await;
        if let Some(receive_max) = bulk.receive_max() {
            self.window.handle_receive_max(receive_max);
        }
    }
}

/// The requests of [`for_all`].
pub trait Source {
    /// What is returned with the result of a request.
    type Context;

    /// Returns the next request if it is known already. A future for each request would cost as much as the request.
    fn try_next(&mut self) -> Result<Option<(Self::Context, RawRequest)>, CommandError>;

    /// Waits for the next request; returns None at the end. Cancel-safe.
    ///
    /// # Errors
    /// The input cannot be read, or is invalid.
    async fn next(&mut self) -> Result<Option<(Self::Context, RawRequest)>, CommandError>;
}

/// Requests that are known from the beginning.
#[derive(Debug)]
pub struct Known<I>(pub I);

impl<T, I: Iterator<Item = (T, RawRequest)>> Source for Known<I> {
    type Context = T;

    fn try_next(&mut self) -> Result<Option<(T, RawRequest)>, CommandError> {
        Ok(self.0.next())
    }

    async fn next(&mut self) -> Result<Option<(T, RawRequest)>, CommandError> {
        self.try_next()
    }
}

/// Sends all requests of a source. `handle` gets each result with its context, in order, and None each time that it has got all
/// that are known.
pub async fn for_all<S: Source>(
    inflight: Option<u16>,
    client: &Client,
    mut source: S,
    mut handle: impl FnMut(Option<(S::Context, Result<Response, Error>)>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut pipeline = Pipeline::new(inflight);
    let mut has_more = true;
    loop {
        while has_more
            && pipeline.has_capacity()
            && let Some((context, request)) = source.try_next()?
        {
            pipeline.push(context, request, client);
        }
        let takes_more = has_more && pipeline.has_capacity();
        if pipeline.is_empty() && !takes_more {
            return Ok(());
        }
        tokio::select! {
            biased;
            request = source.next(), if takes_more => match request? {
                Some((context, request)) => pipeline.push(context, request, client),
                None => has_more = false,
            },
            () = pipeline.wait(), if !pipeline.is_empty() => {
                while let Some((context, result)) = pipeline.try_next() {
                    result.map_or(Ok(()), |result| handle(Some((context, result))))?;
                }
                handle(None)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn contexts_without_a_request_are_returned_in_order_and_count() {
        let mut pipeline = Pipeline::new(Some(3));
        for number in 0..3 {
            assert!(pipeline.has_capacity());
            pipeline.push_done(number);
        }
        assert!(!pipeline.has_capacity());
        let returned: Vec<_> = std::iter::from_fn(|| pipeline.try_next()).collect();
        assert_eq!(returned, [(0, None), (1, None), (2, None)]);
        assert!(pipeline.is_empty() && pipeline.has_capacity());
    }

    #[test]
    fn bytes_are_bounded_but_a_single_request_may_exceed_the_limit() {
        let mut pipeline = Pipeline::new(None);
        pipeline.bytes.bytes = usize::MAX;
        assert!(pipeline.has_capacity());
        pipeline.push_done(());
        assert!(!pipeline.has_capacity());
    }

    fn request(access: Access, len: usize) -> RawRequest {
        RawRequest { payload: Bytes::from(vec![0; len]), access, properties: None }
    }

    /// Sends as much as the bytes in flight allow, with answers of these sizes. Returns the most bytes in flight.
    fn bytes_in_flight(access: Access, request_bytes: usize, answers: impl Iterator<Item = usize>) -> usize {
        let mut counted = BytesInFlight::new();
        let (mut in_flight, mut bytes, mut bytes_max) = (VecDeque::new(), 0, 0);
        let mut answers = answers.peekable();
        while answers.peek().is_some() || !in_flight.is_empty() {
            while counted.bytes < BYTES_MAX
                && in_flight.len() < usize::from(INFLIGHT_MAX)
                && let Some(answer) = answers.next()
            {
                in_flight.push_back((counted.add(&request(access, request_bytes)), answer));
                bytes += request_bytes + answer;
                bytes_max = bytes_max.max(bytes);
            }
            let (request, answer) = in_flight.pop_front().unwrap();
            counted.remove(request, answer);
            bytes -= request_bytes + answer;
        }
        assert_eq!(counted.bytes, 0);
        bytes_max
    }

    #[test]
    fn answers_of_reads_count_as_bytes_in_flight() {
        const LARGE: usize = 256 * 1024;
        let all_large = std::iter::repeat_n(LARGE, 10_000);
        let some_large = (0..10_000).map(|number| if number % 8 == 0 { LARGE } else { 10 });
        assert!(bytes_in_flight(Access::Read, 20, all_large) <= BYTES_MAX + LARGE);
        assert!(bytes_in_flight(Access::Read, 20, some_large) <= BYTES_MAX + LARGE);
    }

    #[test]
    fn requests_count_with_their_bytes_as_they_are_sent() {
        const VALUE: usize = 1024 * 1024;
        let bytes = bytes_in_flight(Access::Write, VALUE, std::iter::repeat_n(5, 1_000));
        assert!((BYTES_MAX..=BYTES_MAX + 2 * VALUE).contains(&bytes), "{bytes}");
    }

    #[test]
    fn small_answers_leave_the_number_of_requests_as_the_limit() {
        let mut counted = BytesInFlight::new();
        for _ in 0..1_000 {
            let read = counted.add(&request(Access::Read, 20));
            counted.remove(read, 10);
        }
        assert!(counted.add(&request(Access::Read, 20)).bytes <= 60);
    }
}
